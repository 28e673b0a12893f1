"""A directory appears whole or not at all, and what a killed process has left is not in the way."""

from __future__ import annotations

import fcntl
import os

import pytest

from eagle3_backend.drafter.staging import staged
from eagle3_backend.findings import FindingError


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_it_appears_when_the_body_ends_well(tmp_path):
    with staged(tmp_path / "deep" / "out") as stage:
        (stage / "file").write_text("whole")
        assert not (tmp_path / "deep" / "out").exists()
    assert (tmp_path / "deep" / "out" / "file").read_text() == "whole"
    assert names(tmp_path / "deep") == ["out"]


@pytest.mark.parametrize("problem", [KeyboardInterrupt, OSError, FindingError])
def test_nothing_is_left_of_a_body_that_fails(tmp_path, problem):
    with pytest.raises(problem), staged(tmp_path / "out") as stage:
        (stage / "file").write_text("half")
        raise problem
    assert names(tmp_path) == []


def test_what_a_killed_process_has_left_is_removed(tmp_path):
    left = tmp_path / ".out.4194304.part"
    left.mkdir()
    (left / "file").write_text("half")
    (tmp_path / ".other.4194304.part").mkdir()
    with staged(tmp_path / "out"):
        pass
    assert names(tmp_path) == [".other.4194304.part", "out"]


def test_what_another_process_writes_is_left_alone(tmp_path):
    running = tmp_path / ".out.1.part"
    running.mkdir()
    handle = os.open(running, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with staged(tmp_path / "out"):
        pass
    os.close(handle)
    assert names(tmp_path) == [".out.1.part", "out"]


def test_a_pipe_or_a_link_of_such_a_name_is_left_alone(tmp_path):
    (tmp_path / "kept").mkdir()
    os.mkfifo(tmp_path / ".out.1.part")
    (tmp_path / ".out.2.part").symlink_to(tmp_path / "kept")
    with staged(tmp_path / "out"):
        pass
    assert names(tmp_path) == [".out.1.part", ".out.2.part", "kept", "out"]


@pytest.mark.parametrize("name", ["out", "[o]?*"])
def test_the_second_of_two_at_once_is_refused(tmp_path, name):
    with pytest.raises(FindingError) as problem, staged(tmp_path / name):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("of the first")
    assert problem.value.findings[0].code == "destination_exists"
    assert names(tmp_path) == [name]
