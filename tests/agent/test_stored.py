"""What lies in a workspace, and taking an artifact away: only ours, only inside, never under a run."""

from __future__ import annotations

import json
import os

import pytest

from eagle3_backend.agent import stored
from eagle3_backend.agent.workspace import Workspace

WAIT = 'say("state", state="ready")\nwhile not (here / "cancel").exists(): time.sleep(0.02)\nsys.exit(75)'


@pytest.fixture
def artifact(workspace):
    """Make an artifact of a stage, as a finished run leaves it."""

    def make(name="f1", stage="extract", fingerprint="", **fields):
        path = workspace / "campaign" / stage / name
        path.mkdir(parents=True)
        (path / "shard").write_bytes(b"x" * 1000)
        manifest = {"kind": "k", "stage": stage, "fingerprint": fingerprint or name.partition(".")[0],
                    "files": [{"path": "shard", "bytes": 1000}], "inputs": {}, "summary": {}, **fields}  # fmt: skip
        (path / "manifest.json").write_text(json.dumps(manifest))
        return path

    return make


def _codes(gateway, refused, path):
    with pytest.raises(refused) as problem:
        gateway.request("delete", path=str(path))
    return problem.value.code


def test_what_lies_there_is_listed_with_its_bytes(gateway, artifact, workspace):
    artifact(made_by={"run": "campaign-extract-f1", "attempt": 2}, inputs={"target": "t"})
    old = artifact("f1.old-20260101T000000-1")
    (artifact("f2") / "shard").unlink()
    (workspace / "campaign" / "extract" / "link").symlink_to(old)
    told = gateway.request("stored", campaign="campaign")["artifacts"]
    found = {entry["name"]: (entry["fingerprint"], entry["aside"], entry["whole"]) for entry in told}
    assert found == {"f1": ("f1", False, True), old.name: ("f1", True, True), "f2": ("f2", False, False)}
    first = next(entry for entry in told if entry["name"] == "f1")
    assert first["bytes"] > 1000 and (first["run"], first["attempt"]) == ("campaign-extract-f1", 2)
    assert first["inputs"] == {"target": "t"}
    assert gateway.request("stored", campaign="none")["artifacts"] == []


def test_an_artifact_is_deleted_and_a_repeated_request_deletes_nothing(gateway, artifact):
    path, other = artifact(), artifact("f1.old-20260101T000000-1")
    answer = gateway.request("delete", path=str(path))
    assert answer["deleted"] and answer["bytes"] > 1000 and answer["path"] == str(path)
    assert os.listdir(path.parent) == [other.name]
    assert gateway.request("delete", path=str(path)) == {"path": str(path), "deleted": False, "bytes": 0}
    assert gateway.request("delete", path=str(other))["deleted"] and os.listdir(path.parent) == []


def test_what_a_cut_deletion_left_is_listed_and_removed_by_the_next(gateway, artifact):
    path = artifact()
    remains = path.rename(path.with_name("f1.deleted"))
    (remains / "manifest.json").unlink()
    told = gateway.request("stored", campaign="campaign")["artifacts"]
    assert [(entry["name"], entry["fingerprint"], entry["whole"]) for entry in told] == [("f1.deleted", "f1", False)]
    assert gateway.request("delete", path=str(path))["deleted"] and os.listdir(path.parent) == []
    remains.mkdir()
    assert gateway.request("delete", path=str(remains))["deleted"] and os.listdir(path.parent) == []


def test_a_deletion_that_is_cut_leaves_nothing_that_looks_whole(artifact, workspace, monkeypatch):
    path = artifact()

    def cut(directory):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(stored.shutil, "rmtree", cut)
    with pytest.raises(OSError, match="Input/output"):
        stored.delete(Workspace(workspace), str(path), [])
    assert os.listdir(path.parent) == ["f1.deleted"] and os.listdir(path.parent / "f1.deleted") == ["shard"]
    monkeypatch.undo()
    assert stored.delete(Workspace(workspace), str(path), [])["deleted"] and os.listdir(path.parent) == []


@pytest.mark.parametrize(
    "place",
    ["campaign", "campaign/extract", "campaign/extract/f1/shard", "campaign/nothing/f1", ".eagle3/runs/f1", "envs/x",
     "campaign/extract/../extract/f1", "../elsewhere/extract/f1", "models/serve/f1"],
)  # fmt: skip
def test_nothing_but_an_artifact_of_the_workspace_is_deleted(gateway, artifact, workspace, refused, place):
    kept = artifact()
    assert _codes(gateway, refused, workspace / place) == "artifact_path_invalid"
    assert _codes(gateway, refused, "/") == "artifact_path_invalid"
    assert (kept / "shard").exists()


def test_links_are_not_followed(gateway, artifact, workspace, tmp_path, refused):
    outside = tmp_path / "outside"
    (outside / "f1").mkdir(parents=True)
    (outside / "f1" / "keep").touch()
    path = artifact()
    (path.parent / "f2").symlink_to(outside / "f1")
    (workspace / "other").mkdir()
    (workspace / "other" / "extract").symlink_to(outside)
    (path / "inside").symlink_to(outside / "f1")
    assert _codes(gateway, refused, path.parent / "f2") == "artifact_is_link"
    assert _codes(gateway, refused, workspace / "other" / "extract" / "f1") == "artifact_is_link"
    assert gateway.request("delete", path=str(path))["deleted"]
    assert (outside / "f1" / "keep").exists() and (path.parent / "f2").is_symlink()


def test_a_folder_that_somebody_put_there_is_not_ours_to_delete(gateway, workspace, refused):
    path = workspace / "campaign" / "export" / "mine"
    path.mkdir(parents=True)
    (path / "model.safetensors").touch()
    assert _codes(gateway, refused, path) == "artifact_unknown" and (path / "model.safetensors").exists()


@pytest.mark.parametrize("use", ["output", "inputs", "parameters", "then"])
def test_an_artifact_of_an_active_run_is_kept_until_it_has_ended(gateway, artifact, stages, refused, use):
    path = artifact()
    free = artifact("f2")
    parts = {
        "output": {"output": str(path)},
        "inputs": {"inputs": {"store": str(path), "files": ["/prompts.jsonl"]}},
        "parameters": {"parameters": {"against": ["ngram", "campaign/extract/f1/flat"], "save_seconds": 5.0}},
        "then": {"then": [{"run": "campaign-train-x", "inputs": {"store": str(path)}}]},
    }
    spec = stages.spec("a", WAIT, **parts[use])
    gateway.start(spec)
    assert _codes(gateway, refused, path) == "artifact_in_use" and (path / "manifest.json").exists()
    assert gateway.request("delete", path=str(free))["deleted"]
    gateway.request("stop", run=spec["run"], attempt=1)
    gateway.wait_for(spec["run"], "stopped")
    assert gateway.request("delete", path=str(path))["deleted"] and not path.exists()


def test_a_directory_that_a_run_adopted_is_never_deleted(gateway, artifact, stages, refused):
    path = artifact()
    spec = stages.spec("a", "sys.exit(3)", parameters={"adopt": str(path / "flat"), "save_seconds": 5.0})
    gateway.start(spec)
    gateway.wait_for(spec["run"], "failed")
    assert _codes(gateway, refused, path) == "artifact_adopted" and path.exists()
