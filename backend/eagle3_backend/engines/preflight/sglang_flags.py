"""SGLang's speculative flags. Its parser checks names and types only; the rules across flags run after the weights of
a large target have been loaded, so they are known here."""

from __future__ import annotations

from typing import Any, Iterator

from eagle3_backend.engines.preflight.launch import Launch
from eagle3_backend.engines.preflight.vllm_flags import is_eagle3
from eagle3_backend.findings import Finding, error, warning

ALGORITHM = "--speculative-algorithm"
DRAFTER = ("--speculative-draft-model-path", "--speculative-draft-model")
STEPS = "--speculative-num-steps"
TOPK = "--speculative-eagle-topk"
TOKENS = "--speculative-num-draft-tokens"
QUANTISATION = "--speculative-draft-model-quantization"
CHAINS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
"""Algorithms that draft step by step; others take their numbers from elsewhere."""
CACHE = "--speculative-draft-kv-cache-dtype"


def check_algorithm(launch: Launch) -> Iterator[Finding]:
    """EAGLE starts with an EAGLE-3 drafter and accepts nothing, without a word."""
    if launch.engine != "sglang" or not launch.drafts:
        return
    algorithm = launch.options.get(ALGORITHM)
    if algorithm is None:
        yield error(
            "spec_algorithm_mismatch",
            "Flags of a drafter are given, but no algorithm: SGLang serves without drafting.",
            path=ALGORITHM,
            expected="EAGLE3",
            actual=None,
            fix=f"{ALGORITHM} EAGLE3",
        )
    elif is_eagle3(launch.drafter) and str(algorithm).upper() != "EAGLE3":
        yield error(
            "spec_algorithm_mismatch",
            f"The drafter is an EAGLE3 one. With {algorithm}, SGLang captures no aux layers, skips fc and puts the "
            "target's head in place of the drafter's: it starts and accepts nothing (sgl-project/sglang#21272).",
            path=ALGORITHM,
            expected="EAGLE3",
            actual=algorithm,
            fix=f"{ALGORITHM} EAGLE3",
        )
    elif is_eagle3(launch.drafter) is False and str(algorithm).upper() == "EAGLE3":
        yield error(
            "spec_algorithm_mismatch",
            "The algorithm is EAGLE3, but the drafter's architecture is that of another kind.",
            path=ALGORITHM,
            actual=algorithm,
            fix="Name the algorithm that this drafter was made for.",
        )
    if launch.option(*DRAFTER) is None and str(algorithm).upper() in ("EAGLE3", "STANDALONE"):
        yield error("drafter_path_missing", "No drafter is named.", path=DRAFTER[0], fix=f"{DRAFTER[0]} DIRECTORY")


def check_numbers(launch: Launch) -> Iterator[Finding]:
    """Steps, top-k and draft tokens come together; at top-k 1 the tokens are the steps and the root."""
    algorithm = str(launch.options.get(ALGORITHM, "EAGLE3")).upper()
    if launch.engine != "sglang" or not launch.drafts or algorithm not in CHAINS:
        return
    steps, topk, tokens = (launch.options.get(name) for name in (STEPS, TOPK, TOKENS))
    if steps is None and (topk is not None or tokens is not None):
        yield _incomplete(f"{STEPS} is left out", STEPS, topk, tokens)
    elif steps is not None and topk is None:
        yield _incomplete(f"{STEPS} is given without {TOPK}", TOPK, topk, tokens)
    elif topk == 1 and isinstance(steps, int) and tokens is not None and tokens != steps + 1:
        yield warning(
            "num_draft_tokens_mismatch",
            f"At top-k 1, {steps} steps verify {steps + 1} tokens, the root counted: SGLang will set that in place of "
            f"{tokens}.",
            path=TOKENS,
            expected=steps + 1,
            actual=tokens,
            fix=f"{TOKENS} {steps + 1}, or change {STEPS}.",
        )


def _incomplete(what: str, path: str, topk: Any, tokens: Any) -> Finding:
    return error(
        "sglang_spec_args_incomplete",
        f"{what}. SGLang takes {STEPS}, {TOPK} and {TOKENS} together or chooses all three by itself.",
        path=path,
        expected="all three or none",
        actual={STEPS: "given" if path != STEPS else None, TOPK: topk, TOKENS: tokens},
        fix=f"For k tokens in a chain: {STEPS} k {TOPK} 1 {TOKENS} k+1.",
    )


def check_quantisation(launch: Launch) -> Iterator[Finding]:
    """The target's --quantization is handed on to the drafter unless it has one of its own."""
    if launch.engine != "sglang" or not launch.drafts:
        return
    method = launch.options.get("--quantization")
    if method in (None, "unquant") or launch.options.get(QUANTISATION) is not None:
        return
    if launch.drafter is not None and not launch.drafter.get("quantization_config"):
        yield error(
            "quantization_inherited",
            f"SGLang would build the plain drafter with the target's quantisation, {method}.",
            path=QUANTISATION,
            expected="unquant",
            actual=None,
            fix=f"{QUANTISATION} unquant",
        )


def check_cache(launch: Launch) -> Iterator[Finding]:
    """The drafter's cache takes the target's dtype unless it is told its own."""
    if launch.engine != "sglang" or not launch.drafts:
        return
    own, inherited = launch.options.get(CACHE), launch.options.get("--kv-cache-dtype")
    value = own if own is not None else inherited
    if str(value).startswith("fp8"):
        yield warning(
            "draft_kv_fp8",
            "The drafter's cache would be FP8, and drafters carry no scales for it: keys and values are rounded as "
            "they come, which lowers acceptance.",
            path=CACHE if own is not None else "--kv-cache-dtype",
            expected="bfloat16",
            actual=value,
            fix=f"{CACHE} bfloat16, and compare the acceptance.",
        )


def check_tree(launch: Launch) -> Iterator[Finding]:
    """Pages of several tokens and a tree of drafts go together on some attention backends only."""
    topk, page, backend = (launch.options.get(name) for name in (TOPK, "--page-size", "--attention-backend"))
    several = isinstance(topk, int) and topk > 1 and isinstance(page, int) and page > 1
    if launch.engine == "sglang" and several and backend not in (None, "flashinfer", "fa3", "triton"):
        yield error(
            "option_value_invalid",
            f"A tree of drafts with pages of {page} tokens runs on flashinfer, fa3 and triton only.",
            path=TOPK,
            expected=1,
            actual=topk,
            fix=f"{TOPK} 1, or --page-size 1.",
        )
