"""Rotary embedding and position table, against the target's and against the context that will be served."""

from __future__ import annotations

from typing import Iterator

from eagle3_backend.drafter import rope
from eagle3_backend.drafter.checks.subject import Subject
from eagle3_backend.findings import Finding, error, warning

_OVERRIDE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


def check_rope(subject: Subject) -> Iterator[Finding]:
    """Frequencies, not keys: a drafter may have been trained with others, but most were not."""
    drafter, target = subject.drafter, subject.target
    if target is None or not any(target.text.get(key) for key in ("rope_theta", rope.OLD, rope.NEW)):
        return
    if rope.same_rotation(drafter.rope, target.rope, drafter.rope_dim):
        return
    same_base = drafter.rope.theta == target.rope.theta
    path = subject.layer_path(rope.theta_path(subject.layer)) if not same_base else subject.path("rope")
    drafts, targets = (drafter.rope.scaling, target.rope.scaling) if same_base else (drafter.rope, target.rope)
    yield warning(
        "rope_theta_mismatch",
        f"The drafter rotates by {_words(drafter.rope)}, the target by {_words(target.rope)}; that is right only if "
        "the drafter was trained so.",
        path=path,
        expected=targets if same_base else target.rope.theta,
        actual=drafts if same_base else drafter.rope.theta,
        fix="Write what the drafter was trained with: in most trainers, the target's own.",
    )


def check_mrope(subject: Subject) -> Iterator[Finding]:
    """vLLM refuses multimodal members with parallel drafting."""
    parallel = subject.architecture.lower().startswith("peagle")
    if parallel and subject.can("parallel_drafting") and "mrope_section" in subject.drafter.rope.members:
        yield error(
            "rope_mrope_unsupported",
            f"{subject.release} refuses multimodal rotary members in a drafter that drafts in parallel.",
            path=f"{subject.path('rope')}.mrope_section",
            actual=subject.drafter.rope.members["mrope_section"],
            fix="Remove mrope_section and type: drafters see text positions only.",
        )


def check_table(subject: Subject) -> Iterator[Finding]:
    """The position table has to reach as far as the context that is served."""
    table, target, native = _table(subject), subject.target, None
    if target is not None and target.max_position_embeddings:
        native = _stretched(target.max_position_embeddings, target.rope)
    if subject.context is not None and table < subject.context:
        yield _too_short(subject, subject.context)
    elif subject.context is None and native and table < native:
        yield warning(
            "max_position_too_short",
            f"The drafter's position table ends at {table}, the target's at {native}: past it the drafter was not "
            "trained, and some engines refuse to go there.",
            path=subject.path("max_position_embeddings"),
            expected=native,
            actual=table,
            fix="Name the context that you will serve with --context to have it judged.",
        )


def _too_short(subject: Subject, context: int) -> Finding:
    table = _table(subject)
    enlarged = subject.can("raises_position_table") or bool(subject.environment.get(_OVERRIDE, "0") not in ("0", ""))
    if enlarged:
        consequence = "enlarges it, but the drafter was not trained on what lies past it"
    elif subject.engine == "sglang":
        consequence = f"refuses to start unless {_OVERRIDE} is set"
    else:
        consequence = "reads past its end, or stops there where it is compiled"
    return (warning if enlarged else error)(
        "max_position_too_short",
        f"The drafter's position table ends at {table}, the context at {context}: {subject.release} {consequence}.",
        path=subject.path("max_position_embeddings"),
        expected=context,
        actual=table,
        fix=f"Serve at most {table} tokens, or write max_position_embeddings: {context} and measure long prompts.",
    )


def _table(subject: Subject) -> int:
    return _stretched(subject.drafter.max_position_embeddings, subject.drafter.rope)


def _stretched(positions: int, rotary: rope.Rope) -> int:
    """Positions that a table covers; a scaling that does not name the original length stretches it.

    As `get_context_length` in sglang `srt/utils/hf_transformers/common.py`.
    """
    factor = rotary.members.get("factor", 1)
    if rotary.kind == "llama3" or "original_max_position_embeddings" in rotary.members:
        factor = 1
    return int(positions * factor) if isinstance(factor, (int, float)) else positions


def _words(value: rope.Rope) -> str:
    scaling = "" if value.scaling is None else f" with {value.kind} scaling"
    return f"base {value.theta:.10g}{scaling}"
