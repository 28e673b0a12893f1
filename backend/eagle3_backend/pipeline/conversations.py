"""Prompt files of three shapes, read into one: what the user says turn by turn, and the answers where all are there.

ShareGPT (``{"conversations": [{"from", "value"}]}``), OpenAI messages (``{"messages": [{"role", "content"}]}``) and
plain records (``{"turns": […]}``, or ``{"prompt": …}`` or ``{"question": …}`` with ``response``, ``answer`` or
``completion`` where there is one), as JSON lines or as one JSON array.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.pipeline.rows import assistant_message

ROLES = {"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "system": "system"}
"""Speakers of both formats; anything else (tools, functions) makes a record unreadable here."""


@dataclass(frozen=True)
class Conversation:
    """The user's side of a conversation. ``source`` is the record's own category, ``file`` the stem of its file.

    ``answers`` holds the assistant's message to each turn, reasoning included, or nothing where one is missing.
    """

    source: str
    file: str
    turns: tuple[str, ...]
    system: str = ""
    answers: tuple[dict[str, Any], ...] = ()

    @property
    def normal(self) -> str:
        """The text by which two conversations are the same: case, spacing and Unicode spelling do not matter."""
        return "\n".join(normalise(text) for text in (self.system, *self.turns))

    @property
    def id(self) -> str:
        """Hash of the normal text: the same prompt has the same id in every file and order."""
        return hashlib.sha256(self.normal.encode("utf-8", "replace")).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "id": self.id,
            "source": self.source,
            "file": self.file,
            "turns": list(self.turns),
        }
        if self.system:
            row["system"] = self.system
        if self.answers:
            row["answers"] = list(self.answers)
        return row


def normalise(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def read_file(path: Path) -> tuple[list[Conversation], list[Finding]]:
    """The conversations of a file, and a finding for each record that is none. Raises FindingError: unreadable file."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as problem:
        raise FindingError(
            error(
                "prompt_file_unreadable",
                f"{path.name} cannot be read: {problem.strerror}.",
                path=path.name,
                fix="Start the stage from the laptop again: prompt files are sent with it.",
            )
        ) from problem
    except UnicodeDecodeError as problem:
        raise FindingError(
            error(
                "prompt_file_unreadable",
                f"{path.name} is not UTF-8: byte {problem.start} is {path.read_bytes()[problem.start]:#04x}.",
                path=path.name,
                expected="UTF-8",
                fix="Convert the file to UTF-8.",
            )
        ) from problem
    return read_records(records_of(text), path.stem, path.name)


def read_records(
    records: Iterable[tuple[str, Any]], file: str, name: str = ""
) -> tuple[list[Conversation], list[Finding]]:
    """The conversations among these records (each with its place), and a finding for each that is none.

    ``file`` is what conversations say they are from, ``name`` what findings call it (empty: the same).
    """
    name = name or file
    found: list[Conversation] = []
    bad: list[Finding] = []
    for place, record in records:
        conversation = parse(record, file)
        if conversation is not None:
            found.append(conversation)
        else:
            bad.append(
                warning(
                    "prompt_record_invalid",
                    f"{name}, {place}: not a conversation in a known format.",
                    path=f"{name}:{place}",
                    expected='"conversations", "messages", "turns", "prompt" or "question"',
                    actual=sorted(record)[:8] if isinstance(record, dict) else str(record)[:120],
                    fix="Correct the record, or remove it.",
                )
            )
    return found, bad


def records_of(text: str) -> list[tuple[str, Any]]:
    """Each record with its place; a line that is not JSON is its own text, which no format takes."""
    if text.lstrip().startswith("["):
        try:
            return [(f"record {number}", record) for number, record in enumerate(json.loads(text), 1)]
        except (ValueError, RecursionError):
            pass
    records: list[tuple[str, Any]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                records.append((f"line {number}", json.loads(line)))
            except (ValueError, RecursionError):
                records.append((f"line {number}", line))
    return records


def parse(record: Any, file: str) -> Conversation | None:
    """A record in any of the formats, None when it is none of them or says nothing."""
    if not isinstance(record, dict):
        return None
    for key in ("conversations", "messages"):
        if isinstance(record.get(key), list):
            # Either name is used for either form.
            openai = any(isinstance(entry, dict) and entry.get("role") for entry in record[key])
            role, content = ("role", "content") if openai else ("from", "value")
            messages = [_message(entry, role, content) for entry in record[key]]
            break
    else:
        messages = _plain(record)
    if not all(messages):
        return None
    said = [message for message in messages if message is not None]
    system = "\n".join(message["content"] for message in said if message["role"] == "system")
    turns = tuple(message["content"] for message in said if message["role"] == "user" and message["content"].strip())
    if not turns:
        return None
    source = str(record.get("source") or record.get("category") or file)
    return Conversation(source, file, turns, system, _answers(said, len(turns)))


def _answers(said: list[dict[str, Any]], turns: int) -> tuple[dict[str, Any], ...]:
    """The assistant's messages where one follows each of the user's, and nothing else is said."""
    spoken = [message for message in said if message["role"] != "system"]
    if [message["role"] for message in spoken] != ["user", "assistant"] * turns:
        return ()
    return tuple(spoken[1::2])


def _message(entry: Any, role: str, content: str) -> dict[str, Any] | None:
    if not isinstance(entry, dict) or ROLES.get(str(entry.get(role))) is None:
        return None
    value = entry.get(content)
    if isinstance(value, list):
        # OpenAI's content parts; a part that is not text (an image) cannot be kept.
        if any(not isinstance(part, dict) or part.get("type") != "text" for part in value):
            return None
        value = "".join(str(part.get("text", "")) for part in value)
    if not isinstance(value, str):
        return None
    speaker = ROLES[str(entry[role])]
    message = {"role": speaker, "content": value}
    return assistant_message({**entry, "content": value}) if speaker == "assistant" else message


def _plain(record: dict[str, Any]) -> list[dict[str, Any] | None]:
    """The messages of a plain record; none when it is no such record."""
    turns = record.get("turns")
    if isinstance(turns, list) and all(isinstance(turn, str) for turn in turns):
        return [{"role": "user", "content": turn} for turn in turns]
    for key in ("prompt", "question"):
        if isinstance(record.get(key), str):
            answers = [
                record[name] for name in ("response", "answer", "completion") if isinstance(record.get(name), str)
            ]
            asked = {"role": "user", "content": record[key]}
            return [asked, *(assistant_message({"content": answer}) for answer in answers[:1])]
    return []
