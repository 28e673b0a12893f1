"""Which files of a model directory are its weights, and what they and their index say, taken together."""

from __future__ import annotations

import gc
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from eagle3_backend.drafter.folder import Folder, unreadable, where
from eagle3_backend.drafter.jsonfile import read_object
from eagle3_backend.drafter.tensorfile import Parse, Tensor, parse_header
from eagle3_backend.findings import Finding, FindingError, error, info, warning

SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<ending>\.\w+)")

NOT_WEIGHTS = frozenset({"training_args.bin", "optimizer.bin", "optimizer.pt", "scheduler.pt", "scaler.pt"})
"""Files of a trainer that engines leave out by name, too (vLLM, model_loader/weight_utils.py)."""

MAX_NAMES = 20
"""Most names that a finding lists, and most findings about doubled tensors."""


@dataclass(frozen=True)
class Kind:
    """A way to store weights: by which ending files are known, the file that is the only one, and the index of many."""

    ending: str
    single: str
    index: str

    def of(self, names: Sequence[str]) -> List[str]:
        return [name for name in names if name.endswith(self.ending) and name not in NOT_WEIGHTS]

    def parse(self) -> Parse:
        if self.ending == ".safetensors":
            return parse_header
        # Those who read safetensors, and that is most, need not wait for the readers of archives and pickles.
        from eagle3_backend.drafter.pickled import parse_pickled

        return parse_pickled


KINDS = (
    Kind(".safetensors", "model.safetensors", "model.safetensors.index.json"),
    Kind(".bin", "pytorch_model.bin", "pytorch_model.bin.index.json"),
    Kind(".pt", "pytorch_model.pt", "pytorch_model.pt.index.json"),
)
"""In the order in which vLLM and SGLang look for them; the first of which there is a file is taken."""


class Weights(NamedTuple):
    """Tensors by name, sizes of files in bytes, metadata of all files, and what is wrong."""

    tensors: Dict[str, Tensor]
    files: Dict[str, int]
    metadata: Dict[str, str]
    findings: Tuple[Finding, ...]


def read_weights(folder: Folder) -> Weights:
    """Read all headers. Raises nothing for what is wrong with the directory: that is in the findings."""
    try:
        names = folder.names()
    except OSError as problem:
        message = f"{folder.path} cannot be listed: {problem.strerror}."
        return Weights({}, {}, {}, (error("folder_unreadable", message, path=folder.path),))
    kind = next((kind for kind in KINDS if kind.of(names)), None)
    kind = kind or next((kind for kind in KINDS if kind.index in names), None)
    if kind is not None:
        with _without_collector():
            return _Reader(folder, names, kind).read()
    fix = "Name the directory of one revision, below snapshots." if "snapshots" in names else ""
    message = "There are no weights in this directory."
    missing = error("weights_missing", message, path=folder.path, expected=KINDS[0].single, fix=fix)
    return Weights({}, {}, {}, (missing,))


@contextmanager
def _without_collector() -> Iterator[None]:
    """Headers become a million objects, none of them garbage, and looking for it would take as long as reading them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Reader:
    """One reading of a directory's files of one kind."""

    def __init__(self, folder: Folder, names: Sequence[str], kind: Kind) -> None:
        self._folder = folder
        self._names = frozenset(names)
        self._kind = kind
        self._own = kind.of(names)
        self._parse = kind.parse()
        self._readable: Set[str] = set()
        self._tensors: Dict[str, Tensor] = {}
        self._files: Dict[str, int] = {}
        self._metadata: Dict[str, str] = {}
        self._findings: List[Finding] = []

    def read(self) -> Weights:
        places = self._weight_map() if self._kind.index in self._names else None
        if places is None:
            self._read_all()
        else:
            self._read_indexed(places)
        return Weights(self._tensors, self._files, self._metadata, tuple(self._findings))

    def _weight_map(self) -> Optional[Dict[str, str]]:
        """{tensor: file} of the index, None when there is none to be had."""
        index, findings = read_object(self._folder, self._kind.index)
        self._findings.extend(findings)
        if index is None:
            return None
        places = index.get("weight_map")
        if not isinstance(places, dict) or not places:
            self._tell(error, "index_invalid", "The index has no weight_map.", self._kind.index, fix="Write it again.")
            return None
        wrong = [file for file in places.values() if not isinstance(file, str)]
        wrong = wrong or [file for file in set(places.values()) if not self._is_own(file)]
        if wrong:
            message = "The index names something that is no weight file of its directory."
            wanted = f"*{self._kind.ending}"
            self._tell(error, "index_invalid", message, self._kind.index, expected=wanted, actual=str(wrong[0])[:200])
            return None
        return places

    def _is_own(self, file: str) -> bool:
        return file == os.path.basename(file) and file.endswith(self._kind.ending)

    def _read_indexed(self, places: Mapping[str, str]) -> None:
        """Read the files that the index names and no others, as engines do."""
        named = sorted(set(places.values()))
        for name in named:
            if name in self._names:
                self._add(name)
        self._shards_missing([name for name in named if name not in self._names], len(named))
        self._compare(places)
        left = [name for name in self._own if name not in named]
        if self._kind.single in left:
            message = f"The index does not name {self._kind.single}, which transformers reads and vLLM does not."
            self._tell(warning, "weights_ambiguous", message, self._kind.single, fix="Remove whichever is old.")
        elif left:
            self._tell(
                info, "file_unlisted", f"The index does not name {_few(left)}.", left[0], actual=left[:MAX_NAMES]
            )

    def _compare(self, places: Mapping[str, str]) -> None:
        """The index against what is in its files."""
        absent: Dict[str, List[str]] = {}
        moved: List[str] = []
        for name, file in places.items():
            tensor = self._tensors.get(name)
            if tensor is None and file in self._readable:
                absent.setdefault(file, []).append(name)
            elif tensor is not None and tensor.file != file:
                moved.append(name)
        for file, names in absent.items():
            message = f"The index puts {_few(names)} into {file}, which lacks {_them(names)}."
            self._tell(error, "index_tensor_missing", message, file, actual=names[:MAX_NAMES])
        if moved:
            message = f"The index puts {_few(moved)} into another file than has {_them(moved)}."
            self._tell(warning, "index_tensor_moved", message, self._kind.index, actual=moved[:MAX_NAMES])
        unlisted = [name for name in self._tensors if name not in places]
        if unlisted:
            message = f"The index does not name {_few(unlisted)}, though the files have {_them(unlisted)}."
            self._tell(warning, "index_tensor_unlisted", message, self._kind.index, actual=unlisted[:MAX_NAMES])

    def _read_all(self) -> None:
        """Read every file of the kind, as vLLM and SGLang do where there is no index."""
        for name in self._own:
            self._add(name)
        shards = [match for match in map(SHARD.fullmatch, self._own) if match]
        if shards and self._kind.index not in self._names:
            message = "The shards have no index: vLLM and SGLang read them all, transformers finds no weights."
            self._tell(warning, "index_missing", message, self._kind.index)
        for stem, count, ending in sorted({(match["stem"], match["count"], match["ending"]) for match in shards}):
            named = [f"{stem}-{number:05}-of-{count}{ending}" for number in range(1, int(count) + 1)]
            self._shards_missing([name for name in named if name not in self._names], len(named))

    def _shards_missing(self, names: Sequence[str], of: int) -> None:
        if names:
            message = f"{len(names)} of {of} shards are missing: {_few(names)}."
            self._tell(error, "shard_missing", message, names[0], actual=names[:MAX_NAMES], fix="Fetch them again.")

    def _add(self, name: str) -> None:
        """Take in the tensors of a file, or what is wrong with it."""
        folder = self._folder
        try:
            size = self._files[name] = folder.size(name)
            tensors, metadata = self._parse(
                where(folder, name), size, lambda offset, length: folder.read(name, offset, length)
            )
        except FindingError as problem:
            self._findings.extend(problem.findings)
            return
        except OSError as problem:
            self._findings.append(unreadable(folder, name, problem))
            return
        doubled = sorted(tensors.keys() & self._tensors.keys())
        for twice in doubled[:MAX_NAMES]:
            message = f"{twice[:200]} is in {self._tensors[twice].file} and in {name}; readers differ in which counts."
            self._findings.append(error("tensor_duplicate", message, path=twice, fix="Remove one of them."))
        for twice in doubled:
            del tensors[twice]
        self._readable.add(name)
        self._tensors.update(tensors)
        self._metadata.update(metadata)

    def _tell(self, tell: Callable[..., Finding], code: str, message: str, name: str, **rest: Any) -> None:
        self._findings.append(tell(code, message, path=where(self._folder, name), **rest))


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0][:200]}{more}"


def _them(names: Sequence[str]) -> str:
    return "them" if len(names) > 1 else "it"
