"""Runs acceptance cases: `python tests/cases/runner.py FOLDER...` prints one JSON object for each folder.

A case names a ``check`` and what it is ``given``; a check here only translates that into calls of the product's public
functions. The product knows nothing of cases.
"""

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eagle3_backend.findings import Finding, Severity, worst

CHECKS = {
    "checkpoint": "drafter_check",
    "config_diff": "config_diff_check",
    "config_pair": "drafter_check",
    "convert": "convert_check",
    "dataset": "dataset_check",
    "hidden_states": "training_check",
    "host_plan": "host_plan_check",
    "log_render": "log_render_check",
    "log_diagnosis": "log_diagnosis_check",
    "log_metrics": "log_metrics_check",
    "run_dir": "training_check",
    "serve_plan": "serve_plan_check",
    "ssh": "ssh_check",
}
"""The module beside this file that answers each check: ``run(folder, given) -> Answer``."""


@dataclass(frozen=True)
class Answer:
    """What the product said of a case: its findings, and measured or computed values by dotted name."""

    findings: tuple[Finding, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)


def severity_of(findings: Iterable[Finding]) -> str:
    """`error`, `warning`, or `ok` when nothing is above info."""
    found = worst(findings)
    return "ok" if found in (None, Severity.INFO) else found.value


def run(folder: Path) -> dict[str, Any]:
    """The answer to the case in ``folder``, as printed."""
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    if case["check"] not in CHECKS:
        return {"id": case["id"], "unsupported": case["check"]}
    answer = importlib.import_module(CHECKS[case["check"]]).run(folder, case["given"])
    keys = ("code", "severity", "path", "expected", "actual")
    codes = [
        # The text that is shown: what is wrong, and the next step.
        {**{key: finding.to_json()[key] for key in keys}, "message": f"{finding.message} {finding.fix}".rstrip()}
        for finding in answer.findings
    ]
    return {
        "id": case["id"],
        "severity": severity_of(answer.findings),
        "codes": codes,
        "values": answer.values,
    }


def main(folders: list[str]) -> int:
    failed = False
    for folder in folders:
        try:
            result = run(Path(folder))
        except Exception:
            failed = True
            result = {"id": Path(folder).name, "failed": traceback.format_exc()}
        print(json.dumps(result, ensure_ascii=False), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    # Checks import `runner` for `Answer`: it has to be this very module.
    sys.modules["runner"] = sys.modules["__main__"]
    sys.exit(main(sys.argv[1:]))
