"""Reads the log of a server, line by line or in bytes: the phase it is in, and the first cause when it fails."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from eagle3_backend.engines.log_lines import MAX_SEARCHED, LineFed
from eagle3_backend.engines.log_rules import CAUSES, ECHOES, SERVING, START, TOLD, Cause
from eagle3_backend.findings import Finding, error, warning

MAX_TEXT = 500
"""Characters of a line that are kept and shown."""
DETAIL_LINES = 2
"""Lines after a heading such as pydantic's "1 validation error for" that are shown with it."""
MAX_NAMES = 8
"""Architectures that are kept: target and drafter, in every process."""
DISK_BYTES_A_SECOND = 200e6
"""What a slow disk reads; loading may be silent for as long as that takes."""
BUSY_PERCENT = 90
"""GPU utilisation from which a silent start with tensor parallelism looks like a collective that never returns."""

_PREFIX = re.compile(
    r"^(?:\([^)]*pid=\d+\)\s*)?"  # vLLM: (Worker_TP0 pid=330)
    r"(?:\[\d{4}-\d\d-\d\d [\d:.,]+[^\]]*\]\s*)?"  # SGLang: [2026-02-03 14:00:31 TP0]
    r"(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL):?\s+)?"
    r"(?:\d\d-\d\d [\d:.]+ )?(?:\[[\w./]+:\d+\]\s*)?"  # vLLM: 11-29 17:33:22 [model.py:733]
)
_EXCEPTION = re.compile(r"^((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)(?:: .*)?)$")
_MEMORY = re.compile(r"avail(?:able)? mem=(\d{1,9}(?:\.\d+)?) GB")


def split_prefix(line: str) -> Tuple[str, str]:
    """The level that a line carries (empty: none) and its text without prefix, as vLLM, SGLang and uvicorn log."""
    match = _PREFIX.match(line)
    assert match is not None
    return match.group("level") or "", line[match.end() :].strip()


@dataclass(frozen=True)
class Probe:
    """What answered on the server's port when it was asked: an HTTP status and the name of the model it serves."""

    status: int
    model: str


@dataclass(frozen=True)
class Diagnosis:
    """What a log says. ``state`` is `starting`, `ready`, `failed`, `hung`, `running` or `stalled`; ``facts`` are
    further values by name."""

    state: str
    phase: str
    ready: bool
    findings: Tuple[Finding, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


class ServerLog(LineFed):
    """Follows the log of one start. Keeps a few short texts only, however long the log is."""

    def __init__(self, engine: str = "vllm") -> None:
        super().__init__()
        self.engine = engine
        self._rules = START[engine]
        self.phase = self._rules.first
        self.ready_marker = False
        self.last_line = ""
        self.facts: Dict[str, Any] = {}
        self._passed = {self.phase}
        self._cause: Optional[Tuple[Cause, str, Mapping[str, str]]] = None
        self._details: List[str] = []
        self._exception = ""
        self._ends_in_exception = False

    def feed_bytes(self, data: bytes) -> List[str]:
        """Take a piece of the log; the phases that begin in it."""
        return [phase for line in self._reader.feed(data) for phase in self._phases_of(line)]

    def _phases_of(self, line: str) -> List[str]:
        return [self.phase] if self.feed(line) else []

    def feed(self, line: str) -> bool:
        """Take one line without its end; True when a new phase begins with it."""
        level, text = split_prefix(line.strip())
        if not text:
            return False
        self.last_line = text[:MAX_TEXT]
        self._take_facts(text)
        text = text[:MAX_SEARCHED]
        begins = self._begins_phase(text)
        self._look_for_cause(level, text)
        if self._rules.ready in text:
            self.ready_marker = True
        return begins

    def _begins_phase(self, text: str) -> bool:
        found = self.phase
        for phase in self._rules.phases:
            if (not phase.after or phase.after in self._passed) and re.search(phase.pattern, text):
                found = phase.name
        memory = _MEMORY.search(text)
        if memory and self._cause is None:
            self.facts["avail_mem_gb_before"] = float(memory.group(1))
        if found == self.phase:
            return False
        self.phase = found
        self._passed.add(found)
        self._exception, self._ends_in_exception = "", False
        return True

    def _take_facts(self, text: str) -> None:
        for name, pattern in TOLD[self.engine]:
            match = pattern.search(text)
            if match is None:
                continue
            if name == "architectures":
                known = self.facts.get(name, [])
                self.facts[name] = known if match.group(1) in known else [*known, match.group(1)][:MAX_NAMES]
            else:
                self.facts[name] = _told(name, match.group(1))

    def _look_for_cause(self, level: str, text: str) -> None:
        if level in ("DEBUG", "INFO", "WARNING"):
            return
        exception = _EXCEPTION.match(text)
        told = level in ("ERROR", "CRITICAL") or exception is not None
        if exception:
            self._exception = self._exception or exception.group(1)[:MAX_TEXT]
            self._ends_in_exception = True
        elif told and ECHOES.search(text):
            self._ends_in_exception = True
        vague = self._cause is not None and self._cause[0].vague
        if self._cause is not None and not vague:
            return
        for cause in CAUSES:
            match = cause.pattern.search(text) if self._applies(cause, told) else None
            if match and not (vague and cause.vague):
                groups = {name: value for name, value in match.groupdict().items() if value}
                self._cause, self._details = (cause, text[:MAX_TEXT], groups), []
                return
        if vague and len(self._details) < DETAIL_LINES:
            self._details.append(text[:MAX_TEXT])

    def _applies(self, cause: Cause, told: bool) -> bool:
        return (
            (not cause.kinds or self.engine in cause.kinds)
            and (told or cause.bare)
            and not (cause.startup and SERVING in self._passed)
            and (not cause.phases or self.phase in cause.phases)
        )

    @property
    def failed(self) -> bool:
        """The log names a cause that no engine survives, and nothing that could come would name it better."""
        return self._cause is not None and not self._cause[0].vague

    def finding(self, exit_code: Optional[int] = None, port: Optional[int] = None) -> Finding:
        """Why the engine is not there. ``exit_code`` is the server's, negative for a signal, None while it lives;
        ``port`` is the planned one."""
        if self._cause is not None:
            return self._cause_finding(*self._cause, port=port)
        code, how = ending(exit_code)
        said = self._exception or self.last_line
        return error(
            code,
            f"The engine failed. Phase: {self.phase}. {how}{said}".rstrip(),
            path="engine",
            actual=said,
            fix="Read the engine's lines in this run's log.",
        )

    def _cause_finding(self, cause: Cause, line: str, groups: Mapping[str, str], port: Optional[int]) -> Finding:
        actual: Any = groups.get("actual", port if cause.path == "--port" and port is not None else line)
        expected: Any = groups.get("expected")
        return error(
            cause.code,
            f"{cause.message} Phase: {self.phase}. {' '.join([line, *self._details])}",
            path=cause.path,
            expected=_number(expected),
            actual=_number(actual),
            fix=cause.fix.get(self.phase, cause.fix[""]),
        )

    def diagnose(
        self,
        exit_code: Optional[int] = None,
        probe: Optional[Probe] = None,
        served_model: str = "",
        port: Optional[int] = None,
        silence: Optional[float] = None,
        gpus: Sequence[float] = (),
        weights_bytes: int = 0,
    ) -> Diagnosis:
        """The verdict on the log so far.

        ``probe`` is who answers on the port and ``served_model`` who should: the marker of success counts only with
        the right answer. ``silence`` is seconds since the last output, ``gpus`` utilisation in percent, and
        ``weights_bytes`` the size of what is loaded. A server that serves may be silent for ever.
        """
        findings: List[Finding] = []
        foreign = probe is not None and bool(served_model) and probe.model != served_model
        ready = self.ready_marker and probe is not None and probe.status == 200 and not foreign
        facts = dict(self.facts)
        if self._cause is not None and "supported" in self._cause[2]:
            facts["supported"] = list(ast.literal_eval(f"[{self._cause[2]['supported']}]"))
        state = "ready" if ready else "starting"
        if (
            self._cause is not None
            or exit_code is not None
            or (self._ends_in_exception and SERVING not in self._passed)
        ):
            state, ready = "failed", False
            findings.append(self.finding(exit_code, port))
        elif self.phase != SERVING and silence is not None and silence > self._budget(weights_bytes):
            state = "hung"
            findings.append(self._hang(silence, gpus, self._budget(weights_bytes)))
        if foreign and probe is not None and all(finding.code != "port_in_use" for finding in findings):
            findings.append(_foreign(probe, served_model, port))
        return Diagnosis(state, self.phase, ready, tuple(findings), facts)

    def _budget(self, weights_bytes: int) -> float:
        """Seconds without a new line that the phase may take."""
        loading = weights_bytes / DISK_BYTES_A_SECOND if self.phase == "weights" else 0.0
        return self._rules.budgets[self.phase] + loading

    def _hang(self, silence: float, gpus: Sequence[float], budget: float) -> Finding:
        waits = bool(gpus) and min(gpus) >= BUSY_PERCENT and len(gpus) > 1
        fix = (
            "All GPUs are fully busy and nothing is said: a first collective that never returns. Stop it and start "
            "with NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce."
            if waits
            else "It is left running: stop it when this phase should be over."
        )
        minutes = int(silence // 60)
        return warning(
            "startup_hang",
            f"The engine has said nothing for {minutes} minutes ({silence:.0f} s). Phase: {self.phase}. "
            f"Last line: {self.last_line}",
            path="engine",
            expected=f"<= {budget:.0f} s",
            actual=round(silence),
            fix=fix,
        )


def _foreign(probe: Probe, served_model: str, port: Optional[int]) -> Finding:
    return error(
        "port_in_use",
        f"Another server answers on port {port}: it serves '{probe.model}', not '{served_model}'.",
        path="--port",
        expected=served_model,
        actual=port if port is not None else probe.model,
        fix="End that server, or give another port.",
    )


def _told(name: str, text: str) -> Any:
    if name == "aux_layers":
        return [int(layer) for layer in re.findall(r"\d{1,9}", text)]
    if name == "own_head":
        return True
    return text.lower() if name == "method" else int(text.replace(",", ""))


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdigit() else value


_SIGNALS = {
    7: ("exit_sigbus", "SIGBUS (look at /dev/shm and the mount of the weights)"),
    9: ("engine_failed", "SIGKILL, as from the kernel when memory is full"),
    15: ("engine_failed", "SIGTERM"),
}


def ending(exit_code: Optional[int]) -> Tuple[str, str]:
    """A code and a sentence for how a server ended. An exit above 128 is a signal too: a shell's way to pass one on."""
    if exit_code is None:
        return "engine_failed", ""
    number = -exit_code if exit_code < 0 else exit_code - 128 if exit_code > 128 else 0
    if number == 0:
        return "engine_failed", f"It ended with exit code {exit_code}. "
    code, name = _SIGNALS.get(number, ("engine_failed", f"signal {number}"))
    return code, f"It ended with {name}. "
