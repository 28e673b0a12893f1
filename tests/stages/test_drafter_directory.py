from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.stages.drafter_directory import check_drafter

HEADER = b'{"__metadata__": {"format": "pt"}}'


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    directory = tmp_path / "flat"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "model.safetensors").write_bytes(len(HEADER).to_bytes(8, "little") + HEADER)
    return directory


def code_of(directory: Path, depth: int = 3) -> str:
    with pytest.raises(FindingError) as caught:
        check_drafter(directory, depth)
    return caught.value.findings[0].code


def test_a_whole_drafter_passes(drafter: Path) -> None:
    check_drafter(drafter, 3)


def test_a_layout_that_was_not_exported_is_missing(drafter: Path) -> None:
    assert code_of(drafter.with_name("nested")) == "drafter_missing"


@pytest.mark.parametrize("config", ["", "{", "[1]"])
def test_a_config_that_is_no_object_is_unreadable(drafter: Path, config: str) -> None:
    (drafter / "config.json").write_text(config)
    assert code_of(drafter) == "drafter_unreadable"


def test_absent_weights_are_unreadable(drafter: Path) -> None:
    (drafter / "model.safetensors").unlink()
    assert code_of(drafter) == "drafter_unreadable"


def test_a_git_lfs_pointer_is_told_from_weights(drafter: Path) -> None:
    (drafter / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert code_of(drafter) == "lfs_pointer"


def test_weights_that_are_cut_off_are_told(drafter: Path) -> None:
    (drafter / "model.safetensors").write_bytes(HEADER[:4])
    assert code_of(drafter) == "shard_truncated"


def test_a_depth_below_one_is_refused(drafter: Path) -> None:
    assert code_of(drafter, depth=0) == "depth_invalid"
