"""Whether rows can be trained on: answers as a server gave them, tokens with their mask, or finished text.

A row is one JSON object with an ``id``. What the target did not write must not be supervised, and what it wrote must
be there whole: libraries train on anything, and say nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from eagle3_backend.findings import Finding, error, warning
from eagle3_backend.pipeline.judgement import Judgement

OPENING, CLOSING = "<think>", "</think>"
JOIN = "<think>\n{reasoning}\n</think>\n\n{content}"
"""How most templates put reasoning before an answer."""
MASK_COVERS_PROMPTS = 0.95
"""Share of supervised tokens from which a loss mask must cover prompts too."""
MOST_IDS = 50
"""Most ids that a finding lists."""

_PLACE = re.compile(r"{(reasoning|content)}")
_GENERATION_TAG = re.compile(r"{%[-+]?\s*generation\b")
_REASONS = {
    "reasoning_unclosed": "reasoning without its end, so what follows is no answer",
    "finish_reason_length": "an answer that the length limit cut off",
    "empty_response": "no answer text, whatever was reasoned",
}


def reasoning_of(message: Mapping[str, Any]) -> str:
    """The reasoning that a server gave in a field of its own; it goes by two names."""
    return str(message.get("reasoning_content") or message.get("reasoning") or "")


def assistant_message(message: Mapping[str, Any]) -> Dict[str, Any]:
    """What is kept of an answer and sent back as history: the template decides what becomes of the reasoning."""
    kept = {"role": "assistant", "content": message.get("content") or ""}
    for key in ("reasoning_content", "reasoning"):
        if message.get(key):
            kept[key] = message[key]
    return kept


def answer_text(message: Mapping[str, Any], opening: str = OPENING, join: str = JOIN) -> str:
    """An answer as the target wrote it: its reasoning in exactly one block, then the answer.

    For files that have no token ids; ``join`` has the places {reasoning} and {content}. A block that stands in the
    content already is left alone.
    """
    content, reasoning = message.get("content") or "", reasoning_of(message)
    if not reasoning or opening in content:
        return content
    parts = {"reasoning": reasoning, "content": content}
    return _PLACE.sub(lambda place: parts[place[1]], join)


def answer_faults(
    message: Mapping[str, Any], finish_reason: str, opening: str = OPENING, closing: str = CLOSING
) -> Tuple[str, ...]:
    """Why an answer is no training row, by code; the first one weighs most."""
    content = message.get("content") or ""
    found = []
    if opening in content and closing not in content:
        found.append("reasoning_unclosed")
    if finish_reason == "length":
        found.append("finish_reason_length")
    if not content.rpartition(closing)[2].strip():
        found.append("empty_response")
    return tuple(found)


def judge_answers(
    rows: Iterable[Mapping[str, Any]], opening: str = OPENING, closing: str = CLOSING, join: str = JOIN
) -> Judgement:
    """Rows as a server's chat answers. Values: ``kept`` and ``dropped`` ids, ``with_reasoning``, the text by id."""
    kept: List[str] = []
    dropped: Dict[str, Tuple[str, ...]] = {}
    texts: Dict[str, str] = {}
    for number, row in enumerate(rows):
        name, choice = _name(row, number), row["choices"][0]
        message = choice["message"]
        faults = answer_faults(message, str(choice.get("finish_reason")), opening, closing)
        if faults:
            dropped[name] = faults
        else:
            kept.append(name)
        texts[name] = answer_text(message, opening, join)
    reasoned = sum(opening in text for text in texts.values())
    values = {**texts, "kept": kept, "dropped": list(dropped), "with_reasoning": reasoned}
    return Judgement(tuple(_dropped(dropped, len(texts))), values)


def _dropped(reasons: Mapping[str, Sequence[str]], total: int) -> Iterable[Finding]:
    for code, what in _REASONS.items():
        names = [name for name, codes in reasons.items() if code in codes]
        if names:
            message = f"{len(names)} of {total} rows have {what}; none of them may be trained on."
            fix = "Leave these rows out, or have the target answer again with a higher limit."
            yield warning(code, message, path="choices", actual=names[:MOST_IDS], fix=fix)


def judge_tokens(
    rows: Iterable[Mapping[str, Any]], bos: Optional[int] = None, max_length: Optional[int] = None
) -> Judgement:
    """Rows of ``input_ids`` and ``loss_mask`` (0 or 1 a token, or spans [start, end)), cut at ``max_length``.

    Values: ``rows``, ``tokens``, ``supervised_tokens``, ``supervised_samples``, ``samples_without_supervision``,
    ``rows_with_double_bos``.
    """
    counts: Counter = Counter()
    masked: List[str] = []
    for number, row in enumerate(rows):
        ids = row["input_ids"]
        end = len(ids) if max_length is None else min(len(ids), max_length)
        supervised = _supervised(row["loss_mask"], end)
        counts.update(rows=1, tokens=end, supervised_tokens=supervised, supervised_samples=supervised > 0)
        counts["rows_with_double_bos"] += begins_twice(ids, bos)
        if not supervised:
            masked.append(_name(row, number))
    counts["samples_without_supervision"] = len(masked)
    findings = [*_mask_findings(counts["rows"], counts["tokens"], counts["supervised_tokens"], masked, max_length)]
    findings += bos_findings(counts["rows_with_double_bos"], counts["rows"], bos)
    names = ("rows", "tokens", "supervised_tokens", "supervised_samples", "samples_without_supervision")
    return Judgement(tuple(findings), {name: counts[name] for name in (*names, "rows_with_double_bos")})


def _supervised(mask: Sequence[Any], end: int) -> int:
    """Supervised tokens before ``end``."""
    if mask and isinstance(mask[0], (list, tuple)):
        return sum(max(0, min(stop, end) - start) for start, stop in mask)
    return sum(mask[:end])


def _mask_findings(
    rows: int, tokens: int, supervised: int, masked: Sequence[str], max_length: Optional[int]
) -> Iterable[Finding]:
    cut = "" if max_length is None else f" after cutting at {max_length} tokens"
    if rows and len(masked) == rows:
        yield _nothing_supervised(rows, f"the loss mask is zero everywhere{cut}")
    elif masked:
        message = f"{len(masked)} of {rows} rows have no supervised token{cut}: {', '.join(masked[:MOST_IDS])}."
        fix = "Leave them out, or allow longer rows."
        yield warning("sample_fully_masked", message, path="loss_mask", actual=list(masked[:MOST_IDS]), fix=fix)
    if tokens and supervised > MASK_COVERS_PROMPTS * tokens:
        message = f"{supervised} of {tokens} tokens are supervised: the mask covers prompts too."
        fix = "Make the mask from the target's own template, so that only what it writes counts."
        yield error("loss_mask_covers_prompt", message, path="loss_mask", actual=supervised / tokens, fix=fix)


def begins_twice(ids: Sequence[int], bos: Optional[int]) -> bool:
    """Whether a row begins with two tokens that begin a text."""
    return bos is not None and list(ids[:2]) == [bos, bos]


def bos_findings(doubled: int, rows: int, bos: Optional[int]) -> List[Finding]:
    """The verdict on rows that begin twice, if there are any."""
    if not doubled:
        return []
    return [
        error(
            "bos_duplicated",
            f"{doubled} of {rows} rows begin with token {bos} twice: one from the template, one from the tokenizer.",
            path="input_ids",
            actual=doubled,
            fix="Tokenise the rendered text with add_special_tokens=False; accept this only where the server does the "
            "same.",
        )
    ]


def judge_texts(rows: Iterable[Mapping[str, Any]], header: str, end: str) -> Judgement:
    """Rows of finished ``text``, of which what stands between an assistant's ``header`` and the ``end`` of its turn is
    supervised. Values: ``samples``, ``supervised_samples``."""
    rows = list(rows)
    masked = [_name(row, number) for number, row in enumerate(rows) if not _spans(str(row["text"]), header, end)]
    values = {"samples": len(rows), "supervised_samples": len(rows) - len(masked)}
    if len(masked) == len(rows):
        return Judgement((_nothing_supervised(len(rows), f"no text has the header {header!r}"),), values)
    return Judgement(tuple(_mask_findings(len(rows), 0, 0, masked, None)), values)


def _spans(text: str, header: str, end: str) -> List[Tuple[int, int]]:
    """Places of what an assistant says, with the end of its turn."""
    found = []
    for match in re.finditer(re.escape(header), text):
        stop = text.find(end, match.end())
        last = len(text) if stop < 0 else stop + len(end)
        if last > match.end():
            found.append((match.end(), last))
    return found


def _nothing_supervised(rows: int, why: str) -> Finding:
    return error(
        "loss_mask_all_zero",
        f"None of the {rows} rows has a supervised token: {why}. Training would show a loss of 0.",
        path="loss_mask",
        actual=0,
        fix="Name the template that these texts were made with, or take the target's own.",
    )


def template_findings(path: str, template: str) -> List[Finding]:
    """Whether a tokenizer's own assistant mask can be made with this chat template: it needs a generation block."""
    if _GENERATION_TAG.search(template):
        return []
    return [
        error(
            "generation_tag_missing",
            f"The chat template {path} has no {{% generation %}} block: the tokenizer's assistant mask is all zeros, "
            "without an error.",
            path=path,
            fix="Take the token ids that the server returns as the mask, or add the block around what assistants say.",
        )
    ]


def _name(row: Mapping[str, Any], number: int) -> str:
    return str(row.get("id", number))
