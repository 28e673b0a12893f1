"""The two vocabularies and the maps between them.

``d2t`` holds target id minus draft id, so a target id is ``draft id + d2t[draft id]``; ``t2d`` flags the target ids
that have a draft id. Both engines take a drafter without maps silently and use draft ids as target ids.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Sequence

from eagle3_backend.drafter.checks.subject import Subject
from eagle3_backend.findings import Finding, error, warning

_INTEGERS = ("int64", "int32", "int16", "int8", "uint8")


def check_vocab_size(subject: Subject) -> Iterator[Finding]:
    """Draft and target have to speak of the same token ids."""
    drafter, target = subject.drafter, subject.target
    if target is not None and target.vocab_size and drafter.vocab_size != target.vocab_size:
        yield error(
            "vocab_size_mismatch",
            f"The drafter was made for a vocabulary of {drafter.vocab_size}, the target has {target.vocab_size}: their "
            "token ids do not mean the same, and no engine compares them.",
            path=subject.path("vocab_size"),
            expected=target.vocab_size,
            actual=drafter.vocab_size,
            fix="Use a drafter that was trained for this target.",
        )
    if drafter.draft_vocab_size > drafter.vocab_size:
        yield error(
            "draft_vocab_size_invalid",
            "The draft vocabulary is a part of the target's, so it cannot be larger.",
            path=subject.path("draft_vocab_size"),
            expected=f"<= {drafter.vocab_size}",
            actual=drafter.draft_vocab_size,
            fix="Write the number of rows of lm_head.weight.",
        )


def check_token_ids(subject: Subject) -> Iterator[Finding]:
    """Engines use the target's tokenizer; one beside the drafter tells what it was trained with."""
    drafts, targets = subject.token_ids or ({}, {})
    odd = next((token for token, number in drafts.items() if targets.get(token) != number), None)
    if odd is not None:
        yield error(
            "tokenizer_mismatch",
            f"The tokenizer beside the drafter gives {odd!r} the id {drafts[odd]}, the target's {targets.get(odd)}: "
            "the drafter learnt other ids than it is fed.",
            path="tokenizer.json",
            expected=targets.get(odd),
            actual=drafts[odd],
            fix="Use a drafter that was trained for this target.",
        )


def check_maps_present(subject: Subject) -> Iterator[Finding]:
    """A reduced vocabulary needs ``d2t``; ``t2d`` is for trainers and converters."""
    drafter = subject.drafter
    if not subject.weights_known:
        return
    if drafter.draft_vocab_size >= drafter.vocab_size:
        yield from _idle_map(subject)
        return
    if "d2t" not in subject.tensors:
        yield error(
            "d2t_missing",
            f"The draft vocabulary is reduced ({drafter.draft_vocab_size} of {drafter.vocab_size}) without d2t: "
            f"{subject.release} takes draft ids for target ids without a word, and almost nothing is accepted.",
            path="d2t",
            expected=[drafter.draft_vocab_size],
            fix="Add the map that the drafter was trained with.",
        )
    if "t2d" not in subject.tensors:
        yield warning(
            "t2d_missing",
            "There is no t2d; engines do not read it, but trainers and converters do.",
            path="t2d",
            expected=[drafter.vocab_size],
            fix="Converting the drafter rebuilds it from d2t.",
        )


def _idle_map(subject: Subject) -> Iterator[Finding]:
    """A map of the whole vocabulary is the identity, if it is right; one of another length is a matter of sizes."""
    d2t = subject.tensors.get("d2t")
    if d2t is not None and d2t.shape == (subject.drafter.vocab_size,) and not subject.can("takes_idle_d2t"):
        yield error(
            "d2t_idle",
            f"The draft vocabulary is the whole one, so d2t does nothing; {subject.release} has no place for it then "
            "and stops at it.",
            path="d2t",
            fix="Leave d2t and t2d out, as a conversion does: eagle3-tui convert DRAFTER OUT --to flat.",
        )


def check_map_dtypes(subject: Subject) -> Iterator[Finding]:
    """``d2t`` is added to ids, so it has to hold whole numbers; ``t2d`` is a flag a target id."""
    d2t, t2d = subject.tensors.get("d2t"), subject.tensors.get("t2d")
    if d2t is not None and d2t.dtype not in _INTEGERS:
        message = f"d2t is {d2t.dtype}; ids are whole numbers, and not every engine turns these into such."
        yield error("d2t_dtype", message, path="d2t", expected="int64", actual=d2t.dtype, fix="Store it as int64.")
    if t2d is not None and t2d.dtype not in ("bool", *_INTEGERS):
        message = f"t2d is {t2d.dtype}; trainers and converters use it as a mask, which has to be boolean."
        yield warning("t2d_dtype", message, path="t2d", expected="bool", actual=t2d.dtype, fix="Store it as bool.")


def check_maps(subject: Subject) -> Iterator[Finding]:
    """What the maps say, as far as their values can be read."""
    if subject.inventory is None or subject.drafter.draft_vocab_size > subject.drafter.vocab_size:
        return
    d2t, t2d = (_values(subject, name) for name in ("d2t", "t2d"))
    if d2t is not None and len(d2t) == subject.drafter.draft_vocab_size:
        yield from map_findings(d2t, t2d, subject.drafter.vocab_size)


def map_findings(d2t: Sequence[int], t2d: Optional[Sequence[int]], vocab_size: int) -> List[Finding]:
    """The faults of a pair of maps; the first that explains ``d2t``, and the number of flags of ``t2d``."""
    size = len(d2t)
    if size >= vocab_size:
        return _full_vocabulary(d2t)
    kept = None if t2d is None else [target for target, flag in enumerate(t2d) if flag]
    found = _map_fault(d2t, kept, vocab_size)
    if kept is not None and len(kept) != size:
        found.append(
            error(
                "t2d_count_mismatch",
                f"t2d flags {len(kept)} target ids, the draft vocabulary has {size}.",
                path="t2d",
                expected=size,
                actual=len(kept),
                fix="Store t2d anew; a conversion makes it from d2t where it is left out.",
            )
        )
    return found


def map_facts(subject: Subject) -> Dict[str, Any]:
    """What the maps hold, for those who want to look: flags of ``t2d``, and the largest target id of ``d2t``."""
    facts: Dict[str, Any] = {}
    if subject.inventory is None:
        return facts
    d2t, t2d = (_values(subject, name) for name in ("d2t", "t2d"))
    if d2t:
        facts["max_target_id_as_offset"] = max(_target_ids(d2t))
    if t2d is not None:
        facts["t2d_true"] = sum(map(bool, t2d))
    return facts


def _map_fault(d2t: Sequence[int], kept: Optional[List[int]], vocab_size: int) -> List[Finding]:
    ids = _target_ids(d2t)
    if not any(d2t):
        message = "d2t is all zero although the draft vocabulary is reduced: a fresh model's placeholder was saved."
        return [error("d2t_placeholder", message, path="d2t", fix="Add the map that the drafter was trained with.")]
    if _is_absolute(d2t, ids, kept, vocab_size):
        return [_absolute(ids, vocab_size)]
    if min(ids) < 0 or max(ids) >= vocab_size or not _rises(ids):
        message = f"d2t leads to the target ids {min(ids)} to {max(ids)}; they have to rise within 0..{vocab_size - 1}."
        return [error("vocab_map_inconsistent", message, path="d2t", fix="Take the map of the drafter's training.")]
    if kept is not None and len(kept) == len(ids) and kept != ids:
        odd = next(index for index, (one, other) in enumerate(zip(ids, kept)) if one != other)
        message = f"d2t and t2d name different target ids, first {ids[odd]} and {kept[odd]} for draft id {odd}."
        return [
            error("vocab_map_inconsistent", message, path="d2t", expected=kept[odd], actual=ids[odd], fix=_RECONCILE)
        ]
    if kept is None and len(d2t) > 8 and _rises(d2t):
        message = "d2t rises at every step, as target ids would; offsets have runs of equal values."
        return [warning("d2t_absolute_ids", message, path="d2t", fix=_SUBTRACT)]
    return []


_SUBTRACT = "If these are target ids, subtract from each its own index."
_RECONCILE = "Find out which of the two the drafter was trained with, and rebuild the other from it."


def _full_vocabulary(d2t: Sequence[int]) -> List[Finding]:
    """Without a reduced vocabulary ids are the same, so offsets are zero."""
    if not any(d2t):
        return []
    message = "The draft vocabulary is the whole one, so draft ids are target ids; yet d2t is not zero and moves them."
    return [error("vocab_map_inconsistent", message, path="d2t", expected=0, fix="Remove d2t and t2d.")]


def _is_absolute(d2t: Sequence[int], ids: List[int], kept: Optional[List[int]], vocab_size: int) -> bool:
    if kept is not None and kept == list(d2t):
        return kept != ids
    return kept is None and max(ids) >= vocab_size and max(d2t) < vocab_size and _rises(d2t)


def _absolute(ids: List[int], vocab_size: int) -> Finding:
    return error(
        "d2t_absolute_ids",
        f"d2t holds target ids where the format wants target id minus draft id: engines add the draft id, so ids go up "
        f"to {max(ids)} in a vocabulary of {vocab_size}.",
        path="d2t",
        expected=f"< {vocab_size}",
        actual=max(ids),
        fix="Subtract from each entry its own index.",
    )


def _values(subject: Subject, name: str) -> Optional[List[int]]:
    file_name = subject.file_names.get(name)
    return subject.inventory.integers(file_name) if subject.inventory and file_name else None


def _target_ids(d2t: Sequence[int]) -> List[int]:
    return [draft + offset for draft, offset in enumerate(d2t)]


def _rises(values: Sequence[int]) -> bool:
    return all(values[index] < values[index + 1] for index in range(len(values) - 1))
