"""Published drafters, read, converted and converted back: the same drafter, or a refusal with its reason.

The folder comes from EAGLE3_REFERENCE_CONFIGS (default ``../shared/reference-configs`` beside the repository).
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eagle3_backend.drafter.convert import convert_config
from eagle3_backend.drafter.diff import Kind, compare
from eagle3_backend.drafter.reading import FLAT, NESTED, layout_of, read_config
from eagle3_backend.findings import FindingError, Severity

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("EAGLE3_REFERENCE_CONFIGS") or HERE.parents[2] / "shared" / "reference-configs")
DRAFTERS = {path.stem: path for path in sorted(FOLDER.glob("*.json")) if not path.stem.startswith("target-")}
TARGETS = {
    "angelslim-qwen3-1_7b-eagle3": "qwen3-1_7b",
    "angelslim-qwen3-30b-a3b-eagle3": "qwen3-30b-a3b",
    "angelslim-qwen3-32b-eagle3": "qwen3-32b",
    "angelslim-qwen3-4b-eagle3": "qwen3-4b",
    "angelslim-qwen3-8b-eagle3": "qwen3-8b",
    "eagle-traineagle3": "llama-3_1-8b-instruct",
    "hf-aq-medai-kimi-k2-instruct-eagle3": "kimi-k2-instruct",
    "hf-aq-medai-kimi-k25-eagle3": "kimi-k2-instruct",
    "hf-nm-testing-eagle3-llama3_1-8b-converted": "llama-3_1-8b-instruct",
    "hf-nm-testing-gptoss20b-spec-eagle3": "gpt-oss-20b",
    "recon-jamesliu1-sglang-eagle3-llama-3_1-8b": "llama-3_1-8b-instruct",
    "recon-redhatai-qwen3-8b-thinking-speculator-eagle3": "qwen3-8b",
    "recon-yuhuili-eagle3-llama3_1-instruct-8b": "llama-3_1-8b-instruct",
    "specforge-deepseek-v3-671b-eagle3": "deepseek-v3",
    "specforge-gpt-oss-120b-eagle3": "gpt-oss-120b",
    "specforge-gpt-oss-20b-eagle3": "gpt-oss-20b",
    "specforge-llama3-8b-eagle3": "llama-3_1-8b-instruct",
    "specforge-qwen3-235b-a22b-eagle3": "qwen3-235b-a22b",
    "specforge-qwen3-30b-a3b-eagle3": "qwen3-30b-a3b",
    "specforge-qwen3-30b-a3b-eagle3_1": "qwen3-30b-a3b",
    "specforge-qwen3-32b-eagle3": "qwen3-32b",
    "specforge-qwen3-4b-eagle3": "qwen3-4b",
    "specforge-qwen3-8b-eagle3": "qwen3-8b",
    "torchspec-kimi_k25_eagle3_moe": "kimi-k2-instruct",
}
REFUSED = {
    "hf-redhatai-llama-3_1-8b-speculator-eagle3-partial": "drafter_config_invalid",  # the file ends before its layer
    "torchspec-kimi_k25_eagle3_moe": "architecture_unsupported",  # latent attention has no nested layout
}
TOLD = {
    "architecture_renamed": "architectures",
    "tie_word_embeddings_draft": "tie_word_embeddings",
    "aux_layers_for_vllm": "eagle_aux_hidden_state_layer_ids",
}
"""What a conversion puts right and says so: code and key."""
UNTIED = {"angelslim-qwen3-1_7b-eagle3", "angelslim-qwen3-4b-eagle3"}


def config_of(stem: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{stem}.json").read_text(encoding="utf-8"))


def target_of(stem: str) -> dict[str, Any] | None:
    return config_of(f"target-{TARGETS[stem]}") if stem in TARGETS else None


def test_the_reference_configs_are_there() -> None:
    if not DRAFTERS:
        if os.environ.get("CI"):
            pytest.fail(f"the reference configs are required in CI and are not at {FOLDER}")
        pytest.skip(f"no reference configs at {FOLDER}: set EAGLE3_REFERENCE_CONFIGS")
    assert {*TARGETS, *REFUSED, *UNTIED} <= {*DRAFTERS}


@pytest.mark.parametrize("stem", [stem for stem in DRAFTERS if stem not in REFUSED])
def test_a_published_drafter_survives_the_way_there_and_back(stem: str) -> None:
    config, target = config_of(stem), target_of(stem)
    before = read_config(config, target)
    other = NESTED if before.layout == FLAT else FLAT
    verifier = before.packaging.verifier or "org/target"
    there = convert_config(config, other, target, verifier=verifier, engines=("vllm",))
    assert layout_of(there.config) == other
    back = convert_config(there.config, before.layout, target, engines=("vllm",))
    after = read_config(back.config, target)
    assert after.drafter == replace(before.drafter, tie_word_embeddings=False)
    assert after.packaging == replace(
        before.packaging,
        verifier=verifier,
        verifier_architectures=after.packaging.verifier_architectures,
        speculative_tokens=before.packaging.speculative_tokens or 3,
    )
    codes = {finding.code for finding in there.findings}
    assert (stem in UNTIED) == before.drafter.tie_word_embeddings == ("tie_word_embeddings_draft" in codes)
    # Ids for SGLang alone mean something only with the target at hand; nothing else stops a published drafter.
    doubtful = ["aux_layers_target_unknown"] if before.engine_ids and target is None else []
    assert [finding.code for finding in there.findings if finding.severity is Severity.ERROR] == doubtful
    # The comparison reads both files in its own way, and agrees.
    for written in (there.config, back.config):
        rows = compare(config, written, target)
        broken = {row.path for row in rows if row.kind in (Kind.BREAKING, Kind.UNKNOWN)}
        assert broken <= {TOLD[code] for code in codes & TOLD.keys()}


@pytest.mark.parametrize("stem", [stem for stem in REFUSED if stem in DRAFTERS])
def test_a_drafter_that_the_other_layout_cannot_hold_is_refused(stem: str) -> None:
    config = config_of(stem)
    with pytest.raises(FindingError) as raised:
        convert_config(config, NESTED if layout_of(config) == FLAT else FLAT, target_of(stem), verifier="org/target")
    assert raised.value.findings[-1].code == REFUSED[stem]


def test_latent_attention_survives_in_its_own_layout() -> None:
    stem = "torchspec-kimi_k25_eagle3_moe"
    if stem not in DRAFTERS:
        pytest.skip("no reference configs")
    config, target = config_of(stem), target_of(stem)
    again = convert_config(config, FLAT, target)
    assert read_config(again.config, target).drafter == read_config(config, target).drafter
    assert (again.config["model_type"], again.config["n_routed_experts"]) == ("kimi_k2", 384)
    assert again.config["eagle_config"]["use_mtp_layernorm"] is False


@pytest.mark.parametrize("name", [name for name in DRAFTERS if name not in REFUSED])
def test_reader_and_comparison_know_the_same_keys(name: str) -> None:
    """A key that one of them does not know is unknown to the other as well."""
    config = json.loads(DRAFTERS[name].read_text(encoding="utf-8"))
    others = {path for row in compare(config, {}) if row.group == "Other keys" for path in row.left.paths}
    assert others == set(read_config(config).unknown)
