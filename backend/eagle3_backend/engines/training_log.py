"""Reads the log of a trainer, ours or another's: progress bars, losses, known failures, and silence."""

from __future__ import annotations

import math
import re
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from eagle3_backend.engines.log_lines import MAX_SEARCHED, LineFed
from eagle3_backend.engines.log_rules import CAUSES, Cause
from eagle3_backend.engines.server_log import MAX_TEXT, Diagnosis, split_prefix
from eagle3_backend.findings import Finding, error, warning

QUIET_SECONDS = 600.0
"""Silence from which a job counts as stalled, seconds; slow steps ask for more."""
QUIET_STEPS = 5.0
"""The same in steps of the speed that the last bar showed."""
ZERO_STEPS = 10
"""Losses of exactly zero in a row that are no chance."""

_BAR = re.compile(r"^(?P<name>[^|%]*?):?\s*\d+%\|.*\|\s*(?P<done>\d+)/(?P<total>\d+) \[")
_SPEED = re.compile(r"(\d{1,9}(?:\.\d+)?)s/it")
_STEP = re.compile(r"['\"]?(?:global_)?step['\"]?\s*[:= ]\s*(\d+)", re.IGNORECASE)
_LOSS = re.compile(
    r"(?<![\w.])['\"]?(?:train[_/])?loss['\"]?\s*[:= ]\s*'?([-+]?(?:nan|inf(?:inity)?|[\d.]+(?:e[-+]?\d+)?))", re.I
)
_EXCEPTION = re.compile(r"^(?:\[rank\d+\]:\s*)?((?:\w+\.)*\w*(?:Error|Exception)(?:: .*)?)$")


class TrainingLog(LineFed):
    """Follows the log of one training. Memory is bounded: the last values and the first failure are all it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self._facts: Dict[str, Any] = {}
        self._cause: Optional[Tuple[Cause, str]] = None
        self._exception = ""
        self._step = 0
        self._zeros = 0
        self._first_zero = 0
        self._losses = 0
        self._seconds_a_step = 0.0
        self.phase = "start"
        self.last_line = ""

    def feed(self, line: str) -> None:
        """Take one line, or one state of a progress bar, without its end."""
        text = line.strip()[:MAX_SEARCHED]
        self.last_line = text[:MAX_TEXT]
        bar = _BAR.match(text)
        step = _STEP.search(text)
        if bar:
            self.phase = bar.group("name").strip() or self.phase
            self._facts.update(done=int(bar.group("done")), total=int(bar.group("total")))
            speed = _SPEED.search(text)
            self._seconds_a_step = float(speed.group(1)) if speed else 0.0
        if step or bar:
            self._step = int(step.group(1) if step else bar.group("done"))  # type: ignore[union-attr]
        loss = _LOSS.search(text)
        if loss:
            self._take_loss(float(loss.group(1)))
        self._look_for_cause(text)

    def _take_loss(self, value: float) -> None:
        self._losses += 1
        self._zeros = self._zeros + 1 if value == 0 else 0
        self._first_zero = self._step if self._zeros == 1 else self._first_zero
        if math.isfinite(value):
            if "first_bad_step" not in self._facts:
                self._facts.update(last_good_step=self._step, last_good_loss=value)
        else:
            self._facts.setdefault("first_bad_step", self._step)

    def _look_for_cause(self, text: str) -> None:
        level, said = split_prefix(text)
        exception = _EXCEPTION.match(said)
        if exception:
            self._exception = self._exception or exception.group(1)[:MAX_TEXT]
        if self._cause is not None or level in ("DEBUG", "INFO", "WARNING"):
            return
        for cause in CAUSES:
            told = exception is not None or level in ("ERROR", "CRITICAL") or cause.bare
            if told and (not cause.kinds or "train" in cause.kinds) and cause.pattern.search(said):
                self._cause = (cause, said[:MAX_TEXT])
                return

    def diagnose(
        self,
        exit_code: Optional[int] = None,
        silence: Optional[float] = None,
        unwritten: Optional[float] = None,
        gpus: Sequence[float] = (),
    ) -> Diagnosis:
        """The verdict so far. ``silence`` is seconds since the last output, ``unwritten`` since the last checkpoint
        file, ``gpus`` utilisation in percent. A full bar is no end: only ``exit_code`` 0 is."""
        findings = [*self._losses_findings()]
        facts = dict(self._facts)
        state = "running"
        if self._cause is not None or exit_code or (self._exception and self.last_line == self._exception):
            state = "failed"
            findings.append(self._failure(exit_code))
        quiet = min(silence, unwritten if unwritten is not None else silence) if silence is not None else 0.0
        if state == "running" and quiet > max(QUIET_SECONDS, QUIET_STEPS * self._seconds_a_step):
            state = "stalled"
            facts["minutes"] = int(quiet // 60)
            findings.append(self._stall(facts, gpus))
        return Diagnosis(state, self.phase, False, tuple(findings), facts)

    def _losses_findings(self) -> List[Finding]:
        bad = self._facts.get("first_bad_step")
        if bad is not None:
            good = self._facts.get("last_good_step")
            before = "" if good is None else f" The last good one is step {good}, {self._facts['last_good_loss']:g}."
            return [
                error(
                    "loss_nan",
                    f"The loss is not a number from step {bad} on.{before}",
                    path="loss",
                    actual=bad,
                    fix="Stop; resume from a checkpoint before that step with a smaller learning rate, and look at the "
                    "batch of that step for infinite states.",
                )
            ]
        # A bar shows few of its steps: the loss was zero whenever it was looked at in between.
        steps = max(self._zeros, self._step - self._first_zero + 1)
        if self._zeros > 1 and self._zeros == self._losses and steps >= ZERO_STEPS:
            return [
                error(
                    "loss_zero_constant",
                    f"The loss is exactly zero over all {steps} steps: no token is supervised.",
                    path="loss",
                    actual=0,
                    fix="Check the loss masks of the training rows.",
                )
            ]
        return []

    def _failure(self, exit_code: Optional[int]) -> Finding:
        if self._cause is not None:
            cause, line = self._cause
            return error(cause.code, f"{cause.message} {line}", path="train", actual=line, fix=cause.fix[""])
        said = self._exception or self.last_line
        how = "" if exit_code is None else f" It ended with exit code {exit_code}."
        return error("run_failed", f"The training failed.{how} {said}", path="train", actual=said)

    def _stall(self, facts: Mapping[str, Any], gpus: Sequence[float]) -> Finding:
        busy = bool(gpus) and min(gpus) >= 90
        bar = ""
        if facts.get("total") and facts["done"] == facts["total"]:
            bar = f" The bar '{self.phase}' is full, which is no end."
        doing = " All GPUs are busy: ranks wait for each other in a collective." if busy else ""
        return warning(
            "no_progress",
            f"Nothing was printed or written for {facts['minutes']} minutes.{bar}{doing} Last line: {self.last_line}",
            path="train",
            actual=facts["minutes"],
            fix="Look at the stacks of all ranks (py-spy dump); one of them did not reach the same collective.",
        )
