"""Two things side by side: drafters by meaning, profiles and runs by their parameters. Nothing here knows a screen.

The loaders read files and may take as long as a disk takes: call them on a thread.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from eagle3_backend.drafter import diff
from eagle3_backend.drafter.configfile import ConfigFile, open_config
from eagle3_backend.drafter.diff_tensors import compare_weights
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inventory import Inventory, read_inventory
from eagle3_backend.drafter.reading import layout_of
from eagle3_backend.pipeline.stages import STAGES

ABSENT = "absent"

DRAFTER, PROFILE, RUN = "drafter", "profile", "run"


@dataclass(frozen=True)
class Document:
    """One side: what it is called, its text as it lies on disk, and what it says.

    ``values`` is the config of a drafter, else a flat mapping of dotted names. ``written`` are the names that the text
    itself has, all others are defaults; ``stage`` is the one of a run, ``inventory`` the weights of a drafter.
    """

    kind: str
    title: str
    text: str
    values: Mapping[str, Any]
    note: str = ""
    written: frozenset[str] = frozenset()
    stage: str = ""
    inventory: Inventory | None = None


@dataclass(frozen=True)
class Line:
    """One row as it is shown. ``left`` and ``right`` are values in words; ``differs`` marks what ``n`` stops at."""

    kind: str
    group: str
    name: str
    left: str
    right: str
    words: str = ""
    left_paths: tuple[str, ...] = ()
    right_paths: tuple[str, ...] = ()
    differs: bool = False


@dataclass(frozen=True)
class Comparison:
    """Two documents and their rows. ``equal`` is the verdict: the same drafter, or the same artifacts."""

    left: Document
    right: Document
    lines: tuple[Line, ...]
    equal: bool
    verdict: str

    @property
    def counts(self) -> Counter[str]:
        return Counter(line.kind for line in self.lines)

    def text(self, everything: bool) -> str:
        """The rows as plain text, for the clipboard."""
        rows = [line for line in self.lines if everything or line.differs]
        told = [f"A  {self.left.title}", f"B  {self.right.title}", self.verdict]
        told += ["\t".join((row.kind, row.name, row.left, row.right, row.words)).rstrip() for row in rows]
        return "\n".join(told)


def drafter_document(path: str) -> Document:
    """A drafter of this machine, by its directory or its config.json. Raises FindingError."""
    folder = Path(os.path.expanduser(path))
    return of_config(open_config(path), read_inventory(LocalFolder(folder)) if folder.is_dir() else None)


def of_config(file: ConfigFile, inventory: Inventory | None) -> Document:
    """A drafter's config, wherever it was read. A file on one line is shown with line breaks."""
    text = file.text if file.text.count("\n") > 2 else json.dumps(file.config, indent=2, ensure_ascii=False)
    return Document(DRAFTER, file.path, text, file.config, layout_of(file.config), inventory=inventory)


def profile_document(path: Path) -> Document:
    """A profile with every value that it leads to, defaults included. Raises FindingError."""
    import tomllib

    from eagle3_backend.profile import load

    profile = load(path)
    text = path.read_text(encoding="utf-8")
    values: dict[str, Any] = {f"host.{name}": value for name, value in profile.host.model_dump().items()}
    values |= {f"target.{name}": value for name, value in profile.target.model_dump().items()}
    for name, entry in profile.environments.items():
        values |= {f"environments.{name}.{key}": value for key, value in entry.model_dump().items()}
    for stage, parameters in profile.parameters.items():
        values |= {f"stages.{stage}.{entry.name}": getattr(parameters, entry.name) for entry in fields(parameters)}
    for name in ("stages.setup.environments", *(f"stages.{name}" for name in values if name.startswith("target."))):
        values.pop(name, None)  # filled in from the tables of the same names
    written = frozenset(_names(tomllib.loads(text), values))
    return Document(PROFILE, str(path), text, values, "profile", written)


def _names(tree: Mapping[str, Any], known: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if path in known or not isinstance(value, Mapping):
            yield path
        else:
            yield from _names(value, known, f"{path}.")


def run_document(title: str, specification: Mapping[str, Any]) -> Document:
    """What a run was started with: its parameters, inputs and engine, from its spec.json."""
    shown = ("parameters", "input_fingerprints", "engine", "environment", "stage_version")
    values = dict(_flat({name: specification.get(name) for name in shown if specification.get(name) is not None}))
    text = json.dumps(specification, indent=2, ensure_ascii=False, sort_keys=True)
    return Document(RUN, title, text, values, "run", frozenset(values), str(specification.get("stage") or ""))


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def compare(left: Document, right: Document, target: Mapping[str, Any] | None = None) -> Comparison:
    """The rows of two documents of one kind. ``target`` is the target's config.json, which drafters are read with."""
    if left.kind == DRAFTER:
        rows = diff.compare(left.values, right.values, target) + compare_weights(left.inventory, right.inventory)
        equal = diff.equal_in_effect(rows)
        lines = [_drafter_line(row) for row in rows]
        verdict = "equal in effect" if equal else "not equal in effect"
        return Comparison(left, right, tuple(lines), equal, verdict)
    lines = [_parameter_line(name, left, right) for name in dict.fromkeys([*left.values, *right.values])]
    changed = [line.name for line in lines if line.kind == "changed"]
    verdict = _reach(changed, left.stage) if changed else "the same artifacts come out"
    return Comparison(left, right, tuple(lines), not changed, verdict)


def _drafter_line(row: diff.Row) -> Line:
    return Line(
        row.kind.value, row.group, row.path, row.left.words, row.right.words, row.words, row.left.paths,
        row.right.paths, row.kind.differs,
    )  # fmt: skip


def in_words(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _parameter_line(name: str, left: Document, right: Document) -> Line:
    documents = (left, right)
    shown = [in_words(document.values[name]) if name in document.values else ABSENT for document in documents]
    left_paths, right_paths = ((name,) if name in document.written else () for document in documents)
    group, _, _ = name.rpartition(".")
    if shown[0] == shown[1]:
        kind, words = "same" if left_paths == right_paths else "default", ""
    elif _is_quiet(name, left.stage):
        kind, words = "harmless", "changes how the work is done, not what comes out"
    else:
        kind, words = "changed", _reach([name], left.stage)
    differs = kind in ("changed", "harmless")
    return Line(kind, group, name, shown[0], shown[1], words, left_paths, right_paths, differs)


def _owner(name: str, stage: str) -> tuple[str, str]:
    """The stage and the field that a parameter's name means; ``stage`` is that of a run's specification."""
    head, _, rest = name.partition(".")
    if head == "stages":
        owner, _, field = rest.partition(".")
        return owner, field
    return {"environments": "setup", "target": "target"}.get(head, stage), rest if head == "parameters" else ""


def _is_quiet(name: str, stage: str) -> bool:
    """Whether a value leaves every artifact as it is: where the work is done, and what stages declare so."""
    if name.startswith("host."):
        return True
    owner, field = _owner(name, stage)
    if owner not in STAGES:
        return False
    declared = {entry.name: entry for entry in fields(STAGES[owner].parameters)}
    return field in declared and not declared[field].metadata.get("affects_output", True)


def _reach(names: Sequence[str], stage: str) -> str:
    """Which stages make other artifacts because of these parameters."""
    owners = {_owner(name, stage)[0] for name in names}
    reached = [name for name in STAGES if owners & _reads(name)]
    if len(reached) < 2:
        return f"a new artifact of {reached[0]}" if reached else "other artifacts"
    return f"new artifacts of {reached[0]} and {len(reached) - 1} more stages"


def _reads(name: str) -> set[str]:
    """Every stage whose artifact decides that of ``name``, itself included."""
    return {name}.union(*(_reads(read) for read in STAGES[name].reads))
