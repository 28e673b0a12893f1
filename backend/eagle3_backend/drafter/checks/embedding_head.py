"""Widths of drafter and target, and what the drafter shares with it: embedding and head."""

from __future__ import annotations

from typing import Iterator, Optional

from eagle3_backend.drafter.checks.shapes import width_is_the_fault
from eagle3_backend.drafter.checks.subject import Subject
from eagle3_backend.findings import Finding, error, info, warning

_HEAD, _EMBEDDING = "lm_head.weight", "embed_tokens.weight"


def check_target_width(subject: Subject) -> Iterator[Finding]:
    """``fc`` reads streams as wide as the target."""
    drafter, target = subject.drafter, subject.target
    path = subject.path("target_hidden_size")
    absent = "target_hidden_size" in subject.reading.absent
    if not subject.nested and "target_hidden_size" in subject.config and absent and _multiplies(subject):
        yield error(
            "target_hidden_size_null",
            f"target_hidden_size is null, and {subject.release} multiplies it by the number of aux layers.",
            path=path,
            expected=target.hidden_size if target and target.hidden_size else drafter.hidden_size,
            fix="Write the target's hidden_size, or leave the key out.",
        )
        return
    width = target.hidden_size if target else None
    if width is None or drafter.target_hidden_size == width:
        return
    if _is_width_untold(subject):
        yield error(
            "target_hidden_size_missing",
            f"The drafter is {drafter.hidden_size} wide, its target {width}, and the config does not say so: "
            f"{subject.release} builds fc for streams of {drafter.hidden_size}.",
            path=path,
            expected=width,
            fix=f"Write target_hidden_size: {width}.",
        )
    else:
        yield error(
            "hidden_size_mismatch",
            f"The drafter reads streams of width {drafter.target_hidden_size}, the target's are {width} wide: it was "
            "made for another target.",
            path=subject.path("hidden_size") if absent else path,
            expected=width,
            actual=drafter.target_hidden_size,
            fix="Use a drafter that was trained for this target.",
        )


def check_embedding(subject: Subject) -> Iterator[Finding]:
    """The target's embedding serves a drafter of its width; another width needs an embedding of its own."""
    width = subject.drafter.target_hidden_size
    if _is_width_untold(subject) and subject.target and subject.target.hidden_size:
        width = subject.target.hidden_size
    own = subject.drafter.hidden_size != width
    if own and subject.weights_known and _EMBEDDING not in subject.tensors:
        yield error(
            "embed_tokens_missing",
            f"The drafter is {subject.drafter.hidden_size} wide and its target is not, so it cannot use the target's "
            "embedding; the file has none, and it stays untrained.",
            path=_EMBEDDING,
            expected=[subject.drafter.vocab_size, subject.drafter.hidden_size],
            fix="Add the embedding that the drafter was trained with.",
        )
    elif not own and not subject.can("keeps_own_embedding"):
        yield from _embedding_replaced(subject)


def _is_width_untold(subject: Subject) -> bool:
    """Whether the config says no target_hidden_size and nothing tells that it means the drafter's own width."""
    absent = "target_hidden_size" in subject.reading.absent
    return absent and (width_is_the_fault(subject) or "fc.weight" not in subject.tensors)


def _embedding_replaced(subject: Subject) -> Iterator[Finding]:
    """SGLang puts the target's embedding in place of one that the drafter brings."""
    message = f"{subject.release} uses the target's embedding instead of the drafter's own"
    if subject.config.get("embed_requires_grad") is True:
        yield warning(
            "embedding_replaced",
            f"{message}, which was trained: fewer tokens are accepted.",
            path="embed_requires_grad",
            actual=True,
            fix="Serve it with vLLM, or train with the target's embedding kept as it is.",
        )
    elif _EMBEDDING in subject.tensors:
        yield info("embedding_replaced", f"{message}; that is the same unless it was trained.", path=_EMBEDDING)


def check_head(subject: Subject) -> Iterator[Finding]:
    """A missing head is right only where the engine takes the target's."""
    drafter = subject.drafter
    if not subject.weights_known or _HEAD in subject.tensors:
        return
    alike = drafter.draft_vocab_size == drafter.vocab_size and drafter.hidden_size == drafter.target_hidden_size
    shared = alike if subject.can("shares_head") else _is_null(subject, "draft_vocab_size")
    if not shared:
        yield error(
            "lm_head_missing",
            f"The file has no {_HEAD}, and {subject.release} does not use the target's head instead: it serves an "
            "untrained one, and nothing is accepted.",
            path=_HEAD,
            expected=[drafter.draft_vocab_size, drafter.hidden_size],
            fix="Add the head that the drafter was trained with.",
        )


def check_draft_vocabulary(subject: Subject) -> Iterator[Finding]:
    """How many tokens the head knows has to be written where the engine has no default, or another one."""
    drafter = subject.drafter
    if subject.seen.get("draft_vocab_size") is not None:
        return
    rows = _head_rows(subject) or _truncated(subject)
    reduced = rows is not None and rows < drafter.vocab_size
    if _stops_without_size(subject):
        consequence = "has no default for it and stops"
    elif not reduced:
        return
    elif subject.engine == "sglang":
        consequence = f"uses the target's head of {drafter.vocab_size} rows in its place"
    else:
        consequence = f"builds a head for all {drafter.vocab_size} tokens and stops at these weights"
    head = f"; the head has {rows} rows of {drafter.vocab_size}" if reduced else ""
    yield error(
        "draft_vocab_size_missing",
        f"draft_vocab_size is not written: {subject.release} {consequence}{head}.",
        path="draft_vocab_size",
        expected=rows or drafter.vocab_size,
        fix=f"Write draft_vocab_size: {rows or drafter.vocab_size}.",
    )


def check_tied(subject: Subject) -> Iterator[Finding]:
    """A drafter with a head of its own must not be tied to its embedding."""
    drafter = subject.drafter
    own_head = _HEAD in subject.tensors or drafter.draft_vocab_size < drafter.vocab_size
    if not drafter.tie_word_embeddings or not own_head:
        return
    path = subject.path("tie_word_embeddings")
    if subject.engine == "vllm":
        message = "tie_word_embeddings is true for a drafter with its own head; vLLM does not look at it, SGLang does."
        yield info("tie_word_embeddings_draft", message, path=path, expected=False, actual=True, fix="Write false.")
        return
    yield error(
        "tie_word_embeddings_draft",
        f"tie_word_embeddings is true, so {subject.release} uses the embedding as head and leaves the trained "
        f"{_HEAD} unused.",
        path=path,
        expected=False,
        actual=True,
        fix="Write tie_word_embeddings: false.",
    )


def _multiplies(subject: Subject) -> bool:
    known = subject.drafter_class
    return not (subject.engine == "sglang" and known is not None and known.attention == "mla")


def _stops_without_size(subject: Subject) -> bool:
    """SGLang's Llama class asks for the attribute itself; null is a value to it."""
    flat = subject.engine == "sglang" and not subject.nested and not _is_null(subject, "draft_vocab_size")
    return flat and not (subject.drafter_class and subject.drafter_class.attention == "mla")


def _is_null(subject: Subject, key: str) -> bool:
    return key in subject.seen and subject.seen[key] is None


def _head_rows(subject: Subject) -> Optional[int]:
    head = subject.tensors.get(_HEAD)
    return head.shape[0] if head is not None and head.shape else None


def _truncated(subject: Subject) -> Optional[int]:
    """Some trainers write the size under a key that no engine's EAGLE-3 class reads."""
    value = subject.layer.get("truncated_vocab_size")
    return value if isinstance(value, int) else None
