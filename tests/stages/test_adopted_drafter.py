"""export with a drafter that somebody else finished: no training, one layout, the same checks."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from safetensors.torch import load_file, save_file  # noqa: E402

from eagle3_backend.drafter.config import Packaging, drafter_for  # noqa: E402
from eagle3_backend.drafter.layouts import flat_config, nested_config, nested_tensor_name  # noqa: E402
from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages import export  # noqa: E402
from eagle3_backend.stages.drafter_directory import check_drafter  # noqa: E402

pytestmark = pytest.mark.torch

DRAFT_VOCABULARY = 40


@pytest.fixture
def target(tiny, tmp_path):
    return tiny.write_target(tmp_path / "target")


@pytest.fixture
def drafter(tiny, tmp_path, drafters):
    """Write a whole drafter of the tiny target in a layout; ``change`` spoils tensors, ``settings`` the config."""

    def write(layout="flat", change=None, **settings):
        config = drafter_for(tiny.CONFIG, tiny.AUX, DRAFT_VOCABULARY)
        tensors = {name: torch.zeros(shape) for name, shape in drafters.shapes(config).items()}
        kept = torch.arange(tiny.VOCABULARY - DRAFT_VOCABULARY, tiny.VOCABULARY)
        tensors["d2t"] = kept - torch.arange(DRAFT_VOCABULARY)
        tensors["t2d"] = torch.zeros(tiny.VOCABULARY, dtype=torch.bool)
        tensors["t2d"][kept] = True
        tensors.update(change or {})
        if layout == "nested":
            tensors = {nested_tensor_name(name): tensor for name, tensor in tensors.items()}
            written = nested_config(config, Packaging("float32", "org/target", speculative_tokens=3))
        else:
            written = flat_config(config, Packaging("float32"))
        directory = tmp_path / "elsewhere"
        directory.mkdir(exist_ok=True)
        save_file(tensors, directory / "model.safetensors")
        (directory / "config.json").write_text(json.dumps({**written, **settings}))
        return directory

    return write


@pytest.fixture
def adopted(attempt, target):
    def run(directory, **parameters):
        context = attempt("export", {"target": target}, adopt=str(directory), **parameters)
        export.run(context)
        return context

    return run


def refused(run, *arguments):
    with pytest.raises(FindingError) as raised:
        run(*arguments)
    return [finding.code for finding in raised.value.findings]


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_an_adopted_drafter_is_there_in_its_own_layout_and_byte_for_byte(adopted, drafter, layout):
    source = drafter(layout)
    context = adopted(source)
    for name in ("config.json", "model.safetensors"):
        assert (context.output / layout / name).read_bytes() == (source / name).read_bytes()
    assert (context.summary["layouts"], context.summary["adopted"]) == ([layout], str(source))
    assert context.summary["draft_vocab_size"] == DRAFT_VOCABULARY
    assert context.codes() == []


def test_the_layout_that_it_does_not_have_is_missing_for_bench_and_serve(adopted, drafter):
    output = adopted(drafter("nested")).output
    check_drafter(output / "nested", 3)
    assert refused(check_drafter, output / "flat", 3) == ["drafter_missing"]


def test_a_flat_file_with_the_nested_names_of_tensors_passes(adopted, drafter):
    source = drafter()
    tensors = {nested_tensor_name(name): tensor for name, tensor in load_file(source / "model.safetensors").items()}
    save_file(tensors, source / "model.safetensors")
    assert adopted(source).codes() == []


def test_what_an_earlier_attempt_left_does_not_stay(adopted, drafter):
    adopted(drafter("flat"))
    assert [path.name for path in adopted(drafter("nested")).output.iterdir() if path.is_dir()] == ["nested"]


@pytest.mark.parametrize(
    ("change", "settings", "code"),
    [
        ({"fc.weight": torch.zeros(16, 32)}, {}, "fc_input_mismatch"),
        ({"d2t": torch.zeros(DRAFT_VOCABULARY, dtype=torch.int64)}, {}, "d2t_placeholder"),
        ({"d2t": torch.zeros(DRAFT_VOCABULARY)}, {}, "d2t_dtype"),
        ({"t2d": torch.ones(48, dtype=torch.bool)}, {}, "t2d_count_mismatch"),
        ({}, {"eagle_aux_hidden_state_layer_ids": [4, 2, 5]}, "aux_layers_order"),
        ({}, {"target_hidden_size": 8}, "hidden_size_mismatch"),
        ({}, {"hidden_size": None}, "drafter_config_invalid"),
    ],
)
def test_a_drafter_that_does_not_fit_is_refused(adopted, drafter, change, settings, code):
    assert code in refused(adopted, drafter("flat", change, **settings))


def test_a_fault_may_be_accepted_and_is_told(adopted, drafter):
    source = drafter("flat", {"extra.weight": torch.zeros(1)})
    assert refused(adopted, source) == ["tensor_unknown"]
    assert adopted(source, accepted=["tensor_unknown"]).codes() == ["tensor_unknown"]


def test_a_directory_that_is_not_there_or_holds_no_drafter_is_a_finding(adopted, tmp_path):
    assert refused(adopted, tmp_path / "nowhere") == ["drafter_missing"]
    assert refused(adopted, tmp_path) == ["drafter_unreadable"]


def test_a_pointer_in_place_of_weights_is_told(adopted, drafter):
    source = drafter()
    (source / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert refused(adopted, source) == ["lfs_pointer"]
