"""Prompt sets by the name of a data set on a Hugging Face hub: which of its files are read, and what of them.

A repository is taken as a folder of JSON, JSON lines and Parquet. What it says about itself (scripts, configurations)
is neither run nor read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Collection, Dict, Iterable, Iterator, List, Sequence, Tuple

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline.conversations import Conversation, read_records

PREFIX = "hub:"
FORM = "hub:owner/name[@revision][:split[:column]]"

_NAME = re.compile(
    r"hub:(?P<repository>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>\w[\w./-]*))?(?::(?P<split>[\w./-]*)(?::(?P<column>[^:]+))?)?"
)
_SUFFIXES = (".jsonl", ".json", ".parquet")
"""What can be read; of the same data in several forms the first."""

_ABOUT_DATA = ("dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json")
_SHARD = re.compile(r"(-\d+-of-\d+(-[0-9a-f]+)?|/\d+)$")
_PROMPTS = ("conversations", "messages", "turns", "prompt", "question")
_ANSWERS = ("response", "answer", "completion")
_BESIDE = ("source", "category", *_ANSWERS)
"""Columns that a record may have beside its prompt."""
_SHOWN = 20
_LOOKED_AT = 100
"""Records whose keys are taken for the columns of a set."""


@dataclass(frozen=True)
class HubSet:
    """``split`` and ``column`` are empty where the name leaves them out."""

    repository: str
    revision: str = ""
    split: str = ""
    column: str = ""

    def __str__(self) -> str:
        at = f"@{self.revision}" if self.revision else ""
        rest = f":{self.split}:{self.column}" if self.column else f":{self.split}" if self.split else ""
        return f"{PREFIX}{self.repository}{at}{rest}"

    @property
    def title(self) -> str:
        """What figures call it, as they call a file by its stem: "gsm8k-main-test"."""
        return "-".join([self.repository.partition("/")[2], *filter(None, self.split.split("/"))])

    def at(self, commit: str) -> HubSet:
        """The same at a commit: whoever is given this name reads the same prompts."""
        return replace(self, revision=commit)


def is_hub(name: str) -> bool:
    return name.startswith(PREFIX)


def parse_name(name: str, path: str = "prompts") -> HubSet:
    """Raises FindingError for a name of another form; ``path`` is where it stands."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise FindingError(
            error(
                "prompt_set_name_invalid",
                f"'{name}' is no name of a data set.",
                path=path,
                expected=FORM,
                actual=name,
                fix="Write owner and name as the hub does, such as hub:HuggingFaceH4/MATH-500:test:problem.",
            )
        )
    return HubSet(**{key: value or "" for key, value in match.groupdict().items()})


def choose_files(wanted: HubSet, files: Iterable[str]) -> Tuple[str, ...]:
    """The files of the split, in order: of a repository with one set of files those, else the one whose path has the
    words of the split. Raises FindingError."""
    sets: Dict[str, Dict[str, List[str]]] = {}
    for path in sorted(files):
        stem, dot, suffix = path.rpartition(".")
        hidden = any(part.startswith(".") for part in path.split("/"))
        if dot + suffix in _SUFFIXES and not hidden and path.rpartition("/")[2] not in _ABOUT_DATA:
            sets.setdefault(_SHARD.sub("", stem), {}).setdefault(dot + suffix, []).append(path)
    if not sets:
        raise FindingError(
            unreadable(wanted, "it has no file of JSON, JSON lines or Parquet", expected=", ".join(_SUFFIXES))
        )
    fitting = [name for name in sets if name == wanted.split]
    fitting = fitting or [name for name in sets if _words(name) >= _words(wanted.split)]
    if len(fitting) != 1:
        names = list(sets)
        raise FindingError(
            error(
                "prompt_set_split_unknown",
                f"{wanted} means {len(fitting)} of the {len(names)} sets of files in that repository.",
                path=str(wanted),
                expected=names[:_SHOWN],
                actual=fitting[:_SHOWN],
                fix=f"Name one of them: {replace(wanted, split=(fitting or names)[0])}.",
            )
        )
    (found,) = fitting
    return tuple(next(sets[found][suffix] for suffix in _SUFFIXES if suffix in sets[found]))


def _words(text: str) -> set[str]:
    return {word for word in re.split(r"[^a-z0-9]+", text.lower()) if word}


def columns_to_read(wanted: HubSet, columns: Sequence[str]) -> List[str]:
    """Those of a file's columns that hold the prompt, or what is kept beside it. Raises FindingError when none does."""
    prompts = (wanted.column,) if wanted.column else _PROMPTS
    if not any(name in columns for name in prompts):
        raise FindingError(_no_column(wanted, columns))
    return [name for name in columns if name in prompts or name in _BESIDE]


def conversations_of(
    wanted: HubSet, records: Iterable[Tuple[str, Any]], columns: Collection[str] = ()
) -> Tuple[List[Conversation], List[Finding]]:
    """The conversations of a split's records (each with its place), and a finding for each record that is none.

    Raises FindingError when no column fits, with the columns that there are: ``columns``, which may come to be known
    while records are read, and those of the first records.
    """
    seen: Dict[str, None] = {}

    def noted() -> Iterator[Tuple[str, Any]]:
        for number, (place, record) in enumerate(records):
            if number < _LOOKED_AT and isinstance(record, dict):
                seen.update(dict.fromkeys(map(str, record)))
            yield place, _of_column(record, wanted.column) if wanted.column else record

    found, bad = read_records(noted(), wanted.title)
    if not found and not bad:
        raise FindingError(unreadable(wanted, "it has no record", "records with prompts"))
    if not found:
        raise FindingError(_no_column(wanted, list(dict.fromkeys([*columns, *seen]))))
    return found, bad


def _no_column(wanted: HubSet, columns: Sequence[str]) -> Finding:
    known = (wanted.column,) if wanted.column else _PROMPTS
    empty = [name for name in known if name in columns]
    what = f"column '{wanted.column}' with prompts" if wanted.column else "column that is known to hold prompts"
    what = f"prompt that could be read in {', '.join(empty)}" if empty else what
    other = next((name for name in columns if name not in empty or not wanted.column), "prompt")
    example = replace(wanted, column=empty[0] if empty and not wanted.column else other)
    return error(
        "prompt_set_column_unknown",
        f"{wanted} has no {what}; its columns: {', '.join(columns[:_SHOWN]) or 'none'}.",
        path=str(wanted),
        expected="texts, lists of texts, or lists of messages",
        actual=list(columns[:_SHOWN]),
        fix=f"Name the one with what is asked, such as {example}.",
    )


def _of_column(record: Any, column: str) -> Any:
    """The record as one of the known formats, with the prompt taken from this column."""
    if not isinstance(record, dict) or column not in record:
        return record if not isinstance(record, dict) else {}
    value = record[column]
    kept = {key: record[key] for key in _BESIDE if key in record and key != column}
    if isinstance(value, str):
        return {**kept, "prompt": value}
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return {**kept, "turns": value}
    if isinstance(value, list) and all(isinstance(part, dict) for part in value):
        return {**kept, "messages" if any("role" in part for part in value) else "conversations": value}
    return {}


def unavailable(wanted: HubSet, why: str) -> Finding:
    """The hub does not give it out, or cannot be reached."""
    return error(
        "prompt_set_unavailable",
        f"{wanted} could not be read: {why}.",
        path=str(wanted),
        fix="Check name, revision, HF_TOKEN and HF_ENDPOINT; or download its file where there is a way to the hub, and "
        "name the file instead.",
    )


def too_large(wanted: HubSet, size: int, limit: int) -> Finding:
    """It has more bytes than are read."""
    return error(
        "prompt_set_too_large",
        f"{wanted} has {size / 1e6:.0f} MB; up to {limit / 1e6:.0f} MB are read.",
        path=str(wanted),
        expected=limit,
        actual=size,
        fix="Save the part that is needed as JSON lines, and name that file instead.",
    )


def unreadable(wanted: HubSet, why: str, expected: Any = None) -> Finding:
    """It is there and not in a form that can be read."""
    return error(
        "prompt_set_unreadable",
        f"{wanted} cannot be read: {why}.",
        path=str(wanted),
        expected=expected,
        fix="Save what is asked as JSON lines, and name that file instead.",
    )
