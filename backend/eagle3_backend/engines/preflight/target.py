"""The target of a launch: whether the engine drafts for it, runs its code and reaches as far as is planned."""

from __future__ import annotations

from typing import Iterator

from eagle3_backend.engines.preflight.launch import CONTEXT, Launch
from eagle3_backend.engines.targets import READ_VERSION, SUPPORTS_EAGLE3
from eagle3_backend.findings import Finding, error, warning

OVERRIDE = {"vllm": "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "sglang": "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"}
"""The variable that switches off an engine's own check of the context length."""

_BUILT_IN = ("deepseek_v2", "deepseek_v3", "deepseek_v32")
"""Model types that still carry code of their own on the hub, though engines know both config and tokenizer."""


def check_support(launch: Launch) -> Iterator[Finding]:
    """The target's class has to give hidden states of inner layers out."""
    if not launch.drafts or launch.text is None or not launch.text.architecture:
        return
    name = launch.text.architecture
    if name in SUPPORTS_EAGLE3[launch.engine]:
        return
    known = str(launch.number) == READ_VERSION[launch.engine]
    yield (error if known else warning)(
        "target_unsupported",
        f"{launch.release} is not known to have an EAGLE-3 path for {name}; the drafter is not at fault.",
        path="architectures[0]",
        actual=name,
        fix="Use the other engine or another version; if you know better, accept this finding.",
    )


def check_code(launch: Launch) -> Iterator[Finding]:
    """A config or tokenizer that is Python code of the model's own."""
    target = launch.target
    if target is None or not target.get("auto_map") or target.get("model_type") in _BUILT_IN:
        return
    if not launch.option("--trust-remote-code"):
        yield error(
            "trust_remote_code_missing",
            "The target's config or tokenizer is Python code of its own, and the launch does not allow it.",
            path="--trust-remote-code",
            expected=True,
            actual=None,
            fix="Read that code, then set target.trust_remote_code in the profile (--trust-remote-code).",
        )


def check_context(launch: Launch) -> Iterator[Finding]:
    """The target's own positions limit the context."""
    native = launch.text.max_position_embeddings if launch.text else None
    if native is None or launch.context is None or launch.context <= native:
        return
    allowed = _is_set(launch)
    yield (warning if allowed else error)(
        "context_too_long",
        f"The planned context is {launch.context} tokens, the target was made for {native}.",
        path=CONTEXT[launch.engine][0],
        expected=f"<= {native}",
        actual=launch.context,
        fix=f"Plan at most {native} tokens.",
    )


def check_override(launch: Launch) -> Iterator[Finding]:
    """A variable that hides what the length check would have said."""
    name = OVERRIDE[launch.engine]
    if _is_set(launch):
        yield warning(
            "context_override_set",
            f"{name} switches off the engine's own check of the context length: positions past a table then give "
            "wrong text or a crash in place of a message.",
            path=name,
            actual=launch.env[name],
            fix=f"Remove {name} unless the lengths were checked by hand.",
        )


def _is_set(launch: Launch) -> bool:
    return launch.env.get(OVERRIDE[launch.engine], "0").lower() not in ("", "0", "false")
