"""vLLM's speculative config, as far as it can be judged without the engine."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional

from eagle3_backend.drafter.reading import NESTED, layout_of
from eagle3_backend.engines.preflight.launch import SINGLE, SPECULATIVE, Launch
from eagle3_backend.findings import Finding, error, warning

_PATH_WORDS = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))
"""How vLLM guesses a method from the lower-cased path of the drafter, in order; without any, a plain draft model."""

_SUPPLIES_METHOD = "speculators_model_type"


def guessed_method(model: str) -> str:
    """The method that vLLM takes for a drafter at this path when none is named (vllm/config/speculative.py)."""
    return next((method for word, method in _PATH_WORDS if word in model.lower()), "draft_model")


def is_eagle3(drafter: Optional[Mapping[str, Any]]) -> Optional[bool]:
    """Whether a config is that of an EAGLE-3 drafter; None where there is none or it does not say."""
    if drafter is None:
        return None
    if layout_of(drafter) == NESTED:
        return drafter.get(_SUPPLIES_METHOD) == "eagle3"
    name = str((drafter.get("architectures") or [""])[0])
    if "eagle3" in name.lower() or "draft_vocab_size" in drafter or "eagle_config" in drafter:
        return True
    return False if name.startswith("Eagle") else None


def check_json(launch: Launch) -> Iterator[Finding]:
    """The config has to be a JSON object."""
    value = launch.options.get(SPECULATIVE)
    if launch.engine == "vllm" and value is not None and launch.speculative is None:
        yield error(
            "option_value_invalid",
            "The speculative config is no JSON object.",
            path=SPECULATIVE,
            expected='{"method":"eagle3","model":"DRAFTER","num_speculative_tokens":3}',
            actual=str(value)[:200],
        )
    for flag, key in SINGLE.items():
        if flag in launch.options and isinstance(value, Mapping) and key in value:
            yield error(
                "option_given_twice",
                f"{flag} and the key {key} of {SPECULATIVE} say the same thing; vLLM refuses both together.",
                path=flag,
                actual=launch.options[flag],
                fix=f"Leave {flag} out.",
            )


def check_method(launch: Launch) -> Iterator[Finding]:
    """The method has to be named, and be that of the drafter at hand."""
    config = launch.speculative
    if config is None or launch.capture:
        return
    method, path = config.get("method"), f"{SPECULATIVE}.method"
    if method is None:
        yield from _missing_method(launch, config, path)
    elif method in ("eagle", "draft_model") and is_eagle3(launch.drafter):
        yield error(
            "spec_algorithm_mismatch",
            f"The drafter is an EAGLE-3 one, the method is {method}.",
            path=path,
            expected="eagle3",
            actual=method,
            fix="Write method: eagle3.",
        )
    elif method == "eagle3" and is_eagle3(launch.drafter) is False:
        yield error(
            "spec_algorithm_mismatch",
            "The method is eagle3, but the drafter's architecture is that of another kind.",
            path=path,
            actual=method,
            fix="Name the method that this drafter was made for.",
        )


def _missing_method(launch: Launch, config: Mapping[str, Any], path: str) -> Iterator[Finding]:
    model = str(config.get("model", ""))
    if launch.drafter is not None and layout_of(launch.drafter) == NESTED:
        return
    guess = guessed_method(model)
    word = next((word for word, method in _PATH_WORDS if method == guess and word in model.lower()), "")
    why = f"its path contains '{word}'" if word else "its path names no method"
    if guess == "eagle3":
        yield warning(
            "spec_method_missing",
            f"No method is given; {launch.release} takes eagle3 here, because {why}, and something else once the "
            "drafter is moved.",
            path=path,
            expected="eagle3",
            actual=None,
            fix="Write method: eagle3.",
        )
    else:
        yield error(
            "spec_method_missing",
            f"No method is given, and {launch.release} takes {guess} for this drafter, because {why}.",
            path=path,
            expected="eagle3",
            actual=None,
            fix="Write method: eagle3.",
        )


def check_depth(launch: Launch) -> Iterator[Finding]:
    """The number of draft tokens has to come from somewhere."""
    config = launch.speculative
    if config is None or launch.capture:
        return
    path, depth = f"{SPECULATIVE}.num_speculative_tokens", config.get("num_speculative_tokens")
    if depth is None and not _supplies_depth(launch.drafter):
        yield error(
            "num_speculative_tokens_missing",
            "Nothing says how many tokens to draft: neither the launch nor the drafter's config.",
            path=path,
            expected=">= 1",
            actual=None,
            fix="Write num_speculative_tokens: 3, or fewer if the drafter was trained for fewer steps.",
        )
    elif depth is not None and (not isinstance(depth, int) or depth < 1):
        yield error(
            "option_value_invalid", "At least one token must be drafted.", path=path, expected=">= 1", actual=depth
        )


def _supplies_depth(drafter: Optional[Mapping[str, Any]]) -> bool:
    if drafter is None:
        return False
    proposals = (drafter.get("speculators_config") or {}).get("proposal_methods") or [{}]
    return bool(drafter.get("n_predict") or proposals[0].get("speculative_tokens"))


def check_draft_parallel(launch: Launch) -> Iterator[Finding]:
    """vLLM splits a drafter over all GPUs of the target or over none."""
    size = (launch.speculative or {}).get("draft_tensor_parallel_size")
    allowed = sorted({1, launch.tensor_parallel})
    if size is not None and size not in allowed:
        yield error(
            "draft_tp_invalid",
            f"A drafter runs on one GPU or on as many as its target ({launch.tensor_parallel}), not on {size}.",
            path=f"{SPECULATIVE}.draft_tensor_parallel_size",
            expected=allowed,
            actual=size,
            fix="Leave it out, or write 1.",
        )


def check_cache(launch: Launch) -> Iterator[Finding]:
    """The drafter's cache takes the target's dtype unless it is told its own."""
    own = (launch.speculative or {}).get("kv_cache_dtype")
    inherited = launch.options.get("--kv-cache-dtype")
    value = own if own is not None else inherited
    if launch.drafts and launch.speculative is not None and str(value).startswith("fp8"):
        yield warning(
            "draft_kv_fp8",
            "The drafter's cache would be FP8, and drafters carry no scales for it: keys and values are rounded as "
            "they come, which lowers acceptance.",
            path=f"{SPECULATIVE}.kv_cache_dtype" if own is not None else "--kv-cache-dtype",
            expected="auto",
            actual=value,
            fix="Write kv_cache_dtype: auto into --speculative-config, and compare the acceptance.",
        )
