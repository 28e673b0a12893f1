"""JSON files of a model directory, read with suspicion: what is wrong with one is a finding, never an exception."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any, Dict, Iterable, List, Optional, Tuple

from eagle3_backend.drafter.folder import Folder, unreadable, where
from eagle3_backend.drafter.tensorfile import check_texts
from eagle3_backend.findings import Finding, FindingError, error, info, warning

MAX_JSON = 32 * 1024 * 1024
"""Longest file that is read, bytes; the index of 100 000 tensors takes a third of it."""

MAX_BRACKETS = 1 << 20
"""Most brackets of a file: each may take a hundred bytes of memory, and no config or index has a tenth of them."""

MAX_DEPTH = 32
"""Deepest nesting that is taken; configs have five levels, and what walks over them may not be made to run deep."""


def read_object(folder: Folder, name: str) -> Tuple[Optional[Dict[str, Any]], List[Finding]]:
    """The JSON object in a file and what is wrong with it; None where there is none to be had.

    ``NaN`` and ``Infinity``, which Python writes but JSON does not know, become texts: they are no numbers.
    """
    path = where(folder, name)
    try:
        size = folder.size(name)
        if size > MAX_JSON:
            message = f"{name} has {size} bytes, too many for what it should hold."
            return None, [error("json_oversized", message, path=path, expected=MAX_JSON, actual=size)]
        return parse_object(folder.read(name, 0, size), name, path)
    except FileNotFoundError:
        return None, [error("file_missing", f"There is no {name}.", path=path)]
    except FindingError as problem:
        return None, list(problem.findings)
    except OSError as problem:
        return None, [unreadable(folder, name, problem)]


def parse_object(text: bytes, name: str, path: str) -> Tuple[Optional[Dict[str, Any]], List[Finding]]:
    """`read_object` of the bytes that a file holds; ``path`` names it in findings."""
    if text.startswith(b"version https://git-lfs"):
        fix = "Fetch the file: git lfs pull."
        return None, [error("lfs_pointer", f"{name} is a Git LFS pointer, not the file.", path=path, fix=fix)]
    if text.startswith(b"\xef\xbb\xbf"):
        message = f"{name} begins with a byte order mark, which engines refuse."
        return None, [error("json_bom", message, path=path, fix="Save it as UTF-8 without a byte order mark.")]
    findings: List[Finding] = []
    twice: List[str] = []
    constants: List[str] = []

    def unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            twice.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return members

    def constant(word: str) -> str:
        constants.append(word)
        return word

    def number(word: str) -> Any:
        found = float(word)
        return found if math.isfinite(found) else constant(word)

    try:
        if text.count(b"[") + text.count(b"{") > MAX_BRACKETS:
            raise ValueError("it has more lists and objects than any config or index")
        value = json.loads(text.decode("utf-8"), object_pairs_hook=unique, parse_constant=constant, parse_float=number)
        check_texts(text, value)
    except RecursionError:
        return None, [_too_deep(name, path)]
    except ValueError as problem:
        return None, [error("json_invalid", f"{name} is no JSON: {str(problem)[:200]}.", path=path)]
    if not isinstance(value, dict):
        message = f"{name} holds no JSON object."
        return None, [error("json_invalid", message, path=path, expected="object", actual=type(value).__name__)]
    if _deeper(value, MAX_DEPTH):
        return None, [_too_deep(name, path)]
    for key in twice:
        message = f"{name} has the key {key[:200]} twice; the last one counts."
        findings.append(warning("json_key_duplicate", message, path=path, actual=key[:200], fix="Remove one of them."))
    if constants:
        # Python writes infinite bounds so, and engines read them; a value that is not a number serves nobody.
        tell = warning if "NaN" in constants else info
        message = f"{name} has {constants[0]} as a value, which is no JSON."
        findings.append(tell("json_not_finite", message, path=path, actual=constants[0]))
    return value, findings


def _too_deep(name: str, path: str) -> Finding:
    return error("json_invalid", f"{name} is nested deeper than any config.", path=path, expected=MAX_DEPTH)


def _deeper(value: Any, levels: int) -> bool:
    """Whether lists and objects are nested in more than ``levels`` levels."""
    layer = [value]
    for _ in range(levels):
        layer = [one for held in layer for one in _members(held) if isinstance(one, (dict, list))]
    return bool(layer)


def _members(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value
