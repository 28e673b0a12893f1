"""What weights a model directory holds: names, dtypes, shapes and places of all tensors, from headers alone."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from eagle3_backend.drafter.folder import Folder, where
from eagle3_backend.drafter.jsonfile import read_object
from eagle3_backend.drafter.tensorfile import Tensor, integers_of, parse_header
from eagle3_backend.findings import Finding, FindingError, Severity, error, info, warning

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARD = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<ending>\.\w+)")

INTEGERS = ("bool", "uint8", "int8", "int16", "int32", "int64")

MAX_EXAMPLES = 20
"""Most findings of one kind; a directory in which everything is wrong is told with fewer."""

MAX_SHARDS = 10_000


@dataclass(frozen=True)
class Inventory:
    """The tensors of a directory by name, the files that hold them with their sizes in bytes, and what is wrong.

    ``whole`` is false when some file could not be read, so that a tensor that is not listed may be there all the same.
    """

    tensors: Dict[str, Tensor]
    files: Dict[str, int] = field(default_factory=dict)
    metadata: Dict[str, str] = field(default_factory=dict)
    findings: Tuple[Finding, ...] = ()
    folder: Optional[Folder] = field(default=None, compare=False, repr=False)

    @property
    def whole(self) -> bool:
        return all(finding.severity is not Severity.ERROR for finding in self.findings)

    @property
    def bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.end - tensor.start for tensor in self.tensors.values())

    def integers(self, name: str) -> Optional[List[int]]:
        """Values of a tensor of integers or booleans, read now. None when there is none of that name and kind, or when
        only names and shapes are known. Raises FindingError when they cannot be read."""
        tensor = self.tensors.get(name)
        if tensor is None or tensor.dtype not in INTEGERS or self.folder is None:
            return None
        folder = self.folder
        try:
            return integers_of(name, tensor, lambda length: folder.read(tensor.file, tensor.start, length))
        except OSError as problem:
            raise FindingError(_unreadable(folder, tensor.file, problem)) from problem

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Sequence[Any]]) -> Inventory:
        """An inventory of names, dtypes and shapes alone: {name: [dtype, shape]}."""
        return cls({name: Tensor(dtype, tuple(shape), "", 0, 0) for name, (dtype, shape) in manifest.items()})


def read_inventory(folder: Folder) -> Inventory:
    """List the weights of a directory as engines choose them. Never raises for what is wrong with them."""
    try:
        names = folder.names()
    except OSError as problem:
        message = f"{folder.path} cannot be listed: {problem.strerror}."
        return Inventory({}, findings=(error("folder_unreadable", message, path=folder.path),))
    return _Reader(folder, names).read()


class _Reader:
    """One reading of a directory."""

    def __init__(self, folder: Folder, names: List[str]) -> None:
        self._folder = folder
        self._names = names
        self._findings: List[Finding] = []
        self._tensors: Dict[str, Tensor] = {}
        self._files: Dict[str, int] = {}
        self._metadata: Dict[str, str] = {}
        self._readable: Set[str] = set()

    def read(self) -> Inventory:
        files = [name for name in self._names if name.endswith(".safetensors")]
        if INDEX in self._names and self._read_indexed(files):
            pass
        elif files:
            self._read_unindexed(files)
        else:
            self._tell(error, "weights_missing", "There are no weights in this directory.", expected=SINGLE)
        return Inventory(self._tensors, self._files, self._metadata, tuple(self._findings), self._folder)

    def _read_indexed(self, files: List[str]) -> bool:
        """Read the files that the index names, as engines do. False when the index is of no use."""
        places = self._weight_map()
        if places is None:
            return False
        named = sorted(set(places.values()))
        present = [name for name in named if name in self._names]
        for name in present:
            self._add(name)
        if len(present) < len(named):
            self._shards_missing([name for name in named if name not in self._names], len(named))
        self._compare(places)
        left = [name for name in files if name not in named]
        if SINGLE in left:
            message = (
                f"There is an index and a {SINGLE} that it does not name: transformers reads the latter, vLLM not."
            )
            self._tell(warning, "weights_ambiguous", message, SINGLE, fix="Remove the one that is old.")
        elif left:
            self._tell(info, "file_unlisted", f"The index does not name {', '.join(left)[:200]}.", left[0], actual=left)
        return True

    def _weight_map(self) -> Optional[Dict[str, str]]:
        """{tensor: file} of the index, None when there is none to be had."""
        index, findings = read_object(self._folder, INDEX)
        self._findings.extend(findings)
        places = index.get("weight_map") if index is not None else None
        if not isinstance(places, dict):
            if index is not None:
                self._tell(error, "index_invalid", f"{INDEX} has no weight_map.", INDEX, fix="Write it again.")
            return None
        for tensor, file in places.items():
            if not isinstance(file, str) or file != os.path.basename(file) or not file.endswith(".safetensors"):
                message = f"The index puts {tensor[:200]} into what is no safetensors file of its directory."
                self._tell(error, "index_invalid", message, INDEX, expected="*.safetensors", actual=str(file)[:200])
                return None
        return places

    def _compare(self, places: Mapping[str, str]) -> None:
        """The index against what is in its files."""
        absent: Dict[str, List[str]] = {}
        moved: List[str] = []
        for name, file in places.items():
            tensor = self._tensors.get(name)
            if tensor is None:
                absent.setdefault(file, []).append(name)
            elif tensor.file != file:
                moved.append(name)
        for file, names in absent.items():
            if file in self._readable:
                message = f"The index puts {_few(names)} into {file}, which lacks {_them(names)}."
                self._tell(error, "index_tensor_missing", message, file, actual=names[:MAX_EXAMPLES])
        if moved:
            message = f"The index puts {_few(moved)} into another file than the one that has {_them(moved)}."
            self._tell(warning, "index_tensor_moved", message, INDEX, actual=moved[:MAX_EXAMPLES])
        unlisted = [name for name in self._tensors if name not in places]
        if unlisted:
            message = f"The index does not name {_few(unlisted)}: some readers load {_them(unlisted)}, others not."
            self._tell(warning, "index_tensor_unlisted", message, INDEX, actual=unlisted[:MAX_EXAMPLES])

    def _read_unindexed(self, files: List[str]) -> None:
        """Read all files, as vLLM and SGLang do where there is no index."""
        for name in files:
            self._add(name)
        shards = [match for match in map(SHARD.fullmatch, files) if match]
        if not shards:
            return
        if INDEX not in self._names:
            message = "The shards have no index: vLLM and SGLang read them all, transformers finds no weights."
            self._tell(warning, "index_missing", message, INDEX)
        count = max(int(match["count"]) for match in shards)
        numbers = {int(match["number"]) for match in shards}
        missing = [number for number in range(1, min(count, MAX_SHARDS) + 1) if number not in numbers]
        if missing:
            stem, ending = shards[0]["stem"], shards[0]["ending"]
            self._shards_missing([f"{stem}-{number:05}-of-{count:05}{ending}" for number in missing], count)

    def _shards_missing(self, names: List[str], of: int) -> None:
        message = f"{len(names)} of {of} shards are missing: {', '.join(names[:3])}{' ...' if len(names) > 3 else ''}."
        self._tell(error, "shard_missing", message, names[0], actual=names[:MAX_EXAMPLES], fix="Fetch them again.")

    def _add(self, name: str) -> None:
        """Take in the tensors of a file, or what is wrong with it."""
        folder = self._folder
        try:
            size = self._files[name] = folder.size(name)
            tensors, metadata = parse_header(
                where(folder, name), size, lambda offset, length: folder.read(name, offset, length)
            )
        except FindingError as problem:
            self._findings.extend(problem.findings)
            return
        except OSError as problem:
            self._findings.append(_unreadable(folder, name, problem))
            return
        for twice in sorted(tensors.keys() & self._tensors.keys())[:MAX_EXAMPLES]:
            message = f"{twice} is in {self._tensors[twice].file} and in {name}; readers differ in which one they take."
            self._findings.append(error("tensor_duplicate", message, path=twice, fix="Remove one of them."))
        self._readable.add(name)
        self._tensors.update(tensors)
        self._metadata.update(metadata)

    def _tell(self, tell: Callable[..., Finding], code: str, message: str, name: str = "", **rest: Any) -> None:
        self._findings.append(
            tell(code, message, path=where(self._folder, name) if name else self._folder.path, **rest)
        )


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{names[0][:200]}{more}"


def _them(names: Sequence[str]) -> str:
    return "them" if len(names) > 1 else "it"


def _unreadable(folder: Folder, name: str, problem: OSError) -> Finding:
    return error("file_unreadable", f"{name} cannot be read: {problem.strerror}.", path=where(folder, name))
