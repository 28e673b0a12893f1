from __future__ import annotations

import pytest

from eagle3_backend.engines.training_log import TrainingLog


def read(*lines, end="\n"):
    log = TrainingLog()
    log.feed_bytes("".join(line + end for line in lines).encode())
    log.close()
    return log


def bar(step, loss, total=100):
    return f"Epoch 1:  5%|█   | {step}/{total} [00:01<40:00,  1.00it/s, loss={loss}, acc=0.1]"


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_the_first_bad_and_the_last_good_step_are_found(end):
    diagnosis = read(bar(1, "9.0"), bar(2, "8.5"), bar(3, "nan"), bar(4, "nan"), bar(5, "7.0"), end=end).diagnose()
    assert [finding.code for finding in diagnosis.findings] == ["loss_nan"]
    assert (diagnosis.facts["first_bad_step"], diagnosis.facts["last_good_step"]) == (3, 2)
    assert diagnosis.facts["last_good_loss"] == 8.5


@pytest.mark.parametrize(
    "line", ["{'loss': nan, 'step': 7}", '{"step": 7, "loss": NaN}', "step 7 loss inf", "step=7 train/loss=-inf"]
)
def test_other_ways_to_write_a_loss_are_read(line):
    assert read(line).diagnose().facts["first_bad_step"] == 7


def test_losses_of_zero_are_told_only_when_there_was_never_another():
    zeros = [bar(step, "0.0000") for step in range(20)]
    assert read(*zeros).diagnose().findings[0].code == "loss_zero_constant"
    assert read(bar(0, "1.0"), *zeros).diagnose().findings == ()


def test_a_bar_that_shows_few_of_its_steps_stands_for_all_of_them():
    assert read(bar(1, "0.00"), bar(80, "0.00")).diagnose().findings[0].code == "loss_zero_constant"
    assert read(bar(80, "0.00")).diagnose().findings == ()


def test_other_losses_are_not_the_loss():
    assert read("step 3 aux_loss=nan lossless=nan loss=2.5").diagnose().findings == ()


def test_silence_is_judged_by_the_speed_of_the_steps():
    slow = "Train: 10%|█ | 1/9 [07:57<00:00, 300.0s/it]"
    assert read(slow).diagnose(silence=900).state == "running"
    assert read(slow).diagnose(silence=1600).state == "stalled"
    assert read(bar(1, "2.0")).diagnose(silence=900).findings[0].code == "no_progress"


def test_a_job_that_writes_is_not_stalled():
    assert read(bar(1, "2.0")).diagnose(silence=9000, unwritten=20).state == "running"


def test_a_full_bar_is_no_end():
    diagnosis = read(bar(100, "2.0")).diagnose(silence=1860)
    assert diagnosis.state == "stalled"
    assert "full, which is no end" in diagnosis.findings[0].message


def test_failures_are_named():
    assert read("torch.OutOfMemoryError: CUDA out of memory.").diagnose().findings[0].code == "oom_training"
    assert read("[rank1]: ValueError: x").diagnose(exit_code=1).findings[0].code == "run_failed"
    assert read(bar(1, "2.0")).diagnose(exit_code=0).state == "running"
