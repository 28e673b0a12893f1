from __future__ import annotations

import pytest

from eagle3_backend.drafter.rope import (
    Rope,
    check_members,
    check_spellings,
    inverse_frequencies,
    rope_of,
    same_rotation,
)

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
YARN = {"factor": 4.0, "original_max_position_embeddings": 4096}
OLD = {"rope_theta": 5e5, "rope_scaling": {"type": "llama3", **LLAMA3}}
NEW = {"rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **LLAMA3}}


@pytest.mark.parametrize(
    ("config", "rope"),
    [
        ({"rope_theta": 500000.0}, Rope(500000.0)),
        ({"rope_theta": 500000, "rope_scaling": None}, Rope(500000.0)),
        ({}, Rope(10000.0)),
        ({"rope_parameters": {"rope_theta": 5e4, "rope_type": "default"}, "rope_theta": 1e4}, Rope(5e4)),
        ({"rope_parameters": {"rope_type": "default"}, "rope_theta": 1e4}, Rope(1e4)),
        (OLD, Rope(5e5, "llama3", LLAMA3)),
        (NEW, Rope(5e5, "llama3", LLAMA3)),
        ({**OLD, "rope_parameters": {"rope_theta": 1.0}}, Rope(5e5, "llama3", LLAMA3)),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {}}}, Rope(1e6)),
    ],
)
def test_both_spellings_are_read_as_transformers_resolves_them(config: dict, rope: Rope) -> None:
    assert rope_of(config) == rope


@pytest.mark.parametrize(
    "config",
    [
        {"rope_theta": "wide"},
        {"rope_theta": -1.0},
        {"rope_theta": True},
        {"rope_scaling": "yarn"},
        {"rope_parameters": [1]},
        {"rope_parameters": {"rope_theta": float("inf")}},
    ],
)
def test_values_that_are_no_rotary_embedding_are_refused(config: dict) -> None:
    with pytest.raises(ValueError):
        rope_of(config)


@pytest.mark.parametrize("rope", [Rope(1e6), Rope(5e5, "llama3", LLAMA3), Rope(1e4, "yarn", YARN)])
def test_either_spelling_that_is_written_is_read_back(rope: Rope) -> None:
    assert rope_of({"rope_theta": rope.theta, "rope_scaling": rope.scaling}) == rope
    assert rope_of({"rope_parameters": rope.parameters}) == rope


@pytest.mark.parametrize(
    "config",
    [
        OLD,
        NEW,
        {**OLD, **NEW},
        {"rope_theta": 5e5, **NEW},
        {"rope_theta": 1e4, "rope_scaling": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        {"rope_theta": 1e4, "rope_scaling": None, "rope_parameters": {"rope_type": "default"}},
    ],
)
def test_spellings_that_mean_the_same_do_not_contradict_each_other(config: dict) -> None:
    assert check_spellings(config) == []


@pytest.mark.parametrize(
    "config",
    [
        {"rope_theta": 1e4, **NEW},
        {"rope_scaling": None, **NEW},
        {**OLD, "rope_parameters": {**NEW["rope_parameters"], "factor": 4.0}},
        {**OLD, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    ],
)
def test_spellings_that_differ_are_an_error_where_they_stand(config: dict) -> None:
    (finding,) = check_spellings(config, "transformer_layer_config.")
    assert (finding.code, finding.path) == ("rope_contradiction", "transformer_layer_config.rope_parameters")


def test_a_member_that_a_kind_needs_is_named_where_it_should_be() -> None:
    new = {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "original_max_position_embeddings": 4096}}
    (finding,) = check_members(new)
    assert (finding.code, finding.path) == ("rope_scaling_incomplete", "rope_parameters.factor")
    (finding,) = check_members({"rope_scaling": {"type": "linear"}}, "transformer_layer_config.")
    assert finding.path == "transformer_layer_config.rope_scaling.factor"
    assert check_members(OLD) == []


def test_a_kind_is_compared_by_what_it_rotates() -> None:
    assert same_rotation(Rope(1e4), Rope(1e4, "linear", {"factor": 1.0}), 64)
    assert same_rotation(Rope(1e4, "yarn", YARN), Rope(1e4, "yarn", {**YARN, "beta_fast": 32.0}), 64)
    assert same_rotation(Rope(1e4), Rope(1e4, "mrope", {"mrope_section": [16, 8, 8]}), 64)
    assert not same_rotation(Rope(1e4), Rope(1e6), 64)
    assert not same_rotation(Rope(1e4), Rope(1e4, "llama3", LLAMA3), 64)
    assert not same_rotation(Rope(1e4, "yarn", YARN), Rope(1e4, "yarn", {"factor": 4.0}), 64)


def test_llama3_keeps_high_frequencies_and_divides_low_ones() -> None:
    plain, _ = inverse_frequencies(Rope(5e5), 128)
    scaled, factor = inverse_frequencies(Rope(5e5, "llama3", LLAMA3), 128)
    assert (scaled[0], scaled[-1], factor) == (plain[0], plain[-1] / 8.0, 1.0)
