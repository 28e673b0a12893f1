"""The nested layout before speculators itself, as installed: it loads what the product writes and computes the same.

Drafters are small ones with random weights, every variant of the norms that speculators has, and the campaign's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engines

REPOSITORY = Path(__file__).parents[2]
TOLERANCE = 1e-5
FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}


def flags(*names):
    return dict.fromkeys(names, True)


OURS = {
    "plain": {},
    **{flag: flags(flag) for flag in FLAGS},
    "eagle_3_1": flags("fc_norm", "norm_output"),
    "their_defaults": flags("norm_before_residual", "norm_before_fc", "norm_output"),
    "other_three": flags("norm_before_residual", "fc_norm", "norm_output"),
    "whole_vocabulary": {"draft_vocab_size": 512},
    "five_streams": {"aux_layers": [0, 2, 4, 6, 8]},
    "own_head_size": {"heads": 8, "head_dim": 48},
    "llama3_rope": {"rope": {"theta": 50000.0, "kind": "llama3", "members": LLAMA3}},
    "own_embedding": {"embedding": True},
}
"""What each drafter of the product has otherwise than the target's default one."""

THEIRS = {name: OURS[name] for name in ("plain", "eagle_3_1", "their_defaults")}
"""The flags of drafters that speculators saves."""

CONFUSIONS = {"norm_before_residual": 0, "norm_output": 1}
"""Flags without weights of their own, with the first step that a drafter without the flag must get wrong."""


@pytest.fixture(scope="session")
def asked(train_python, workspace, speculators_environment):
    """Asks a helper of `tests/support` in speculators' environment."""
    python = speculators_environment.build(workspace.parent / "speculators", train_python)
    path = os.pathsep.join(str(REPOSITORY / room) for room in ("backend", "kernels"))

    def ask(name, *words, **request):
        ended = subprocess.run(
            [python, str(REPOSITORY / "tests" / "support" / f"{name}.py"), *words],
            env={**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1"},
            input=json.dumps(request),
            stdout=subprocess.PIPE,
            text=True,
            timeout=600,
            check=True,
        )
        return json.loads(ended.stdout.splitlines()[-1])

    return ask


@pytest.fixture(scope="session")
def beside(asked):
    """Asks for drafters to be written, or compared."""
    return lambda step, **request: asked("beside_speculators", step, **request)


@pytest.fixture(scope="session")
def small(beside, tmp_path_factory):
    """The small drafters of both: ``target``, ``ours/<name>``, ``theirs/<name>``."""
    folder = tmp_path_factory.mktemp("beside")
    beside("write", folder=str(folder), ours=OURS, theirs=THEIRS)
    return folder


@pytest.fixture(scope="session")
def converted(small):
    """What the command line says of the drafters that speculators saved, made ``flat/<name>`` and ``back/<name>``."""
    answers = {}
    for layout, folder, source in (("flat", "flat", "theirs"), ("nested", "back", "flat")):
        (small / folder).mkdir()
        for name in THEIRS:
            words = ["convert", str(small / source / name), str(small / folder / name), "--to", layout]
            ended = subprocess.run(
                [sys.executable, "-m", "eagle3_tui.cli", *words, "--target", str(small / "target"), "--json"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=60,
            )
            answers[folder, name] = ended.returncode, json.loads(ended.stdout)
    return answers


@pytest.fixture(scope="session")
def compared(beside, small, converted):
    """What speculators reads in one folder against what the product reads in another: answers by kind and name."""
    pairs = {("ours", name): (f"ours/{name}", f"ours/{name}") for name in OURS}
    pairs |= {("confused", name): (f"ours/{name}", "ours/plain") for name in CONFUSIONS}
    pairs |= {("flat", name): (f"theirs/{name}", f"flat/{name}") for name in THEIRS}
    pairs |= {("back", name): (f"back/{name}", f"theirs/{name}") for name in THEIRS}
    answers = beside("compare", pairs=[[str(small / each) for each in pair] for pair in pairs.values()])
    return dict(zip(pairs, answers, strict=True))


def tell(name, answer):
    numbers = {kind: [f"{step:.1e}" for step in answer[kind]] for kind in ("float32", "float64")}
    print(f"{name}: {numbers}, largest of {answer['logits']} logits {answer['scale']:.1f}")


def assert_loaded_whole(answer):
    assert answer["class"] == "Eagle3DraftModel"
    assert (answer["missing"], answer["unexpected"], answer["changed"]) == ([], [], [])


@pytest.mark.parametrize("name", OURS)
def test_speculators_loads_what_the_product_writes_as_it_is_meant(name, compared):
    answer = compared["ours", name]
    assert_loaded_whole(answer)
    for part in ("config", "packaging"):
        assert answer[part]["theirs"] == answer[part]["ours"]


@pytest.mark.parametrize("name", OURS)
def test_logits_of_every_step_are_those_of_speculators(name, compared):
    answer = compared["ours", name]
    tell(name, answer)
    assert len(answer["float32"]) == 3 and answer["scale"] > 1
    assert max(answer["float32"]) <= TOLERANCE


@pytest.mark.parametrize("name", CONFUSIONS)
def test_a_drafter_without_a_flag_computes_something_else(name, compared):
    """The negative control: the equality above is no formality."""
    answer, first = compared["confused", name], CONFUSIONS[name]
    assert max(answer["float32"][:first], default=0) <= TOLERANCE
    assert min(answer["float32"][first:]) > 0.1
    assert answer["config"]["theirs"] == {**answer["config"]["ours"], name: True}


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("made", ["flat", "back"])
def test_a_drafter_that_speculators_saved_is_converted_and_computes_the_same(made, name, converted, compared):
    """To flat, which the product reads; and from there back to nested, which speculators reads."""
    code, told = converted[made, name]
    assert (code, [finding for finding in told["findings"] if finding["severity"] == "error"]) == (0, [])
    answer = compared[made, name]
    tell(f"{name}, {made}", answer)
    assert_loaded_whole(answer)
    for part in ("config", "packaging"):
        assert answer[part]["theirs"] == answer[part]["ours"]
    assert max(answer["float32"]) <= TOLERANCE


def test_the_campaigns_drafter_loads_and_computes_the_same_on_its_own_states(laptop, beside):
    """Real weights give logits so large that float32 alone is further off: there it is a share of them."""
    ended = laptop.call("run", "--through", "export", "--json", timeout=1700)
    assert ended.code == 0, ended.stderr[-4000:]
    stages = laptop.stages()
    nested, flat = (f"{stages['export']['output']}/{layout}" for layout in ("nested", "flat"))
    answers = beside("compare", pairs=[[nested, nested], [nested, flat]], store=stages["extract"]["output"])
    for answer in answers:
        tell("campaign", answer)
        assert_loaded_whole(answer)
        assert answer["config"]["theirs"] == answer["config"]["ours"]
        assert max(answer["float64"]) <= TOLERANCE
        assert max(answer["float32"]) <= TOLERANCE * answer["scale"]
    assert answers[0]["packaging"]["theirs"] == answers[0]["packaging"]["ours"]


def test_speculators_own_reader_and_model_take_what_the_trainer_stage_gives_them(laptop, asked, tmp_path):
    """A few conversations of the campaign; whole trainings by the library need a GPU or patches."""
    ended = laptop.call("run", "--through", "vocab", "--json", timeout=1700)
    assert ended.code == 0, ended.stderr[-4000:]
    stages = laptop.stages()
    inputs = {name: stages[stage]["output"] for name, stage in (("target", "target"), ("vocab", "vocab"))}
    found = asked("fed_speculators", folder=str(tmp_path), store=stages["extract"]["output"], **inputs)
    assert found.pop("rows") == {"train": 5, "val": 2}
    assert all(found.values()), found
