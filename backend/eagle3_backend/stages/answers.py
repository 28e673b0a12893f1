"""Conversation rows on disk: appended one flushed line each, and resumed by id after any ending."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

from eagle3_backend.pipeline.rows import CLOSING, answer_faults, reasoning_of

SPLITS = ("train", "holdout")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The objects of a JSONL file. Lines end with a newline only: other separators may stand inside a text."""
    with open(path, "rb") as file:
        return [json.loads(line) for line in file]


class AnswerFile:
    """An append-only JSONL file of rows with ids. Opening it cuts off a half last line, left by a killed writer."""

    def __init__(self, path: Path) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._file = open(path, "ab+")  # noqa: SIM115 - closed by close()
        self._file.seek(0)
        whole = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            row = json.loads(line)
            self.rows[row["id"]] = row
        self._file.truncate(whole)

    def append(self, row: dict[str, Any]) -> None:
        with self._lock:
            if row["id"] not in self.rows and not self._file.closed:
                self.rows[row["id"]] = row
                self._file.write(json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")
                self._file.flush()

    def close(self) -> None:
        with self._lock:
            if not self._file.closed:
                os.fsync(self._file.fileno())
                self._file.close()


def row_id(messages: list[dict[str, Any]], sampling: dict[str, Any], revision: str, template: str) -> str:
    """Hash of all that decides an answer: what was said, how it is sampled, by which target, through which template."""
    text = json.dumps([messages, sampling, revision, template], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def reason_to_drop(message: dict[str, Any], finish_reason: str, keep_cut: bool) -> str:
    """Why an answer is no training row: ``empty_response``, ``reasoning_unclosed``, ``finish_reason_length``; or ""."""
    allowed = ("finish_reason_length",) if keep_cut else ()
    return next((fault for fault in answer_faults(message, finish_reason) if fault not in allowed), "")


def mode_of(message: dict[str, Any]) -> str:
    """``thinking`` when the target reasoned before this answer, else ``plain``."""
    reasoned = reasoning_of(message) or CLOSING in message["content"]
    return "thinking" if reasoned else "plain"
