"""The program that runs a stage: what becomes of an exception."""

from __future__ import annotations

import errno
import sys

import pytest

from eagle3_backend.stages import __main__ as entry
from eagle3_backend.stages import prompts
from eagle3_backend.stages.context import StageContext
from eagle3_backend.states import EXIT_FINDING


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (KeyError("num_layers"), "stage_fault"),
        (OSError(errno.ENOSPC, "No space left on device", "x"), "disk_space_insufficient"),
    ],
)
def test_an_exception_that_a_stage_did_not_expect_is_a_finding_with_its_traceback_in_the_log(
    attempt, monkeypatch, capsys, problem, code
):
    def broken(context):
        raise problem

    context = attempt("prompts")
    monkeypatch.setattr(prompts, "run", broken)
    monkeypatch.setattr(StageContext, "listen_for_stop", lambda self: None)
    monkeypatch.setattr(sys, "argv", ["stages", str(context.run_directory)])
    assert entry.main() == EXIT_FINDING
    assert context.codes() == [code]
    assert "Traceback" in capsys.readouterr().err
