from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.drafter.checks import check_aux_layers, check_shapes, check_vocabulary_map, expected_shapes
from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.drafter.rope import Rope

CONFIG = DrafterConfig(
    hidden_size=8,
    target_hidden_size=8,
    intermediate_size=16,
    heads=2,
    kv_heads=1,
    head_dim=4,
    vocab_size=10,
    draft_vocab_size=4,
    aux_layers=(2, 3, 5),
    rms_norm_eps=1e-5,
    max_position_embeddings=64,
    rope=Rope(),
)
KEPT = [1, 2, 5, 9]
D2T = [1, 1, 3, 6]
T2D = [target in KEPT for target in range(10)]


def codes(findings) -> list[str]:
    return [finding.code for finding in findings]


def test_a_whole_drafter_has_no_findings() -> None:
    assert check_shapes(CONFIG, expected_shapes(CONFIG)) == []
    assert check_aux_layers(CONFIG, 8) == []
    assert check_vocabulary_map(D2T, T2D, 10) == []


@pytest.mark.parametrize(
    ("name", "code"), [("lm_head.weight", "lm_head_missing"), ("d2t", "d2t_missing"), ("norm.weight", "tensor_missing")]
)
def test_a_missing_tensor_is_named(name: str, code: str) -> None:
    shapes = expected_shapes(CONFIG)
    del shapes[name]
    (finding,) = check_shapes(CONFIG, shapes)
    assert (finding.code, finding.path) == (code, name)


def test_a_drafter_of_another_width_needs_its_own_embedding() -> None:
    config = replace(CONFIG, target_hidden_size=12)
    shapes = expected_shapes(config)
    del shapes["embed_tokens.weight"]
    assert codes(check_shapes(config, shapes)) == ["embed_tokens_missing"]


def test_an_fc_for_another_number_of_aux_layers_is_told_with_both_shapes() -> None:
    (finding,) = check_shapes(CONFIG, {**expected_shapes(CONFIG), "fc.weight": (8, 16)})
    assert (finding.code, finding.expected, finding.actual) == ("fc_input_mismatch", [8, 24], [8, 16])


def test_an_unknown_tensor_is_told() -> None:
    assert codes(check_shapes(CONFIG, {**expected_shapes(CONFIG), "extra": (1,)})) == ["tensor_unknown"]


@pytest.mark.parametrize(
    ("layers", "code"),
    [
        ((2, 2, 5), "aux_layers_duplicate"),
        ((5, 3, 2), "aux_layers_order"),
        ((2, 3, 9), "aux_layers_out_of_range"),
        ((), "aux_layers_out_of_range"),
    ],
)
def test_aux_layers_are_checked(layers: tuple, code: str) -> None:
    assert codes(check_aux_layers(replace(CONFIG, aux_layers=layers), 8)) == [code]


@pytest.mark.parametrize(
    ("d2t", "t2d", "code"),
    [
        ([0, 0, 0, 0], T2D, "d2t_placeholder"),
        (KEPT, T2D, "d2t_absolute_ids"),
        ([3, 5, 8, 9], None, "d2t_absolute_ids"),
        (D2T, [True] * 5 + [False] * 5, "t2d_count_mismatch"),
        (D2T, [target in (1, 2, 5, 8) for target in range(10)], "vocab_map_inconsistent"),
        ([1, 0, 3, 6], None, "vocab_map_inconsistent"),
        ([1, 1, 3, 7], None, "vocab_map_inconsistent"),
    ],
)
def test_a_faulty_vocabulary_map_is_told_by_its_fault(d2t, t2d, code: str) -> None:
    assert codes(check_vocabulary_map(d2t, t2d, 10)) == [code]


def test_zeros_are_right_without_a_reduced_vocabulary() -> None:
    assert check_vocabulary_map([0] * 10, None, 10) == []
