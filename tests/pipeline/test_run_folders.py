from __future__ import annotations

import json

import pytest

from eagle3_backend.drafter.tensorfile import header_bytes
from eagle3_backend.pipeline.run_folders import judge_frequencies, judge_run


@pytest.fixture
def run(tmp_path):
    """Makes a checkpoint folder that is whole."""

    def make(number, **state):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(header_bytes({"w": ("float32", (2,))}, {}) + bytes(8))
        (folder / "optimizer_state_dict.pt").write_bytes(b"x")
        (folder / "training_state.json").write_text(json.dumps({"epoch": number, "local_step": 0, **state}))
        return folder

    make.directory = tmp_path
    return make


def settings(directory, **values):
    (directory / "train_config.json").write_text(json.dumps(values))


def codes(judged):
    return [finding.code for finding in judged.findings]


def test_numbers_are_ordered_as_numbers_and_links_are_left_out(run):
    for number in (9, 10, 8):
        run(number)
    (run.directory / "11").symlink_to(run.directory / "8")
    (run.directory / "checkpoint_best").symlink_to(run.directory / "8")
    values = judge_run(run.directory).values
    assert values["resume_from"] == str(run.directory / "10")
    assert [path.rpartition("/")[2] for path in values["order"]] == ["8", "9", "10"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "optimizer_state_dict.pt").unlink(),
        lambda folder: (folder / "optimizer_state_dict.pt").write_bytes(b""),
        lambda folder: (folder / "model.safetensors").write_bytes(b"abc"),
        lambda folder: (folder / "training_state.json").write_text('{"epoch": '),
        lambda folder: (folder / "training_state.json").write_text('{"epoch": "two"}'),
        lambda folder: (folder / "config.json").write_text("[]"),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_passed_over(run, spoil):
    run(0)
    spoil(run(1))
    judged = judge_run(run.directory)
    assert [(finding.code, finding.path) for finding in judged.findings] == [
        ("checkpoint_incomplete", str(run.directory / "1"))
    ]
    assert judged.values["resume_from"] == str(run.directory / "0")
    assert judged.values["skipped"] == [str(run.directory / "1")]


def test_without_a_whole_checkpoint_there_is_nothing_to_go_on_from(run):
    (run(0) / "config.json").unlink()
    assert judge_run(run.directory).values["resume_from"] is None


@pytest.mark.parametrize(("state", "saved"), [({}, 3), ({"local_step": 7}, 2)])
def test_an_epoch_under_way_is_not_saved_yet(run, state, saved):
    run(2, **state)
    log = "".join(f"Training epoch {number}/5 completed\n" for number in range(1, 4))
    judged = judge_run(run.directory, log)
    assert judged.values["newest_saved_epoch"] == saved
    assert codes(judged) == ([] if saved == 3 else ["last_epoch_not_saved"])


def test_a_position_ahead_of_the_steps_that_were_made_is_an_error(run):
    run(0, global_step=20)
    (run.directory / "metrics.jsonl").write_text('{"step": 1}\n{"step": 15}\n{"st')
    judged = judge_run(run.directory)
    assert [(finding.code, finding.expected, finding.actual) for finding in judged.findings] == [
        ("resume_skips_batches", 15, 20)
    ]


@pytest.mark.parametrize(("step", "found"), [(49, ["warmup_dominates"]), (50, [])])
@pytest.mark.parametrize("wanted", [{"warmup_steps": 50}, {"warmup_ratio": 0.05, "total_steps": 1000}])
def test_a_run_in_its_warm_up_proves_nothing(tmp_path, wanted, step, found):
    settings(tmp_path, **wanted)
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"step": step}) + "\n")
    judged = judge_run(tmp_path)
    assert codes(judged) == found
    assert judged.values["progress_in_warmup"] == pytest.approx(step / 50)


def test_few_samples_and_foreign_answers_are_told_with_what_they_led_to(tmp_path):
    settings(tmp_path, num_samples=5000, responses_regenerated=False)
    judged = judge_run(tmp_path, acceptance={"mean_acceptance_length": 1.6})
    assert codes(judged) == ["training_data_small", "responses_not_regenerated"]
    assert all("1.6" in finding.message for finding in judged.findings)


def test_enough_samples_of_the_targets_own_are_no_fault(tmp_path):
    settings(tmp_path, num_samples=50_000, responses_regenerated=True)
    assert codes(judge_run(tmp_path)) == []


COUNTED = {"path": "f.pt", "target": "a", "dataset_sha256": "1", "mtime": "2026-02-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("target", "dataset", "stale"),
    [
        ("a", {"sha256": "1", "mtime": "2026-01-01T00:00:00Z"}, False),
        ("b", {"sha256": "1", "mtime": "2026-01-01T00:00:00Z"}, True),
        ("a", {"sha256": "2", "mtime": "2026-01-01T00:00:00Z"}, True),
        ("a", {"sha256": "1", "mtime": "2026-03-01T00:00:00Z"}, True),
    ],
)
def test_frequencies_belong_to_one_target_and_one_data_set(target, dataset, stale):
    assert codes(judge_frequencies(COUNTED, target, dataset)) == (["vocab_map_stale"] if stale else [])
