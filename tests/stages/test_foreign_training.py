"""Training by another library: what it is given, and what the stage makes of what it says. The library is a stand-in
here. In `tests/engines_e2e` speculators itself reads what it is given; `make test-trainers` lets both libraries train a
tiny drafter on; whole trainings are made by `benchmarks/trainers.py`, by hand."""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from safetensors.torch import load_file, save_file  # noqa: E402

from eagle3_backend.drafter.config import Packaging  # noqa: E402
from eagle3_backend.drafter.layouts import flat_config, nested_config, nested_tensor_name  # noqa: E402
from eagle3_backend.drafter.reading import layout_of  # noqa: E402
from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages import evaluate, export, foreign_inputs, foreign_training, train  # noqa: E402
from eagle3_backend.stages.context import Stopped  # noqa: E402
from eagle3_backend.stages.drafter_model import Drafter  # noqa: E402
from eagle3_backend.stages.foreign_training import Figures, Position  # noqa: E402
from eagle3_backend.stages.specforge_library import SpecForge, translate  # noqa: E402
from eagle3_backend.stages.speculators_library import Speculators, translated  # noqa: E402

pytestmark = pytest.mark.torch

SMALL = {"trainer": "speculators", "epochs": 2, "batch_rows": 40, "optimizer": "adamw"}
PROGRAM = """
import json, signal, sys, time
steps, pause = int(sys.argv[1]), float(sys.argv[2])
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("hello from the library")
for step in range(steps):
    print("loss " + (sys.argv[3] if step == steps - 1 else "2.5"), flush=True)
    time.sleep(pause)
sys.exit(int(sys.argv[4]))
"""


class StandIn:
    """A library that prints losses and whose drafter lies there already."""

    name, module, cpu_patches, total = "torch", "torch", "", 3

    def __init__(self, work, steps=3, pause=0.0, last="2.5", code=0) -> None:
        self.work, self.words = work, [str(each) for each in (steps, pause, last, code)]
        self.asked = []

    def doubts(self):
        return []

    def write(self, leave):
        (self.work.inputs / "data").write_text("ours")

    def command(self):
        return ["-c", PROGRAM, *self.words]

    def environment(self):
        return {}

    def figures(self, line):
        if not line.startswith("loss "):
            return None
        self.asked.append(line)
        return Figures(len(self.asked), 0, {"train/loss": float(line.removeprefix("loss "))})

    def go_on(self, position):
        self.position = position
        return []

    def start(self):
        return Position()

    def result(self):
        return write_drafter(self.work)


def write_drafter(work, scale=1.0):
    """What speculators would leave: a nested drafter, with the target's embedding in it."""
    torch.manual_seed(0)
    drafter = Drafter(work.config, work.target.embedding)
    tensors = {nested_tensor_name(name): tensor * scale for name, tensor in drafter.served_weights().items()}
    tensors |= {"embed_tokens.weight": work.target.embedding.float(), "d2t": work.maps[0], "t2d": work.maps[1]}
    folder = work.folder / "drafter"
    folder.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    config = nested_config(work.config, Packaging("bfloat16", "elsewhere", ("LlamaForCausalLM",), 3))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
def inputs(training_inputs):
    return training_inputs


@pytest.fixture
def trained_by(monkeypatch, attempt, inputs):
    """Runs one attempt with a stand-in library; the attempt and the library."""

    def run(settings=SMALL, watch=None, **words):
        context, made = attempt("train", inputs, **settings), []
        monkeypatch.setattr(foreign_training, "library_of", lambda work: made.append(StandIn(work, **words)) or made[0])
        if watch:
            threading.Thread(target=watch, args=(context,), daemon=True).start()
        try:
            train.run(context)
        finally:
            context.trainer = made[0] if made else None
        return context

    return run


@pytest.fixture
def work(attempt, inputs):
    """Inputs of a training by a library, with these parameters."""

    def make(**settings):
        work = foreign_training.prepare(attempt("train", inputs, **{**SMALL, **settings}))
        work.folder.mkdir(parents=True, exist_ok=True)
        return work

    return make


def codes(findings):
    return [finding.code for finding in findings]


@pytest.fixture
def started(work, inputs, tmp_path):
    """Inputs of a training by a library that goes on from a flat drafter with random weights and these flags."""

    def make(trainer, embedding=None, **flags):
        fresh = work()
        torch.manual_seed(1)
        config = replace(fresh.config, **flags)
        drafter = Drafter(config, fresh.target.embedding).bfloat16()
        tensors = {**drafter.served_weights(), "d2t": fresh.maps[0], "t2d": fresh.maps[1]}
        if embedding is not None:
            tensors["embed_tokens.weight"] = embedding
        export.write(tmp_path / "earlier", flat_config(config, Packaging("bfloat16")), tensors)
        return work(trainer=trainer, start_from=str(tmp_path / "earlier"))

    return make


def test_a_librarys_drafter_becomes_the_artifact_and_goes_on_to_evaluation_and_export(trained_by, attempt, inputs):
    context = trained_by()
    metrics = [line for line in context.lines("metric")]
    assert [(line["step"], line["values"]["train/loss"]) for line in metrics] == [(1, 2.5), (2, 2.5), (3, 2.5)]
    assert [(line["done"], line["total"]) for line in context.lines("progress")] == [(1, 3), (2, 3), (3, 3)]
    weights = load_file(context.output / train.WEIGHTS)
    assert "embed_tokens.weight" not in weights and {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert (context.summary["trainer"], context.summary["steps"]) == ("torch", 3)
    assert not (context.output / "library" / "inputs").exists()
    checkpoint = {**inputs, "checkpoint": context.output}
    report = attempt("evaluate", checkpoint)
    evaluate.run(report)
    assert report.summary["acceptance_length"]["mean"] >= 1
    exported = attempt("export", checkpoint)
    export.run(exported)
    assert exported.summary["layouts"] == ["flat", "nested"]
    stored = load_file(exported.output / "nested" / "model.safetensors")
    assert torch.equal(stored["fc.weight"], weights["fc.weight"].bfloat16())


def test_a_stop_is_handed_on_and_the_next_attempt_knows_how_far_it_came(trained_by):
    def stop(context):
        while not context.lines("metric"):
            time.sleep(0.05)
        context.ask_to_leave()

    with pytest.raises(Stopped):
        trained_by(watch=stop, steps=10_000, pause=0.05)
    again = trained_by()
    assert again.trainer.position.step >= 1
    assert again.summary["steps"] == 3


def test_the_copy_of_the_data_is_made_once(trained_by):
    with pytest.raises(FindingError):
        trained_by(code=3)
    again = trained_by()
    assert (again.trainer.work.folder / "position.json").is_file()


def test_an_unfinished_copy_of_the_data_is_made_anew(work, attempt, inputs):
    made = work()
    made.inputs.mkdir(parents=True)
    (made.inputs / "half").write_text("x")
    foreign_training.write_inputs(attempt("train", inputs, **SMALL), StandIn(made), made)
    assert sorted(path.name for path in made.inputs.iterdir()) == ["data", "written"]


@pytest.mark.parametrize(
    ("words", "code"),
    [({"last": "nan"}, "loss_nan"), ({"last": "0.0"}, "loss_zero_constant"), ({"code": 3}, "run_failed")],
)
def test_a_training_that_went_wrong_says_how(trained_by, words, code):
    with pytest.raises(FindingError) as caught:
        trained_by(**words)
    assert codes(caught.value.findings) == [code]


def test_a_drafter_that_was_not_asked_for_is_refused(work):
    made = work()
    folder = write_drafter(made, scale=float("nan"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "norm_output": True}))
    found = foreign_training.of_directory(folder, made.target.config)
    differences = list(foreign_training._differences(found, made))
    assert {finding.path for finding in differences} >= {"norm_output", "fc.weight"}
    assert set(codes(differences)) == {"trainer_output_differs"}


@pytest.mark.parametrize("trainer", ["speculators", "specforge"])
def test_a_library_that_is_not_in_the_environment_is_told(attempt, inputs, trainer):
    with pytest.raises(FindingError) as caught:
        train.run(attempt("train", inputs, **{**SMALL, "trainer": trainer}))
    (finding,) = caught.value.findings
    assert (finding.code, finding.path) == ("trainer_not_available", f"environments.{trainer}")


def test_without_a_gpu_a_library_as_it_is_cannot_train(work):
    made = work()
    library = StandIn(made)
    library.cpu_patches = "patches_that_nobody_has"
    assert codes(foreign_training.missing(library, made)) == ["trainer_needs_gpu"]


def test_what_no_library_can_do_is_refused(work, attempt, inputs):
    made = work()
    made.target.facts["logit_softcap"] = 30.0
    assert codes(foreign_training.unfit(made)) == ["target_unsupported"]
    crowded = replace(made, parameters=replace(made.parameters, processes=3), gpus=2)
    assert codes(foreign_training.unfit(crowded)) == ["processes_exceed_gpus", "target_unsupported"]


@pytest.mark.parametrize(("kind", "layout"), [(Speculators, "nested"), (SpecForge, "flat")])
def test_the_drafter_to_start_from_is_given_in_the_librarys_layout(started, monkeypatch, kind, layout):
    # speculators' own rows need its package of tables.
    monkeypatch.setattr(Speculators, "_write_rows", lambda *_: None)
    made = started(kind.name, fc_norm=True, head_dim=4)
    kind(made).write(lambda: None)
    assert layout_of(json.loads((made.begun / "config.json").read_text())) == layout
    found = foreign_training.of_directory(made.begun, made.target.config)
    assert not list(foreign_training._differences(found, made)) and made.config.head_dim == 4
    assert torch.equal(found.tensors.pop("embed_tokens.weight"), made.target.embedding)
    assert found.tensors.keys() == made.start.tensors.keys()
    assert all(torch.equal(found.tensors[name], tensor) for name, tensor in made.start.tensors.items())


def test_speculators_takes_the_form_of_the_drafter_to_start_from_and_not_of_its_options(started):
    words = Speculators(started("speculators", norm_output=True)).arguments()
    assert words[words.index("--from-pretrained") + 1].endswith("/inputs/start")
    shape = {"--draft-config", "--target-layer-ids", "--norm-output", "--no-norm-output"}
    assert not shape & {*words} and "--d2t-path" in words


def test_specforge_starts_from_a_drafter_only_where_no_checkpoint_is_further(started):
    made = started("specforge")
    library = SpecForge(made)
    assert library.configuration()["model"]["draft_checkpoint_path"] == str(made.begun)
    (made.checkpoints / "run-step4").mkdir(parents=True)
    (made.checkpoints / "run-step4" / "training_state.pt").write_bytes(b"x")
    (made.checkpoints / "run-latest").symlink_to("run-step4")
    again = library.configuration()
    assert "draft_checkpoint_path" not in again["model"] and again["training"]["resume_from"] == str(made.checkpoints)


def test_what_a_library_cannot_go_on_from_is_refused(started, work, inputs, tmp_path):
    found = SpecForge(started("specforge", norm_output=True)).doubts()[0]
    assert (found.code, found.path) == ("trainer_parameter_unsupported", "stages.train.start_from")
    tensors = load_file(tmp_path / "earlier" / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, tmp_path / "earlier" / "model.safetensors")
    with pytest.raises(FindingError) as caught:
        work(start_from=str(tmp_path / "earlier"))
    assert [(each.code, each.path) for each in caught.value.findings] == [("start_drafter_mismatch", "lm_head.weight")]


def test_a_conversation_is_given_without_the_token_that_was_never_an_input(work):
    made = work()
    stored = made.data.conversations[0].stored
    row = next(foreign_inputs.given(made.data.conversations))
    assert len(row.token_ids) == len(row.loss_mask) == len(row.aux) == len(row.last) == len(stored.token_ids) - 1
    assert row.aux.abs().amax(1).min() > 0 and row.last.abs().amax(1).min() > 0
    assert torch.equal(row.token_ids, stored.token_ids[:-1])


def test_the_target_in_small_holds_the_factor_that_its_own_norm_applies(work, tmp_path):
    made = work()
    object.__setattr__(made.target, "norm", made.target.norm + 1)
    foreign_inputs.write_target(made, tmp_path / "small")
    tensors = load_file(tmp_path / "small" / "model.safetensors")
    index = json.loads((tmp_path / "small" / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(index) == set(tensors) == {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"}
    assert torch.equal(tensors["model.norm.weight"].float(), made.target.norm)
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    assert (config["num_hidden_layers"], config["vocab_size"], config["hidden_size"]) == (8, 48, 16)


def test_specforges_files_hold_the_state_after_the_final_norm(work):
    made = work(trainer="specforge")
    SpecForge(made).write(lambda: None)
    files = sorted((made.inputs / "train").iterdir())
    assert len(files) == len(made.data.conversations)
    features = torch.load(files[0], weights_only=True)
    row = made.data.conversations[0].stored
    assert torch.equal(features["hidden_state"][0], made.target.normed(row.last[:-1]).bfloat16())
    assert torch.equal(features["aux_hidden_state"][0], row.aux[:-1])
    assert features["input_ids"].tolist() == row.token_ids[:-1].tolist()
    assert features["loss_mask"].tolist() == row.loss_mask[:-1].tolist()
    draft = json.loads((made.inputs / "draft.json").read_text())
    assert draft["architectures"] == ["LlamaForCausalLMEagle3"] and "norm_output" not in draft


def test_a_step_of_specforge_holds_about_the_rows_of_one_of_ours(work):
    made = work(trainer="specforge")
    library = SpecForge(made)
    mean = sum(len(row.used) for row in made.data.conversations) / len(made.data.conversations)
    assert abs(library.batch * mean - 40) <= mean
    training = library.configuration()["training"]
    assert training["eval_interval"] == library.steps == len(made.data.conversations) // library.batch
    assert 1 <= training["save_interval"] <= library.steps


def test_speculators_cuts_the_rows_where_the_held_out_ones_begin(work):
    made = work()
    words = Speculators(made).arguments()
    share = float(words[words.index("--train-data-ratio") + 1])
    train_rows, held_out = len(made.data.conversations), len(made.data.held_out)
    assert int((train_rows + held_out) * share) == train_rows
    assert words[words.index("--target-layer-ids") + 1 :][:3] == ["2", "4", "5"]
    assert "--no-norm-before-residual" in words and "--no-norm-output" in words


def test_a_row_of_speculators_is_at_least_as_long_as_the_longest_conversation(work):
    made = work(batch_rows=1)
    assert Speculators(made).tokens == made.longest


@pytest.mark.parametrize(
    ("trainer", "settings", "names"),
    [
        ("speculators", {"clip": 2.0, "train_head": True}, {"batch_rows", "clip", "train_head"}),
        ("specforge", {"optimizer": "muon"}, {"batch_rows", "step_decay", "weight_decay", "optimizer", "train_head"}),
    ],
)
def test_parameters_that_a_library_has_no_place_for_are_told_in_one_warning(work, trainer, settings, names):
    kind = {"speculators": Speculators, "specforge": SpecForge}[trainer]
    (finding,) = kind(work(trainer=trainer, **settings)).doubts()
    assert (finding.code, set(finding.actual)) == ("trainer_parameter_unused", names)


def test_specforge_refuses_a_form_that_its_drafter_does_not_have(work):
    found = SpecForge(work(trainer="specforge", norm_output=True)).doubts()
    assert found[0].code == "trainer_parameter_unsupported" and found[0].path == "stages.train.norm_output"


def test_speculators_figures_have_our_names():
    record = {"loss": 3.5, "error_records": 0.0}
    for step in range(3):
        record |= {f"loss_{step}": 2.0 * 0.5**step, f"full_acc_{step}": 0.5 / (1 + step), f"cond_acc_{step}": 0.5}
    line = {"train": record, "profile": {"tokens_per_s": 9.0}, "epoch": 1, "lr": {"Muon": 0.1, "AdamW": 0.2}}
    figures = translated({**line, "global_step": 4}, 0.5)
    assert (figures.step, figures.epoch) == (5, 1)
    assert [figures.values[f"train/loss_{step}"] for step in range(3)] == [2.0, 2.0, 2.0]
    assert figures.values["train/accept_len"] == pytest.approx(1 + 0.5 + 0.25 + 0.5 / 3)
    assert (figures.values["train/learning_rate"], figures.values["train/tokens_per_second"]) == (0.2, 9.0)
    held_out = translated({"val": {f"{name}_epoch": value for name, value in record.items()}, "epoch": 1}, 0.5)
    assert held_out.step is None and held_out.values["eval/loss"] == 3.5 and "eval/error_records" not in held_out.values


def test_specforges_figures_have_our_names(work):
    line = "step 6: {'acc_0': 0.5, 'acc_1': 0.5, 'ploss_0': 1.0, 'ploss_1': nan, 'acceptance_rate_0': 0.25, 'loss': 2.0"
    library = SpecForge(work(trainer="specforge"))
    figures = library.figures(line + ", 'lr': 0.001, 'grad_norm': 0.5, 'perf/global_samples_per_second': 2.0}")
    assert figures.step == 6 and figures.values["train/accept_len"] == 1.75
    assert figures.values["train/alpha_0"] == 0.25 and figures.values["train/loss_1"] != figures.values["train/loss_1"]
    assert figures.values["train/tokens_per_second"] > 0
    values = {
        "eval/avg_loss": 2.0,
        "eval/avg_acc": 0.5,
        "eval/per_position_acc": [0.5, 0.5],
        "eval/acceptance_rate_0": 0.3,
    }
    held_out = translate(values, 1.0)
    assert held_out == {
        "eval/loss": 2.0,
        "eval/acc_0": 0.5,
        "eval/acc_1": 0.5,
        "eval/alpha_0": 0.3,
        "eval/accept_len": 1.75,
    }


def checkpoint(folder, name, whole=True, **state):
    directory = folder / name
    directory.mkdir(parents=True)
    (directory / "config.json").write_text("{}")
    (directory / "optimizer_state_dict.pt").write_bytes(b"x" if whole else b"")
    save_file({"w": torch.zeros(1)}, directory / "model.safetensors")
    if state:
        (directory / "training_state.json").write_text(json.dumps(state))
    return directory


def test_speculators_goes_on_within_the_epoch_that_a_stop_interrupted(work):
    made = work()
    library = Speculators(made)
    checkpoint(made.checkpoints, "0", epoch=0, local_step=0, global_step=7)
    checkpoint(made.checkpoints, "interrupted")
    (finding,) = library.go_on(Position(1, 3, 10))
    assert finding.code == "resume_not_exact"
    assert sorted(path.name for path in made.checkpoints.iterdir()) == ["0", "1"]
    assert library.start() == Position(1, 3, 10)
    assert library.result().name == "1"


def test_speculators_leaves_out_a_checkpoint_that_is_not_whole(work):
    made = work()
    library = Speculators(made)
    checkpoint(made.checkpoints, "0", epoch=0, local_step=0, global_step=7)
    checkpoint(made.checkpoints, "1", whole=False, epoch=1, local_step=0, global_step=14)
    assert codes(library.go_on(None)) == ["checkpoint_incomplete"]
    assert library.start() == Position(1, 0, 7)


def test_specforge_makes_the_steps_after_its_last_checkpoint_again_and_says_so(work):
    made = work(trainer="specforge")
    library = SpecForge(made)
    (made.checkpoints / "run-step4").mkdir(parents=True)
    (made.checkpoints / "run-step4" / "training_state.pt").write_bytes(b"x")
    (made.checkpoints / "run-latest").symlink_to("run-step4")
    (finding,) = library.go_on(Position(1, 2, 6))
    assert (finding.code, finding.actual) == ("resume_repeats_steps", 2)
    assert library.configuration()["training"]["resume_from"] == str(made.checkpoints)
    assert library.go_on(Position(1, 0, 4)) == []


def test_the_programs_that_run_a_library_import_nothing_of_it_before_they_start():
    names = ("speculators_entry", "specforge_entry")
    code = (
        ";".join(f"import eagle3_backend.stages.{name}" for name in names) + ";import sys;print('torch' in sys.modules)"
    )
    import subprocess

    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == "False"
