from __future__ import annotations

from eagle3_backend.pipeline.artifacts import read_manifest, write_manifest

SPEC = {
    "fingerprint": "f",
    "stage": "vocab",
    "stage_version": 1,
    "run": "demo-vocab-f",
    "payload": "p",
    "environment": "train",
}


def make(directory):
    (directory / "deep").mkdir(parents=True)
    (directory / "deep" / "a.bin").write_bytes(b"12345")
    return write_manifest(directory, kind="vocab", spec=SPEC, attempt=1, summary={"coverage": 0.9})


def test_a_whole_artifact_reads_back_what_was_written(tmp_path):
    written = make(tmp_path / "v")
    assert read_manifest(tmp_path / "v") == written
    assert written["files"][0]["path"] == "deep/a.bin"


def test_a_missing_or_shortened_file_makes_the_artifact_not_whole(tmp_path):
    make(tmp_path / "v")
    (tmp_path / "v" / "deep" / "a.bin").write_bytes(b"123")
    assert read_manifest(tmp_path / "v") is None
    (tmp_path / "v" / "deep" / "a.bin").unlink()
    assert read_manifest(tmp_path / "v") is None


def test_a_torn_or_absent_manifest_is_no_artifact(tmp_path):
    assert read_manifest(tmp_path) is None
    make(tmp_path / "v")
    text = (tmp_path / "v" / "manifest.json").read_text()
    for end in (0, 1, len(text) // 2):
        (tmp_path / "v" / "manifest.json").write_text(text[:end])
        assert read_manifest(tmp_path / "v") is None
