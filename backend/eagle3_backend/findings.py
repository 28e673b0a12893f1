"""The one shape of every verdict: a code, where it is, what was found, what was wanted, and the next step."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Dict, Iterable, Mapping, Optional


class Severity(str, Enum):
    """How far a finding reaches: ``error`` stops an act, ``warning`` and ``info`` never do."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        return ("info", "warning", "error").index(self.value)


@dataclass(frozen=True)
class Finding:
    """One verdict.

    ``path`` names the thing: a dotted config field, a tensor, a file, a flag or a host. ``message`` says what is wrong
    and why it matters; ``fix`` is the next step. ``expected`` and ``actual`` are plain JSON values.
    """

    code: str
    severity: Severity
    message: str
    path: str = ""
    expected: Any = None
    actual: Any = None
    fix: str = ""

    def to_json(self) -> Dict[str, Any]:
        return {**asdict(self), "severity": self.severity.value}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        """Rebuild a finding from `to_json`; unknown keys of a newer sender are ignored."""
        known = {name: data[name] for name in cls.__dataclass_fields__ if name in data}
        known["severity"] = Severity(known["severity"])
        return cls(**known)


def shown(value: Any) -> str:
    """A value of a finding for people: a text as it is, anything else as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


class FindingError(Exception):
    """Carries the findings that ended an act to whoever shows them."""

    def __init__(self, *findings: Finding) -> None:
        super().__init__("; ".join(f"{finding.code}: {finding.message}" for finding in findings))
        self.findings = findings


def error(code: str, message: str, **rest: Any) -> Finding:
    return Finding(code, Severity.ERROR, message, **rest)


def warning(code: str, message: str, **rest: Any) -> Finding:
    return Finding(code, Severity.WARNING, message, **rest)


def info(code: str, message: str, **rest: Any) -> Finding:
    return Finding(code, Severity.INFO, message, **rest)


def worst(findings: Iterable[Finding]) -> Optional[Severity]:
    """The highest severity among ``findings``, or None when there are none."""
    return max((finding.severity for finding in findings), key=lambda severity: severity.rank, default=None)
