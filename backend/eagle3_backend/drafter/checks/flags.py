"""The switches of a drafter: norms, biases, kind of input. Has the engine the branch, and the file the weights?"""

from __future__ import annotations

from typing import Iterable, Iterator, List, Pattern

from eagle3_backend.drafter.capabilities import NORM_FLAGS
from eagle3_backend.drafter.checks.subject import Subject
from eagle3_backend.drafter.checks.tensors import FLAG_WEIGHTS, expected_shapes, sizes_of
from eagle3_backend.findings import Finding, error, warning

_COPIED_LATER = ("fc_norm", "norm_output")
"""Flags that vLLM's reader of the nested layout learnt after the others."""


def check_norm_flags(subject: Subject) -> Iterator[Finding]:
    """A flag without a branch is ignored silently, and the drafter computes something else."""
    if subject.drafter_class is None and not subject.nested:
        return
    for flag in NORM_FLAGS:
        if getattr(subject.drafter, flag) and not _honours(subject, flag):
            yield error(
                "norm_before_residual_unsupported" if flag == "norm_before_residual" else "norm_flag_unsupported",
                f"The drafter was trained with {flag}; {subject.release} has no such branch for it and ignores the "
                "flag without a word, so almost nothing is accepted.",
                path=subject.path(flag),
                expected=False,
                actual=True,
                fix=f"Serve this drafter with an engine that knows {flag}, or train one without it.",
            )


def check_biases(subject: Subject) -> Iterator[Finding]:
    """Biases that the class does not add."""
    known, drafter = subject.drafter_class, subject.drafter
    if known is None:
        return
    for flag, wanted, has in (
        ("attention_bias", drafter.attention_bias, known.attention_bias),
        ("mlp_bias", drafter.mlp_bias, known.mlp_bias),
    ):
        if wanted and not has:
            yield error(
                f"{flag}_unsupported",
                f"The {known.title} class of {subject.release} adds no such bias, so the drafter computes something "
                "else than it was trained to.",
                path=subject.path(flag),
                expected=False,
                actual=True,
                fix="Write false if the weights have no bias; else serve it with an engine that adds it.",
            )


def check_flag_weights(subject: Subject) -> Iterator[Finding]:
    """The weights that a flag is about are in the file exactly when it is true."""
    expected = expected_shapes(subject, sizes_of(subject))
    for flag, pattern in FLAG_WEIGHTS.items():
        held = _matching(pattern, subject.tensors)
        given = bool(getattr(subject.drafter, flag))
        if held and not given:
            yield _mismatch(
                subject,
                flag,
                given,
                f"the file holds {subject.file_names[held[0]]}: what the drafter was trained with is not applied",
            )
        asked = _matching(pattern, expected)
        if given and asked and not held and subject.weights_known and flag != "aux_input":
            yield _mismatch(
                subject, flag, given, f"the file has no {asked[0]}: the engine serves it untrained, without an error"
            )


def check_both_norms(subject: Subject) -> Iterator[Finding]:
    """Two norms in front of ``fc``."""
    if subject.drafter.norm_before_fc and subject.drafter.fc_norm:
        yield warning(
            "norm_flags_both",
            "norm_before_fc and fc_norm are both true, and engines apply both one after the other.",
            path=subject.path("fc_norm"),
            actual=True,
            fix="Write false for the one that the drafter was not trained with.",
        )


def _mismatch(subject: Subject, flag: str, given: bool, why: str) -> Finding:
    path = subject.path(flag)
    return error(
        "flag_mismatch",
        f"{path} is {str(given).lower()}, but {why}.",
        path=path,
        expected=not given,
        actual=None if flag in subject.reading.absent else given,
        fix=f"Write {str(not given).lower()}, or take the weights and the config from the same export.",
    )


def _matching(pattern: Pattern[str], names: Iterable[str]) -> List[str]:
    return sorted(filter(pattern.fullmatch, names))


def _honours(subject: Subject, flag: str) -> bool:
    if subject.nested and flag in _COPIED_LATER and subject.can("nested_layout"):
        return subject.can("nested_eagle3_1_flags")
    if subject.drafter_class is None:
        # A nested file on an engine without a reader for it: what its flat form would meet.
        return flag != "norm_before_residual" or subject.engine == "vllm"
    return subject.drafter_class.honours(flag, subject.version)
