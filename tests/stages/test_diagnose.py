from __future__ import annotations

import json
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from safetensors.torch import load_file, save_file  # noqa: E402

from eagle3_backend.drafter.config import Packaging  # noqa: E402
from eagle3_backend.drafter.layouts import flat_config  # noqa: E402
from eagle3_backend.drafter.rope import Rope  # noqa: E402
from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages import diagnose  # noqa: E402
from eagle3_backend.stages.drafter_model import load_drafter  # noqa: E402

pytestmark = pytest.mark.torch

AUX = (1, 2, 4)


@pytest.fixture(scope="module")
def texts(served, plain_engine) -> list[tuple]:
    return [
        (prompt, plain_engine.likely_text(served.model, served.drafter, served.target_ids, prompt))
        for prompt in plain_engine.prompts()
    ]


@pytest.fixture
def engine(served, plain_engine, texts):
    """What an engine records that runs this drafter with this map."""

    def run(drafter, target_ids=served.target_ids) -> list:
        return [plain_engine.verified(served.model, drafter, target_ids, *text) for text in texts]

    return run


@pytest.fixture
def campaign(served, engine, tmp_path):
    """The artifacts of a campaign whose engine ran the drafter that was trained."""
    return write_campaign(served, tmp_path / "campaign", engine(served.drafter))


def write_campaign(served, folder, requests) -> dict:
    drafter = served.drafter
    train, vocab, export, bench = (folder / stage / "f" for stage in ("train", "vocab", "export", "bench"))
    for artifact in (train, vocab, export / "flat", bench):
        artifact.mkdir(parents=True)
    (train / "drafter.json").write_text(json.dumps(drafter.config.to_json()))
    save_file(drafter.served_weights(), train / "drafter.safetensors")
    d2t = served.target_ids - torch.arange(len(served.target_ids))
    t2d = torch.zeros(drafter.config.vocab_size, dtype=torch.bool).index_fill(0, served.target_ids, True)
    maps = {"d2t": d2t, "t2d": t2d}
    save_file(maps, vocab / "vocab.safetensors")
    manifest = {"inputs": {"train": "f", "vocab": "f", "target": "f"}, "summary": {"dtype": "float32"}}
    (export / "manifest.json").write_text(json.dumps(manifest))
    save_file({**drafter.served_weights(), **maps}, export / "flat" / "model.safetensors")
    config = flat_config(drafter.config, Packaging(dtype="float32"), [layer - 1 for layer in AUX])
    (export / "flat" / "config.json").write_text(json.dumps(config))
    write_bench(bench, requests)
    return {"target": served.folder / "artifact", "drafter": export, "comparison": bench}


def write_bench(bench, requests, **recipe) -> None:
    answers = [
        {"set": "published", "id": each.id, "prompt_tokens": each.prompt_tokens, "tokens": each.tokens,
         "accepted": each.accepted}
        for each in requests
    ]  # fmt: skip
    recipe = {"dtype": "float32", "temperature": 0.0, "depth": 3, "layout": "flat", **recipe}
    (bench / "bench.json").write_text(json.dumps({"recipe": recipe, "answers": answers}))


def report_of(attempt, campaign) -> tuple:
    context = attempt("diagnose", campaign)
    diagnose.run(context)
    return json.loads((context.output / "diagnosis.json").read_text()), context


def test_an_engine_that_runs_the_drafter_is_cleared(attempt, campaign, served, engine) -> None:
    report, context = report_of(attempt, campaign)
    steps = sum(len(request.accepted) - 1 for request in engine(served.drafter))
    assert (report["verdict"], report["steps"], report["equal_share"]) == ("engine_runs_the_drafter", steps, 1.0)
    assert context.codes()[0] == "engine_runs_the_drafter"
    assert context.summary["verdict"] == "engine_runs_the_drafter"


def test_controls_are_drafters_that_must_fail(attempt, campaign) -> None:
    controls = report_of(attempt, campaign)[0]["controls"]
    assert controls["aux_layers_off_by_one"]["failed_as_it_must"]
    # A vocabulary of a dozen words is guessed right by chance, and the control says so.
    length = controls["shuffled_d2t"]["acceptance_length"]
    assert controls["shuffled_d2t"]["failed_as_it_must"] == (length < 1.05)


def changed(served, **fields):
    """A drafter of the same weights and another config."""
    config = replace(served.drafter.config, **fields)
    return load_drafter(config, served.drafter.embedding, served.drafter.served_weights())


def headless(served):
    weights = {**served.drafter.served_weights(), "lm_head.weight": torch.zeros(8, 16)}
    return load_drafter(served.drafter.config, served.drafter.embedding, weights)


FAULTS = {
    "aux layers early": ("aux_layers_offset", lambda served: [changed(served, aux_layers=(0, 1, 3))]),
    "aux layers late": ("aux_layers_offset", lambda served: [changed(served, aux_layers=(2, 3, 5))]),
    "residual normed": (
        "norm_before_residual_unsupported",
        lambda served: [changed(served, norm_before_residual=True)],
    ),
    "output not normed": ("norm_flag_ignored", lambda served: [changed(served, norm_output=False)]),
    "rope base lost": ("rope_theta_mismatch", lambda served: [changed(served, rope=Rope())]),
    "d2t zero": ("d2t_placeholder", lambda served: [served.drafter, torch.arange(8)]),
    "d2t absolute": (
        "d2t_absolute_ids",
        lambda served: [served.drafter, (served.target_ids + torch.arange(8)).clamp_max(11)],
    ),
    "no head": ("lm_head_missing", lambda served: [headless(served)]),
}
"""The finding that names a fault, and what the engine then runs: a drafter, and a map where it is not the right one."""


@pytest.mark.parametrize("fault", FAULTS)
def test_an_engine_that_reads_the_drafter_wrong_is_named(attempt, served, engine, tmp_path, fault: str) -> None:
    code, make = FAULTS[fault]
    report, context = report_of(attempt, write_campaign(served, tmp_path / "campaign", engine(*make(served))))
    assert report["verdict"] == code
    assert report["equal_share"] < 0.95
    assert context.codes()[0] == code


def test_other_weights_are_told_as_such_when_nothing_explains_them(attempt, served, engine, tmp_path) -> None:
    weights = {name: weight.flip(0) for name, weight in served.drafter.served_weights().items()}
    other = load_drafter(served.drafter.config, served.drafter.embedding, weights)
    report, _ = report_of(attempt, write_campaign(served, tmp_path / "campaign", engine(other)))
    assert report["verdict"] == "engine_runs_another_drafter"


def test_a_difference_on_disk_is_told_before_any_likeness(attempt, served, engine, tmp_path) -> None:
    weights = {name: weight.flip(0) for name, weight in served.drafter.served_weights().items()}
    other = load_drafter(served.drafter.config, served.drafter.embedding, weights)
    campaign = write_campaign(served, tmp_path / "campaign", engine(other))
    file = campaign["drafter"] / "flat" / "model.safetensors"
    tensors = load_file(file)
    tensors["fc.weight"] = tensors["fc.weight"].flip(0).contiguous()
    save_file(tensors, file)
    report, _ = report_of(attempt, campaign)
    assert report["verdict"] == "drafter_weights_differ"
    assert report["findings"][0]["path"] == "fc.weight"


@pytest.mark.parametrize("recipe", [{"dtype": "bfloat16"}, {"temperature": 0.7}], ids=str)
def test_answers_that_cannot_be_predicted_are_refused(attempt, campaign, recipe) -> None:
    write_bench(campaign["comparison"], [], **recipe)
    with pytest.raises(FindingError) as refused:
        diagnose.run(attempt("diagnose", campaign))
    assert [finding.code for finding in refused.value.findings] == ["replay_needs_float32"]


def test_a_bench_without_verify_steps_is_refused(attempt, campaign) -> None:
    write_bench(campaign["comparison"], [])
    with pytest.raises(FindingError) as refused:
        diagnose.run(attempt("diagnose", campaign))
    assert [finding.code for finding in refused.value.findings] == ["replay_without_requests"]


def foreign(served, campaign, requests, dtype=None) -> dict:
    """A running server's answers beside the directories of its drafter and target; no campaign."""
    rows = [
        {"id": each.id, "prompt_tokens": each.prompt_tokens, "tokens": each.tokens, "accepted": each.accepted}
        for each in requests
    ]
    file = campaign["comparison"] / "requests.json"
    file.write_text(json.dumps({"depth": 3, "dtype": dtype, "requests": rows}))
    return {"requests": file, "drafter": campaign["drafter"] / "flat", "target": served.folder / "model"}


def test_a_running_server_is_cleared_by_the_directories_alone(attempt, campaign, served, engine) -> None:
    report, _ = report_of(attempt, foreign(served, campaign, engine(served.drafter)))
    assert (report["verdict"], report["equal_share"]) == ("engine_runs_the_drafter", 1.0)


@pytest.mark.parametrize("fault", ["aux layers late", "output not normed", "d2t zero"])
def test_what_a_running_server_reads_wrong_is_named_by_the_directories_alone(
    attempt, campaign, served, engine, fault: str
) -> None:
    code, make = FAULTS[fault]
    report, _ = report_of(attempt, foreign(served, campaign, engine(*make(served))))
    assert report["verdict"] == code


@pytest.mark.parametrize(
    ("dtype", "verdict"), [(None, "engine_likely_runs_the_drafter"), ("float32", "engine_runs_another_drafter")]
)
def test_a_few_other_steps_are_rounding_only_where_the_server_may_round(
    attempt, campaign, served, engine, dtype, verdict
) -> None:
    requests = engine(served.drafter)
    steps = sum(len(request.accepted) - 1 for request in requests)
    first = requests[0]
    # The engine took one token less in one step, and met the target's own choice in the next.
    place = next(at for at, count in enumerate(first.accepted[:-2]) if count > 0)
    accepted = [*first.accepted[:place], first.accepted[place] - 1, 0, *first.accepted[place + 1 :]]
    requests[0] = replace(first, accepted=accepted)
    report, context = report_of(attempt, foreign(served, campaign, requests, dtype))
    assert 0.95 < report["equal_share"] < 0.999, steps
    assert report["verdict"] == verdict and context.codes()[0] == verdict


def test_a_directory_whose_weights_do_not_fit_its_config_is_refused_with_its_cause(attempt, campaign, served, engine):
    inputs = foreign(served, campaign, engine(served.drafter))
    config = json.loads((inputs["drafter"] / "config.json").read_text())
    (inputs["drafter"] / "config.json").write_text(json.dumps({**config, "intermediate_size": 24}))
    with pytest.raises(FindingError) as refused:
        diagnose.run(attempt("diagnose", inputs))
    assert [finding.code for finding in refused.value.findings] == ["drafter_shape_mismatch"]
