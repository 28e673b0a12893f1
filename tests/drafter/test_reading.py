from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.drafter.layouts import flat_config, nested_config, nested_tensor_name
from eagle3_backend.drafter.reading import check_against_target, flat_tensor_name, layout_of, read_config
from eagle3_backend.findings import FindingError

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
}
CONFIG = DrafterConfig(
    hidden_size=576,
    target_hidden_size=576,
    intermediate_size=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocab_size=49152,
    draft_vocab_size=8192,
    aux_layers=(2, 15, 26),
    rms_norm_eps=1e-5,
    max_position_embeddings=8192,
    rope_theta=100000.0,
    rope_scaling={"rope_type": "linear", "factor": 2.0},
    target_architecture="LlamaForCausalLM",
    target_layers=30,
    norm_before_residual=True,
)


def written(layout: str, config: DrafterConfig = CONFIG) -> dict:
    if layout == "flat":
        return flat_config(config, "bfloat16")
    return nested_config(config, "bfloat16", verifier="org/target", depth=3)


@pytest.mark.parametrize("layout", ["flat", "nested"])
def test_what_was_written_is_read_back(layout: str) -> None:
    assert layout_of(written(layout)) == layout
    assert read_config(written(layout), TARGET) == CONFIG


@pytest.mark.parametrize(("layout", "default"), [("flat", False), ("nested", True)])
def test_an_absent_norm_flag_means_what_the_engine_takes_it_for(layout: str, default: bool) -> None:
    config = written(layout)
    del config["norm_before_residual"]
    assert read_config(config, TARGET).norm_before_residual is default


def test_a_wider_target_is_read_from_both_layouts() -> None:
    wider = replace(CONFIG, target_hidden_size=1024)
    for layout in ("flat", "nested"):
        assert read_config(written(layout, wider), {**TARGET, "hidden_size": 1024}).target_hidden_size == 1024


@pytest.mark.parametrize(
    "broken", [{}, {"hidden_size": "wide"}, {"transformer_layer_config": {}}, {**written("flat"), "eagle_config": 7}]
)
def test_a_config_without_its_sizes_is_a_finding(broken: dict) -> None:
    if "eagle_config" in broken:
        del broken["eagle_aux_hidden_state_layer_ids"]
    with pytest.raises(FindingError, match="drafter_config_invalid"):
        read_config(broken, TARGET)


def test_a_tensor_has_one_flat_name_whatever_its_layout() -> None:
    for name in ("midlayer.mlp.up_proj.weight", "fc.weight"):
        assert flat_tensor_name(nested_tensor_name(name)) == flat_tensor_name(name) == name


def codes(config: dict, target: dict) -> list[str]:
    return [finding.code for finding in check_against_target(config, read_config(config, target), target)]


def test_a_drafter_of_this_target_has_no_fault() -> None:
    assert codes(written("nested"), TARGET) == []
    assert codes(written("flat"), {"architectures": ["Wrapped"], "text_config": TARGET}) == []


@pytest.mark.parametrize(
    ("change", "code"), [({"hidden_size": 512}, "hidden_size_mismatch"), ({"vocab_size": 9}, "vocab_size_mismatch")]
)
def test_a_drafter_of_another_target_is_told(change: dict, code: str) -> None:
    assert codes(written("flat"), {**TARGET, **change}) == [code]


def test_absent_aux_layers_are_the_engines_default_and_a_warning() -> None:
    config = written("nested")
    del config["eagle_aux_hidden_state_layer_ids"]
    assert read_config(config, TARGET).aux_layers == (2, 15, 27)
    assert codes(config, TARGET) == ["aux_layers_missing"]
