from __future__ import annotations

import os
from pathlib import Path

import pytest

from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.findings import FindingError


def refusal(folder: LocalFolder, name: str) -> str:
    with pytest.raises(FindingError) as caught:
        folder.read(name, 0, 1)
    (finding,) = caught.value.findings
    assert finding.path == os.path.join(folder.path, name)
    return finding.code


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a").write_bytes(b"0123456789")
    return folder


def test_a_range_ends_where_the_file_does(model) -> None:
    folder = LocalFolder(model)
    assert (folder.size("a"), folder.read("a", 4, 3), folder.read("a", 8, 10)) == (10, b"456", b"89")


def test_a_link_that_stays_inside_is_followed(model) -> None:
    (model / "b").symlink_to("a")
    (model / "c").symlink_to(model / "b")
    assert LocalFolder(model).read("c", 0, 2) == b"01"


@pytest.mark.parametrize("target", ["../secret", "../model-2/weights", "/etc/hostname"])
def test_a_link_that_leads_outside_is_not_followed(model, target) -> None:
    (model.parent / "secret").write_text("secret")
    (model.parent / "model-2").mkdir()
    (model.parent / "model-2" / "weights").write_text("secret")
    (model / "b").symlink_to(target)
    (model / "c").symlink_to("b")
    assert {refusal(LocalFolder(model), name) for name in ("b", "c")} == {"file_outside"}


def test_a_link_that_leads_outside_through_a_linked_directory_is_not_followed(model) -> None:
    (model.parent / "secret").write_text("secret")
    (model / "up").symlink_to("..")
    (model / "b").symlink_to("up/secret")
    assert refusal(LocalFolder(model), "b") == "file_outside"


@pytest.mark.parametrize("name", ["../secret", "/etc/hostname", "a/../../secret"])
def test_a_name_that_leads_outside_is_refused(model, name) -> None:
    (model.parent / "secret").write_text("secret")
    with pytest.raises(FindingError, match="file_outside"):
        LocalFolder(model).read(name, 0, 1)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository of the hub's cache."""
    root = tmp_path / "models--org--drafter"
    (root / "blobs").mkdir(parents=True)
    (root / "blobs" / "abc").write_bytes(b"weights")
    snapshot = root / "snapshots" / "1234"
    (snapshot / "flat").mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to("../../blobs/abc")
    (snapshot / "flat" / "model.safetensors").symlink_to("../../../blobs/abc")
    return root


@pytest.mark.parametrize("inner", ["", "flat"])
def test_a_snapshot_of_the_hub_cache_reads_the_blobs_of_its_repository(repository, inner) -> None:
    assert LocalFolder(repository / "snapshots" / "1234" / inner).read("model.safetensors", 0, 7) == b"weights"


def test_a_snapshot_may_be_reached_by_a_link_and_its_blobs_lie_on_another_disk(repository, tmp_path) -> None:
    (repository / "blobs").rename(tmp_path / "disk")
    (repository / "blobs").symlink_to(tmp_path / "disk")
    (tmp_path / "drafter").symlink_to(repository / "snapshots" / "1234")
    assert LocalFolder(tmp_path / "drafter").read("model.safetensors", 0, 7) == b"weights"


def test_a_snapshot_reads_nothing_else_of_its_cache(repository, tmp_path) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "models--other" / "blobs").mkdir(parents=True)
    (tmp_path / "models--other" / "blobs" / "abc").write_text("secret")
    snapshot = repository / "snapshots" / "1234"
    (snapshot / "a").symlink_to("../../../token")
    (snapshot / "b").symlink_to("../../../models--other/blobs/abc")
    assert {refusal(LocalFolder(snapshot), name) for name in "ab"} == {"file_outside"}


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_regular_file_is_refused_without_waiting(model, make) -> None:
    make(model / "b")
    assert refusal(LocalFolder(model), "b") == "file_irregular"


def test_a_link_to_itself_is_an_error_of_the_system(model) -> None:
    (model / "b").symlink_to("b")
    with pytest.raises(OSError):
        LocalFolder(model).read("b", 0, 1)
