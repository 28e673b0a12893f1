"""Conversation rows from answers that prompt files bring, in the target's own tokens.

Two renderings by the target's template make a row: the messages before a turn with the generation prompt are what was
asked, and what the turn adds behind them counts as answered. A turn ends with the first end-of-turn token, where a
target stops; what templates write behind it is left away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.stages.answers import mode_of, reason_to_drop, row_id

ADOPTED = "adopted"
"""The finish reason of a row that the target did not sample."""


def brings_answers(prompt: dict[str, Any]) -> bool:
    """Whether a prompt row has an answer to each turn."""
    return len(prompt.get("answers") or ()) == len(prompt["turns"])


class AnswerRows:
    """Makes rows with the tokenizer in ``target`` (the target in small), whose ``facts`` name the end-of-turn ids."""

    def __init__(self, target: Path, facts: dict[str, Any], context: int) -> None:
        """``context`` is the longest row, tokens. Raises FindingError `tokenizer_unreadable`."""
        from transformers import AutoTokenizer

        self._facts = facts
        self._context = context
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(target)
            self._ids([{"role": "user", "content": "Hi"}], True)
        except Exception as problem:
            raise FindingError(
                error(
                    "tokenizer_unreadable",
                    f"Answers cannot be taken: the target's tokenizer or template fails: {problem}",
                    path="stages.generate.adopt",
                    actual=str(problem)[:300],
                    fix="Leave generate.adopt off and let the target answer.",
                )
            ) from problem

    def of(self, prompt: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """A row for each turn of a prompt, and the turn that could not be used, which ends the conversation."""
        system = prompt.get("system")
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        rows: list[dict[str, Any]] = []
        for turn, (text, answer) in enumerate(zip(prompt["turns"], prompt["answers"], strict=True)):
            asked = [*messages, {"role": "user", "content": text}]
            messages = [*asked, answer]
            name = row_id(messages, {ADOPTED: True}, self._facts["revision"], self._facts["template_hash"])
            place = {"id": name, "source": prompt["source"], "prompt": prompt["id"], "turn": turn}
            try:
                start, ids = self._spans(asked, messages)
            except Exception as problem:  # a template refuses conversations in its own words
                return rows, {**place, "reason": "template_refused", "text": str(problem)[:500]}
            reason = reason_to_drop(answer, ADOPTED, keep_cut=True) or self._fault(start, ids)
            if reason:
                return rows, {**place, "reason": reason, "text": ""}
            rows.append(
                {
                    **place,
                    "messages": messages,
                    "input_ids": ids,
                    "loss_mask": [[start, len(ids)]],
                    "finish_reason": ADOPTED,
                    "mode": mode_of(answer),
                    "usage": {"prompt_tokens": start, "completion_tokens": len(ids) - start},
                }
            )
        return rows, None

    def _spans(self, asked: list[dict[str, Any]], messages: list[dict[str, Any]]) -> tuple[int, list[int]]:
        """Where the answer begins, 0 when the template does not go on from its own generation prompt; and all ids."""
        prompt, ids = self._ids(asked, True), self._ids(messages, False)
        start = len(prompt) if ids[: len(prompt)] == prompt else 0
        ends = [place for place, token in enumerate(ids) if place >= start and token in self._facts["eos"]]
        return start, ids[: ends[0] + 1] if start and ends else ids

    def _fault(self, start: int, ids: list[int]) -> str:
        if not 0 < start < len(ids):
            return "template_unstable"
        return "prompt_too_long" if len(ids) > self._context else ""

    def _ids(self, messages: list[dict[str, Any]], generation: bool) -> list[int]:
        # Templates look for reasoning under one name; files have either.
        said = [
            {**message, "reasoning_content": message["reasoning"]} if "reasoning" in message else message
            for message in messages
        ]
        settings = {"tokenize": True, "add_generation_prompt": generation, "return_dict": False}
        return [int(token) for token in self._tokenizer.apply_chat_template(said, **settings)]


def not_regenerated(rows: int) -> Finding:
    """The warning that comes with adopted answers."""
    return warning(
        "responses_not_regenerated",
        f"{rows} answers are those of the prompt files: a drafter learns best from what its target says itself.",
        path="stages.generate.adopt",
        actual=rows,
        fix="Set generate.adopt to false to let the target answer, unless these answers came from it.",
    )
