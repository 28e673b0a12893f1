"""From exit status to outcome."""

from __future__ import annotations

import json
import signal

import pytest

from eagle3_backend.agent.ending import RESERVED, Status, judge, reserve, stage_findings, write_exit
from eagle3_backend.states import RunState

SERVICE = {"stage": "serve", "fingerprint": "f", "output": "/nowhere"}


@pytest.mark.parametrize(
    ("status", "state", "code"),
    [
        (Status(0, None), RunState.DONE, None),
        (Status(75, None), RunState.STOPPED, None),
        (Status(1, None), RunState.FAILED, None),
        (Status(None, signal.SIGKILL), RunState.FAILED, "killed_by_kernel"),
        (Status(137, None), RunState.FAILED, "killed_by_kernel"),
        (Status(None, signal.SIGBUS), RunState.FAILED, "exit_sigbus"),
        (Status(135, None), RunState.FAILED, "exit_sigbus"),
        (Status(1, None, oom_kills=1), RunState.FAILED, "killed_by_kernel"),
        (Status(1, None, asked={"by": "x"}), RunState.STOPPED, None),
        (Status(None, signal.SIGKILL, asked={"by": "x"}, rung=3), RunState.STOPPED, None),
    ],
)
def test_each_end_has_its_state_and_code(status, state, code):
    judged, _, findings = judge(SERVICE, status)
    assert judged is state
    assert [finding.code for finding in findings] == ([code] if code else [])


def test_the_kernel_s_own_count_is_named_as_proof():
    _, _, (finding,) = judge(SERVICE, Status(None, signal.SIGKILL, oom_kills=2))
    assert "counted 2 out-of-memory" in finding.message


def test_the_manifest_has_to_be_that_of_this_fingerprint(tmp_path):
    spec = {"stage": "train", "fingerprint": "f", "output": str(tmp_path)}
    manifest = {"kind": "checkpoint", "fingerprint": "another", "files": []}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert judge(spec, Status(0, None))[0] is RunState.FAILED
    (tmp_path / "manifest.json").write_text(json.dumps({**manifest, "fingerprint": "f"}))
    assert judge(spec, Status(0, None))[0] is RunState.DONE


def test_an_outcome_takes_the_reserved_room_and_appears_whole(tmp_path):
    reserve(tmp_path)
    assert (tmp_path / "exit.reserved").stat().st_blocks * 512 >= RESERVED
    write_exit(tmp_path, {"state": "done"})
    assert [path.name for path in tmp_path.iterdir()] == ["exit.json"]
    assert json.loads((tmp_path / "exit.json").read_text()) == {"state": "done"}


def test_findings_beyond_the_reserved_room_are_left_out(tmp_path):
    write_exit(tmp_path, {"state": "failed", "findings": ["x" * RESERVED]})
    assert json.loads((tmp_path / "exit.json").read_text()) == {"state": "failed", "findings": []}


def test_only_errors_of_the_stage_count_as_its_findings(tmp_path):
    finding = {"kind": "finding", "code": "a", "message": "m", "severity": "error"}
    lines = [
        {"w": "stage", **finding},
        {"w": "supervisor", **finding},
        {"w": "stage", **finding, "severity": "warning"},
        {"w": "stage", "kind": "note", "text": "x"},
    ]
    text = "\n".join(json.dumps(line) for line in lines) + '\n{"w": "stage", "kind": "find'
    (tmp_path / "journal.jsonl").write_text(text)
    assert stage_findings(tmp_path / "journal.jsonl") == [{"code": "a", "message": "m", "severity": "error"}]
