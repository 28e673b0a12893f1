"""A control that has to fail: without the chat template the target writes text that a drafter of chats did not learn.

A drafter that is no worse on raw text was not trained on this template's chats, or the template was not applied.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

from eagle3_backend.engines.answers import Answer
from eagle3_backend.engines.measured import LOOP_SHARE
from eagle3_backend.engines.statistics import Interval, bootstrap, repeated_share
from eagle3_backend.findings import Finding, warning


def raw_text_control(
    chats: Sequence[Answer], raw: Sequence[Answer], resamples: int, seed: int
) -> Optional[Dict[str, Any]]:
    """Acceptance length of the same prompts as chats and as raw text, paired; None where no pair is left.

    Where a chat's steps are told in order, only those of as many tokens count as the raw text was given.

    Loops flatter any drafter, and raw text often ends in one: a prompt with a loop on either side is left out.
    ``failed_as_it_must`` is None where the interval of the difference includes 0: too few prompts to tell.
    """
    chat_of = {answer.prompt: answer for answer in chats if _counts(answer)}
    pairs = [(answer, chat_of[answer.prompt]) for answer in raw if _counts(answer) and answer.prompt in chat_of]
    if not pairs:
        return None
    rows = [(one.steps.accepted, one.steps.count, *_first_steps(other, one.generated)) for one, other in pairs]
    difference = bootstrap(rows, lambda sums: sums[0] / sums[1] - sums[2] / sums[3], resamples, seed)
    chat = sum(row[2] for row in rows) / sum(row[3] for row in rows)
    return {
        "raw": round(1.0 + chat + difference.mean, 4),
        "chat": round(1.0 + chat, 4),
        "difference": difference.to_json(),
        "left_out": len(raw) - len(pairs),
        "failed_as_it_must": _verdict(difference),
    }


def _first_steps(answer: Answer, tokens: int) -> Tuple[int, int]:
    """(accepted, steps) of the first ``tokens`` of an answer, all of them where their order is not told."""
    accepted = steps = 0
    for each in answer.steps.in_order:
        if accepted + steps >= tokens:
            break
        accepted, steps = accepted + each, steps + 1
    return (accepted, steps) if steps else (answer.steps.accepted, answer.steps.count)


def _counts(answer: Answer) -> bool:
    return bool(answer.steps.count) and repeated_share(answer.tokens) <= LOOP_SHARE


def _verdict(difference: Interval) -> Optional[bool]:
    if difference.high < 0.0:
        return True
    return False if difference.low >= 0.0 else None


def did_not_fail(control: Dict[str, Any]) -> Finding:
    """Raw text that is drafted no worse than chats."""
    return warning(
        "control_did_not_fail",
        f"Raw text is drafted no worse (length {control['raw']:.2f}) than the same prompts as chats "
        f"({control['chat']:.2f}): the drafter learned no chats of this template.",
        path="raw_text",
        expected=f"< {control['chat']}",
        actual=control["raw"],
        fix="Look at the template that the training answers were made with, and at the answers themselves.",
    )
