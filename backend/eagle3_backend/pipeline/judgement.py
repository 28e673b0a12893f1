"""What a check of files that training reads or leaves behind comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Tuple

from eagle3_backend.findings import Finding


@dataclass(frozen=True)
class Judgement:
    """Verdicts, and figures by name: counts, ids, texts or paths."""

    findings: Tuple[Finding, ...] = ()
    values: Dict[str, Any] = field(default_factory=dict)
