"""What a starting vLLM says: the phase it is in, and the first cause when it fails."""

from __future__ import annotations

import re
from typing import Optional, Tuple

from eagle3_backend.engines.vllm import READY_MARKER
from eagle3_backend.findings import Finding, error

PHASES: Tuple[Tuple[str, str], ...] = (
    ("Initializing a V1 LLM engine", "config"),
    ("Starting to load model", "weights"),
    ("Loading drafter model", "drafter_load"),
    ("KV cache size", "kv_cache"),
    ("Capturing CUDA graphs", "graphs"),
    ("Starting vLLM server on", "startup"),
    (READY_MARKER, "serving"),
)
"""Text to the phase that begins with it, in the order of a start; before the first one it is `imports`."""

_OUT_OF_MEMORY = (
    "OutOfMemoryError|CUDA out of memory|Free memory on device|No available memory for the cache blocks"
    "|To serve at least one request with the model's max seq len|DefaultCPUAllocator: can't allocate memory"
)
_CAUSES: Tuple[Tuple[str, str, str, str], ...] = (
    (
        "port_in_use",
        "address already in use",
        "Another process listens on the engine's port.",
        "Start it again; another port is taken each time.",
    ),
    (
        "oom_startup",
        _OUT_OF_MEMORY,
        "The engine ran out of memory.",
        "Lower the context, the requests in flight or the memory share, or use more GPUs.",
    ),
    (
        "target_unsupported",
        "does not support EAGLE3|Eagle3 is only supported for|Model architectures .* are not supported",
        "This engine has no EAGLE-3 path for the target.",
        "Use another version of the engine, or another target; the drafter is not at fault.",
    ),
    (
        "drafter_shape_mismatch",
        "Tried to load weights of size",
        "A weight of the drafter does not fit its config.",
        "Compare fc and lm_head with the drafter's config.",
    ),
    (
        "quantization_inherited",
        r"KeyError: 'layers\.0\.mlp",
        "The drafter was built with the target's quantisation.",
        "Remove quantization_config from the drafter's config.",
    ),
    (
        "engine_arguments_invalid",
        "unrecognized arguments|validation errors? for |error: argument ",
        "The engine does not take these arguments.",
        "The plan was made for another version of the engine.",
    ),
    (
        "engine_worker_died",
        "died unexpectedly|EngineDeadError",
        "A process of the engine ended without a word, as when the kernel kills one for memory.",
        "Look at the host's free memory and kernel log.",
    ),
)
"""Code, pattern, message, fix. The first line of the log that matches any is the cause: later ones are echoes."""

_PREFIX = re.compile(r"^(\([^)]*pid=\d+\)\s*)?")
_EXCEPTION = re.compile(r"(?:ERROR .*?\]\s*|^)((?:\w+\.)*\w*(?:Error|Exception)(?:: .*)?)$")
"""An exception's own line: logged with level ERROR, or at the end of a traceback. Warnings may name exceptions too."""


class StartLog:
    """Follows the log of one start, line by line."""

    def __init__(self) -> None:
        self.phase = "imports"
        self.ready_marker = False
        self._cause: Optional[Tuple[str, str, str, str]] = None
        self._exception = ""
        self.last_line = ""

    def feed(self, line: str) -> bool:
        """Take one line without its end; True when a new phase begins with it."""
        text = _PREFIX.sub("", line.strip(), count=1)
        if not text:
            return False
        self.last_line = text[:500]
        self._look_for_cause(text)
        if READY_MARKER in text:
            self.ready_marker = True
        for mark, phase in PHASES:
            if mark in text and phase != self.phase:
                self.phase = phase
                return True
        return False

    def _look_for_cause(self, text: str) -> None:
        if self._cause is None and " WARNING " not in f" {text[:40]}":
            for code, pattern, message, fix in _CAUSES:
                if re.search(pattern, text, re.IGNORECASE):
                    self._cause = (code, text[:500], message, fix)
                    break
        found = _EXCEPTION.search(text)
        if found and not self._exception and " WARNING " not in text:
            self._exception = found.group(1)[:500]

    @property
    def failed(self) -> bool:
        """The log names a cause that no engine survives."""
        return self._cause is not None

    def finding(self, exit_code: Optional[int] = None) -> Finding:
        """Why the engine is not there. ``exit_code`` is the server's, negative for a signal, None while it lives."""
        where = f"Phase: {self.phase}."
        if self._cause is not None:
            code, line, message, fix = self._cause
            return error(code, f"{message} {where} {line}", path="engine", actual=line, fix=fix)
        how = "" if exit_code is None else f" It ended with {_ending(exit_code)}."
        said = self._exception or self.last_line
        return error(
            "engine_failed",
            f"The engine failed. {where}{how} {said}".rstrip(),
            path="engine",
            actual=said,
            fix="Read the engine's lines in this run's log.",
        )


def _ending(exit_code: int) -> str:
    """An exit above 128 is a signal too: the shell's way to pass one on."""
    number = -exit_code if exit_code < 0 else exit_code - 128 if exit_code > 128 else 0
    names = {7: "SIGBUS (look at /dev/shm and the mount of the weights)", 9: "SIGKILL", 15: "SIGTERM"}
    return names.get(number, f"signal {number}") if number else f"exit code {exit_code}"
