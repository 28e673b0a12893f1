"""The acceptance cases: what each expects of findings and values, against what the product says.

The folder comes from EAGLE3_CASES (default ``../shared/cases`` beside the repository).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CASES = Path(os.environ.get("EAGLE3_CASES") or HERE.parents[2] / "shared" / "cases")
FOLDERS = sorted(path.parent for path in CASES.glob("*/case.json"))


@cache
def answers() -> dict[str, dict[str, Any]]:
    """The runner's answer to every case by id; one process answers all."""
    done = subprocess.run(
        [sys.executable, str(HERE / "runner.py"), *map(str, FOLDERS)], capture_output=True, text=True, timeout=600
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(FOLDERS), done.stderr
    return {str(folder): line for folder, line in zip(FOLDERS, lines, strict=True)}


def test_the_cases_are_there():
    if not FOLDERS:
        if os.environ.get("CI"):
            pytest.fail(f"the acceptance cases are required in CI and are not at {CASES}")
        pytest.skip(f"no acceptance cases at {CASES}: set EAGLE3_CASES")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_case(folder):
    case = json.loads((folder / "case.json").read_text(encoding="utf-8"))
    answer = answers()[str(folder)]
    if "unsupported" in answer:
        pytest.skip(f"check '{answer['unsupported']}' is not built yet")
    assert "failed" not in answer, answer["failed"]
    differences = compare(case["expect"], answer)
    assert not differences, "\n".join(differences)


def compare(expect: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    """What of ``expect`` the answer does not hold, in words."""
    found = []
    if answer["severity"] != expect["severity"]:
        found.append(f"severity is {answer['severity']}, expected {expect['severity']}: {answer['codes']}")
    for wanted in expect.get("codes", ()):
        if not any(_holds(wanted, code) for code in answer["codes"]):
            found.append(f"no finding is {wanted}: {answer['codes']}")
    unwanted = set(expect.get("not_codes", ())) & {code["code"] for code in answer["codes"]}
    if unwanted:
        found.append(f"findings that must not be there: {sorted(unwanted)}")
    for name, value in expect.get("values", {}).items():
        if name == "output":
            # A written config: fields that a case does not name are free.
            problems = [_value(path, wanted, answer["values"][name]) for path, wanted in value.items()]
        else:
            problems = [_value(name, value, answer["values"])]
        found += [problem for problem in problems if problem]
    return found


def _holds(wanted: dict[str, Any], code: dict[str, Any]) -> bool:
    equal = all(code[key] == wanted[key] for key in ("code", "severity", "path", "expected", "actual") if key in wanted)
    shown = code["message"].lower()
    return equal and all(word.lower() in shown for word in wanted.get("message_mentions", ()))


def _value(name: str, wanted: Any, values: dict[str, Any]) -> str | None:
    bare, bound = (name[:-3], name[-2:]) if name.endswith(("_le", "_ge")) else (name, "")
    actual = values.get(name, values.get(bare) if bound else None)
    if actual is None and wanted is not None:
        return f"no value {name}"
    if bound == "le":
        right = actual <= wanted
    elif bound == "ge":
        right = actual >= wanted
    else:
        right = _equals(actual, wanted)
    return None if right else f"{name} is {actual!r}, expected {wanted!r}"


def _equals(actual: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and "approx" in wanted:
        return abs(actual - wanted["approx"]) <= wanted["tol"]
    if isinstance(wanted, list) and isinstance(actual, list):
        return len(actual) == len(wanted) and all(map(_equals, actual, wanted))
    return actual == wanted


ANSWER = {
    "severity": "error",
    "codes": [{"code": "a", "severity": "error", "path": "p", "expected": 1, "actual": 2, "message": "Two, not ONE"}],
    "values": {"n": 5, "x": 1.04, "l": [0.5, 0.33], "output": {"a.b": 1, "a.c[0]": False}},
}


class TestComparison:
    """The comparison itself: it can fail."""

    @pytest.mark.parametrize(
        "expect",
        [
            {"codes": [{"code": "a", "path": "p", "expected": 1, "actual": 2, "message_mentions": ["one"]}]},
            {"not_codes": ["b"]},
            {"values": {"n_le": 5, "n_ge": 5, "x": {"approx": 1.0, "tol": 0.05}}},
            {"values": {"output": {"a.c[0]": False}}},
            {"values": {"l": [0.5, {"approx": 0.3, "tol": 0.05}]}},
        ],
    )
    def test_holds(self, expect):
        assert compare({"severity": "error", **expect}, ANSWER) == []

    @pytest.mark.parametrize(
        "expect",
        [
            {"severity": "ok"},
            {"codes": [{"code": "b"}]},
            {"codes": [{"code": "a", "path": "q"}]},
            {"codes": [{"code": "a", "message_mentions": ["three"]}]},
            {"not_codes": ["a"]},
            {"values": {"n_le": 4}},
            {"values": {"n_ge": 6}},
            {"values": {"x": {"approx": 1.0, "tol": 0.01}}},
            {"values": {"n": 6}},
            {"values": {"m": 6}},
            {"values": {"output": {"a.b": 1, "a.c[0]": None}}},
            {"values": {"l": [0.5]}},
            {"values": {"l": [0.5, {"approx": 0.3, "tol": 0.01}]}},
        ],
    )
    def test_fails(self, expect):
        assert len(compare({"severity": "error", **expect}, ANSWER)) == 1
