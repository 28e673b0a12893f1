from __future__ import annotations

import pytest

from eagle3_backend.drafter.aux_layers import (
    SGLANG_COUNTING,
    check_ids,
    check_offset,
    default_layers,
    for_sglang,
    from_sglang,
)
from eagle3_backend.findings import FindingError


@pytest.mark.parametrize(
    ("architecture", "layers", "written", "n"),
    [
        ("LlamaForCausalLM", (2, 16, 29), (1, 15, 28), 32),
        ("LlamaForCausalLM", (0, 15, 27), (-1, 14, 26), 32),
        ("NeverHeardOfForCausalLM", (2, 16, 29), (1, 15, 28), 32),
        ("DeepseekV3ForCausalLM", (2, 30, 58), (1, 29, 57), 61),
        ("KimiK25ForConditionalGeneration", (3, 30, 58), (3, 30, 58), 61),
        ("DeepseekV3ForCausalLM", (0, 30, 58), (0, 30, 58), 61),
        ("GlmMoeDsaForCausalLM", (3, 39, 75), (3, 39, 75), 78),
        ("GptOssForCausalLM", (2, 12, 21), (1, 11, 20), 24),
        ("GptOssForCausalLM", (2, 12, 24), (1, 11, 23), 24),
        ("Gemma3ForCausalLM", (2, 12, 24), (1, 11, 23), 24),
    ],
)
def test_sglang_gets_the_list_that_it_reads_as_these_layers(architecture, layers, written, n) -> None:
    assert for_sglang(layers, architecture, n) == written
    assert from_sglang(written, architecture, n) == layers


@pytest.mark.parametrize(
    ("architecture", "layers", "n"),
    [("DeepseekV3ForCausalLM", (1, 30, 58), 61), ("LlamaForCausalLM", (2, 16, 32), 32)],
)
def test_layers_that_sglang_cannot_be_told_are_refused(architecture, layers, n) -> None:
    with pytest.raises(FindingError, match="aux_layers_inexpressible"):
        for_sglang(layers, architecture, n)


@pytest.mark.parametrize("architecture", ["GptOssForCausalLM", "Gemma3ForCausalLM"])
def test_older_releases_do_not_capture_the_last_layer(architecture) -> None:
    with pytest.raises(FindingError, match="aux_layers_inexpressible"):
        for_sglang((2, 12, 24), architecture, 24, (0, 5, 10))


@pytest.mark.parametrize(
    ("ids", "architecture", "version", "read"),
    [
        ((2, 30, 58), "DeepseekV3ForCausalLM", (0, 5, 10), (3, 31, 59)),
        ((2, 30, 58), "DeepseekV3ForCausalLM", (0, 5, 14), (2, 30, 58)),
        ((1, 11, 24), "GptOssForCausalLM", (0, 5, 14), (2, 12, 25)),
        ((1, 11, 24), "GptOssForCausalLM", (0, 5, 23), (1, 11, 24)),
    ],
)
def test_the_rule_depends_on_the_release(ids, architecture, version, read) -> None:
    assert from_sglang(ids, architecture, 24, version) == read


@pytest.mark.parametrize("architecture", sorted(SGLANG_COUNTING))
def test_every_known_target_can_be_told_the_default_layers(architecture: str) -> None:
    usual = default_layers(40)
    assert from_sglang(for_sglang(usual, architecture, 40), architecture, 40) == usual


@pytest.mark.parametrize(
    ("ids", "code"),
    [
        ((2, 2, 5), "aux_layers_duplicate"),
        ((5, 3, 2), "aux_layers_order"),
        ((2, 3, 9), "aux_layers_out_of_range"),
        ((-1, 3, 5), "aux_layers_out_of_range"),
        ((), "aux_layers_out_of_range"),
    ],
)
def test_ids_are_checked(ids: tuple, code: str) -> None:
    assert [finding.code for finding in check_ids(ids, 8)] == [code]
    assert check_ids((0, 4, 8), 8) == []


def test_ids_that_all_lie_one_beside_the_usual_ones_are_told() -> None:
    (finding,) = check_offset((1, 46, 90), 94)
    assert (finding.code, finding.expected) == ("aux_layers_offset", [2, 47, 91])
    (finding,) = check_offset((3, 31, 59), 61, "eagle_config.ids", (2, 30, 58))
    assert (finding.expected, finding.actual) == ([1, 29, 57], [2, 30, 58])
    assert check_offset((2, 47, 91), 94) == check_offset((1, 47, 91), 94) == check_offset((1, 46), 94) == []


def test_ids_out_of_range_are_told_without_a_target_too():
    (finding,) = check_ids((-1, 3, 5), None)
    assert "None" not in finding.message and finding.fix
