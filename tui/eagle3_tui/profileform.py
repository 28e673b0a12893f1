"""A profile as a form: every key with value, default and meaning, the faults beside them, and edits that keep the text.

Reading and checking import pydantic and take tens of milliseconds: call them on a thread. Nothing here knows a screen.
"""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline.parameters import ABOVE_ZERO, AT_LEAST, ONE_OF, StageParameters
from eagle3_backend.pipeline.plan import Upload, plan_campaign
from eagle3_backend.pipeline.stages import STAGES
from eagle3_backend.shipped import whole_name

MARK = "\ufeff"
"""The byte order mark with which some editors begin a file."""

ABSENT = object()
"""The value of a key that is not written."""

FILLED = {"setup": ("environments",), "target": ("model", "revision", "trust_remote_code")}
"""Stage parameters that the profile says in tables of their own."""


@dataclass(frozen=True)
class Field:
    """One key: where it stands in the file, what it is called, its default and meaning.

    ``text`` says that it holds text; ``choices`` are all values that it may have, where they are few; ``bound`` is its
    range in words. ``stage`` is whose parameter it is, ``quiet`` that no artifact changes with it.
    """

    path: str
    default: Any
    about: str
    text: bool = False
    choices: tuple[str, ...] = ()
    bound: str = ""
    stage: str = ""
    quiet: bool = False

    @property
    def name(self) -> str:
        """As `--set` has it."""
        return self.path.removeprefix("stages.")


@dataclass(frozen=True)
class Value:
    """A field as the profile has it. ``saved`` is the value in the file; ``findings`` are those that name it."""

    field: Field
    value: Any
    written: bool
    saved: Any
    findings: tuple[Finding, ...] = ()

    @property
    def edited(self) -> bool:
        return not _same(self.value, self.saved)

    @property
    def changed(self) -> bool:
        """Whether it differs from the default."""
        return not _same(self.value, self.field.default)


@dataclass(frozen=True)
class Form:
    """A text and what it comes to. ``reach`` are the stages whose artifacts become others by what is not saved yet;
    None while that cannot be told, for the text is faulty."""

    path: Path
    saved: str
    text: str
    values: tuple[Value, ...]
    findings: tuple[Finding, ...]
    reach: tuple[str, ...] | None

    @property
    def edits(self) -> tuple[Value, ...]:
        return tuple(value for value in self.values if value.edited)

    def value(self, path: str) -> Value | None:
        return next((value for value in self.values if value.field.path == path), None)


def read(path: Path) -> str:
    """The text of a profile with its line ends as they are. Raises FindingError `profile_unreadable`."""
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        message = f"The profile cannot be read: {getattr(problem, 'strerror', None) or problem}."
        raise FindingError(error("profile_unreadable", message, path=str(path))) from problem


def form(path: Path, saved: str, text: str) -> Form:
    """Both texts read and checked. Raises FindingError `profile_invalid` for one that is not TOML."""
    data = _data(path, text)
    try:
        before = _data(path, saved)
    except FindingError:
        if text == saved:
            raise
        before = {}  # the file on disk is faulty, and this text corrects it
    findings, after = _outcome(path, text)
    prints = _outcome(path, saved)[1]
    reach = tuple(name for name in prints if prints[name] != after[name]) if prints and after else None
    known = {field.path: field for field in (*_tables(), *_environments(data, before), *_parameters())}
    for finding in findings:
        if not _beside(finding.path, known):
            known[finding.path] = Field(finding.path, ABSENT, "")
    beside = [(finding, _beside(finding.path, known)) for finding in findings]
    told = [
        Value(
            field,
            _at(data, path_, field.default),
            _at(data, path_, ABSENT) is not ABSENT,
            _at(before, path_, field.default),
            tuple(one for one, paths in beside if path_ in paths),
        )
        for path_, field in known.items()
    ]
    return Form(path, saved, text, tuple(told), findings, reach)


@lru_cache(maxsize=8)
def _outcome(path: Path, text: str) -> tuple[tuple[Finding, ...], Mapping[str, str]]:
    """What is wrong with a text, and the fingerprint of each stage where nothing is.

    Prompt files count by their names: what is in them is the same before and after an edit.
    """
    from eagle3_backend.profile import validated

    try:
        profile = validated(path, _data(path, text))
    except FindingError as problem:
        return problem.findings, {}
    prompts = profile.parameters["prompts"]
    uploads = {kind: [Upload(name, name) for name in getattr(prompts, kind)] for kind in ("files", "published")}
    plan = plan_campaign(profile.campaign, "/", profile.parameters, uploads)
    return (), {name: planned.fingerprint for name, planned in plan.stages.items()}


def _beside(path: str, known: Collection[str]) -> tuple[str, ...]:
    """The keys beside which a finding stands: its own, or all of its table."""
    return (path,) if path in known else tuple(one for one in known if one.startswith(f"{path}."))


def in_words(value: Any) -> str:
    """A value as TOML has it; tables as JSON."""
    if value is ABSENT:
        return "-"
    if isinstance(value, tuple):
        value = list(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def typed(field: Field, words: str) -> Any:
    """What an operator means: TOML where it reads as such, else text. Text fields need no quotes."""
    words = words.strip()
    try:
        data = tomllib.loads(f"value = {words}")
    except (tomllib.TOMLDecodeError, RecursionError):
        return words
    if len(data) > 1:
        return words
    value = data["value"]
    return words if field.text and not isinstance(value, str) else value


def with_value(text: str, path: str | Sequence[str], value: Any) -> str:
    """The text with this key set; comments, order and everything else stay. Raises FindingError `edit_impossible`.

    ``path`` in parts where a key itself holds a point.
    """
    import tomlkit

    document, mark = _document(text)
    *tables, key = _parts(path)
    try:
        table: Any = document
        for index, name in enumerate(tables):
            if name not in table:
                table[name] = tomlkit.table(is_super_table=index + 1 < len(tables))
            table = table[name]
        if key in table:
            table[key] = value
        else:
            _append(table, key, value)
        changed = mark + document.as_string()
        changed.encode()
        if _same(_at(tomllib.loads(changed.removeprefix(MARK)), path, ABSENT), value):
            return changed
    except (TypeError, ValueError, KeyError, AttributeError):
        pass  # a value that TOML cannot hold, or a document that is written in a way that cannot take it
    raise FindingError(
        error(
            "edit_impossible",
            f"{'.'.join(_parts(path))} cannot be written into this file.",
            path=".".join(_parts(path)),
            actual=in_words(value),
        )
    )


def _parts(path: str | Sequence[str]) -> Sequence[str]:
    return path.split(".") if isinstance(path, str) else path


def without(text: str, path: str | Sequence[str]) -> str:
    """The text without this key: its default counts again."""
    document, mark = _document(text)
    *tables, key = _parts(path)
    table: Any = document
    for name in tables:
        table = table.get(name, {})
    if key in table:
        del table[key]
    return mark + document.as_string()


def with_whole_paths(text: str, folder: Path) -> str:
    """The text with prompt files that any folder can hold: relative ones are made absolute."""
    data = tomllib.loads(text.removeprefix(MARK))
    for kind in ("files", "published"):
        path = f"stages.prompts.{kind}"
        names = _at(data, path, ())
        if names:
            text = with_value(text, path, [whole_name(folder.absolute(), name) for name in names])
    return text


def _append(table: Any, key: str, value: Any) -> None:
    """A new key goes behind the last one, before blank lines and the comment of the next table."""
    body = getattr(table, "value", table).body
    tail: list[Any] = []
    while body and body[-1][0] is None:
        tail.insert(0, body.pop())
    while tail and tail[0][1].as_string().strip():
        body.append(tail.pop(0))  # comments right behind the last key are about this table
    table.append(key, value)
    body.extend(tail)


def _document(text: str) -> tuple[Any, str]:
    import tomlkit

    mark = MARK if text.startswith(MARK) else ""
    return tomlkit.parse(text.removeprefix(MARK)), mark


def _data(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text.removeprefix(MARK))
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        message = f"The profile is not TOML: {problem}."
        raise FindingError(error("profile_invalid", message, path=str(path))) from problem


def _at(data: Mapping[str, Any], path: str | Sequence[str], otherwise: Any) -> Any:
    found: Any = data
    for name in _parts(path):
        if not isinstance(found, Mapping) or name not in found:
            return otherwise
        found = found[name]
    return found


def _same(left: Any, right: Any) -> bool:
    pair = [list(one) if isinstance(one, tuple) else one for one in (left, right)]
    return type(pair[0]) is type(pair[1]) and bool(pair[0] == pair[1])


@cache
def _tables() -> tuple[Field, ...]:
    from eagle3_backend.profile import Host, Target

    made = []
    for table, model in (("host", Host), ("target", Target)):
        for name, entry in model.model_fields.items():
            default = ABSENT if entry.is_required() else entry.get_default(call_default_factory=True)
            made.append(
                Field(
                    f"{table}.{name}",
                    default,
                    entry.description or "",
                    text=entry.annotation is str,
                    choices=("true", "false") if entry.annotation is bool else (),
                    stage="target" if table == "target" else "",
                    quiet=table == "host",
                )
            )
    return tuple(made)


def _environments(*documents: Mapping[str, Any]) -> Iterator[Field]:
    from eagle3_backend.profile import Environment

    found: dict[str, None] = {}
    for data in documents:
        given = data.get("environments")
        found |= dict.fromkeys(given if isinstance(given, Mapping) else ())
    for name in found:
        for key, entry in Environment.model_fields.items():
            yield Field(f"environments.{name}.{key}", "", entry.description or "", text=True, stage="setup")


@cache
def _parameters() -> tuple[Field, ...]:
    from eagle3_backend.profile import parameter_schema

    schema = parameter_schema()
    made = []
    shared = {entry.name for entry in fields(StageParameters)}
    for name, stage in STAGES.items():
        declared = sorted(fields(stage.parameters), key=lambda entry: entry.name in shared)
        for entry in declared:
            if entry.name in FILLED.get(name, ()):
                continue
            told = schema[name]["properties"].get(entry.name, {})
            kind = told.get("type")
            made.append(
                Field(
                    f"stages.{name}.{entry.name}",
                    _default(entry),
                    str(told.get("description", "")),
                    text=kind == "string",
                    choices=ONE_OF.get(entry.name, ("true", "false") if kind == "boolean" else ()),
                    bound=_bound(entry.name),
                    stage=name,
                    quiet=not entry.metadata.get("affects_output", True),
                )
            )
    return tuple(made)


def _default(entry: dataclasses.Field[Any]) -> Any:
    if entry.default_factory is not dataclasses.MISSING:
        return entry.default_factory()
    return ABSENT if entry.default is dataclasses.MISSING else entry.default


def _bound(name: str) -> str:
    if name in AT_LEAST:
        return f">= {AT_LEAST[name]:g}"
    return "> 0" if name in ABOVE_ZERO else ""


def effect(value: Value) -> str:
    """What another value of it would change, in words."""
    field = value.field
    if field.path.startswith("host."):
        return "changes where or how the work is done, not what comes out"
    if field.stage not in STAGES:
        return "is refused: this is no key of a profile"
    if field.quiet and not field.path.startswith("stages.prompts"):
        return "changes how the work is done, not what comes out"
    reached = [name for name, stage in STAGES.items() if name == field.stage or field.stage in _reads(name)]
    more = f" and {len(reached) - 1} stages that read it: {', '.join(reached[1:])}" if len(reached) > 1 else ""
    return f"makes new {reached[0]}{more}"


def _reads(name: str) -> set[str]:
    """Every stage whose artifact decides that of ``name``."""
    return {read for direct in STAGES[name].reads for read in (direct, *_reads(direct))}
