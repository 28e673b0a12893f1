"""Published drafters before their targets: what is told of each was reviewed, and nothing else is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from eagle3_backend.drafter.checks import check
from eagle3_backend.findings import Severity

HERE = Path(__file__).parent
FOLDER = Path(os.environ.get("EAGLE3_REFERENCE_CONFIGS") or HERE.parents[2] / "shared" / "reference-configs")

NO_IDS = "aux_layers_missing"
# Trained on 2048 positions with base 10000 for a target with 131072 and base 500000, or so.
OLD_TABLE = "max_position_too_short rope_theta_mismatch"
ANGELSLIM = (NO_IDS, f"{NO_IDS} architecture_unsupported")
SPECULATORS = (NO_IDS, f"{NO_IDS} model_type_missing norm_before_residual_unsupported")
SHORT = (f"{NO_IDS} max_position_too_short",) * 2

REVIEWED: dict[str, tuple[str, str, str]] = {
    # drafter: (target, codes on vLLM, codes on SGLang)
    "angelslim-qwen3-1_7b-eagle3": ("qwen3-1_7b", NO_IDS, f"{ANGELSLIM[1]} tie_word_embeddings_draft"),
    "angelslim-qwen3-4b-eagle3": ("qwen3-4b", NO_IDS, f"{ANGELSLIM[1]} tie_word_embeddings_draft"),
    "angelslim-qwen3-8b-eagle3": ("qwen3-8b", *ANGELSLIM),
    "angelslim-qwen3-14b-eagle3": ("", *ANGELSLIM),
    "angelslim-qwen3-32b-eagle3": ("qwen3-32b", *ANGELSLIM),
    "angelslim-qwen3-30b-a3b-eagle3": ("qwen3-30b-a3b", *ANGELSLIM),
    "eagle-traineagle3": (
        "llama-3_1-8b-instruct",
        f"{NO_IDS} {OLD_TABLE}",
        f"{NO_IDS} {OLD_TABLE} architecture_generic",
    ),
    "recon-yuhuili-eagle3-llama3_1-instruct-8b": (
        "llama-3_1-8b-instruct",
        f"{NO_IDS} {OLD_TABLE}",
        f"{NO_IDS} {OLD_TABLE} architecture_generic",
    ),
    "recon-jamesliu1-sglang-eagle3-llama-3_1-8b": ("llama-3_1-8b-instruct", *(f"{NO_IDS} {OLD_TABLE}",) * 2),
    "hf-aq-medai-kimi-k2-instruct-eagle3": ("kimi-k2-instruct", "rope_theta_mismatch", "rope_theta_mismatch"),
    "hf-aq-medai-kimi-k25-eagle3": ("kimi-k2-instruct", "rope_theta_mismatch", "rope_theta_mismatch"),
    "hf-mahmoudhas9-tiny-eagle3": ("", NO_IDS, NO_IDS),
    "hf-inference-optimization-mistral3-speculator-dummy": ("", *SPECULATORS),
    "hf-nm-testing-eagle3-llama3_1-8b-converted": (
        "llama-3_1-8b-instruct",
        f"{NO_IDS} {OLD_TABLE}",
        f"{NO_IDS} {OLD_TABLE} model_type_missing",
    ),
    "hf-nm-testing-gptoss20b-spec-eagle3": ("gpt-oss-20b", f"{NO_IDS} verifier_path_local", SPECULATORS[1]),
    "hf-redhatai-llama-3_1-8b-speculator-eagle3-partial": (
        "llama-3_1-8b-instruct",
        "drafter_config_invalid",
        "drafter_config_invalid",
    ),
    # Reconstructed without sizes that vLLM takes from a nested layer as they are.
    "recon-redhatai-qwen3-8b-thinking-speculator-eagle3": (
        "qwen3-8b",
        f"{NO_IDS} {OLD_TABLE} drafter_config_invalid",
        f"{SPECULATORS[1]} {OLD_TABLE}",
    ),
    "specforge-deepseek-v3-671b-eagle3": ("deepseek-v3", "aux_layers_offset", ""),
    "specforge-gpt-oss-20b-eagle3": ("gpt-oss-20b", SHORT[0], "max_position_too_short"),
    "specforge-gpt-oss-120b-eagle3": ("gpt-oss-120b", SHORT[0], "max_position_too_short"),
    "specforge-llama3-8b-eagle3": ("llama-3_1-8b-instruct", *(f"{NO_IDS} {OLD_TABLE}",) * 2),
    "specforge-llama4-scout-17b-16e-eagle3": ("", NO_IDS, NO_IDS),
    "specforge-qwen2-5-vl-7b-eagle3": ("", NO_IDS, NO_IDS),
    "specforge-qwen2_5-7b-eagle3": ("", NO_IDS, NO_IDS),
    "specforge-qwen3-4b-eagle3": ("qwen3-4b", NO_IDS, NO_IDS),
    "specforge-qwen3-8b-eagle3": ("qwen3-8b", NO_IDS, NO_IDS),
    "specforge-qwen3-32b-eagle3": ("qwen3-32b", NO_IDS, NO_IDS),
    "specforge-qwen3-30b-a3b-eagle3": ("qwen3-30b-a3b", *SHORT),
    "specforge-qwen3-30b-a3b-eagle3_1": ("qwen3-30b-a3b", *SHORT),
    "specforge-qwen3-235b-a22b-eagle3": ("qwen3-235b-a22b", "aux_layers_offset", ""),
    "specforge-qwen3-next-80b-a3b-eagle3": ("", NO_IDS, NO_IDS),
    "specforge-qwq-32b-eagle3": ("", NO_IDS, NO_IDS),
    "torchspec-kimi_k25_eagle3_moe": (
        "kimi-k2-instruct",
        f"aux_layers_offset {OLD_TABLE} experts_unsupported",
        f"{OLD_TABLE} experts_unsupported",
    ),
}


def config_of(stem: str) -> dict[str, Any]:
    path = FOLDER / f"{stem}.json"
    if not path.exists():
        pytest.skip(f"no reference config {path}: set EAGLE3_REFERENCE_CONFIGS")
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_published_drafter_was_reviewed() -> None:
    there = {path.stem for path in FOLDER.glob("*.json") if not path.stem.startswith("target-")}
    if not there and os.environ.get("CI"):
        pytest.fail(f"the reference configs are required in CI and are not at {FOLDER}")
    assert there <= {*REVIEWED}


@pytest.mark.parametrize("stem", REVIEWED)
def test_a_published_drafter_is_told_what_was_reviewed(stem: str) -> None:
    target, *wanted = REVIEWED[stem]
    told = [
        {
            finding.code
            for finding in check(config_of(stem), engine, target=config_of(f"target-{target}") if target else None)
            if finding.severity is not Severity.INFO
        }
        for engine in ("vllm", "sglang")
    ]
    assert told == [set(codes.split()) for codes in wanted]
