"""The options that an installed engine takes, as its own parser tells them, and a launch checked against them.

A surface is what `stages.option_surface` prints in the engine's environment: flags of the server, and for vLLM the
fields of its speculative config.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from eagle3_backend.drafter.capabilities import TITLES
from eagle3_backend.findings import Finding, error, warning

SPECULATIVE = "--speculative-config"


@dataclass(frozen=True)
class Option:
    """One flag or field. ``kinds`` are the kinds of values it takes, ``bare`` for a flag without one; none: its own
    parser decides. ``bounds`` are gt, ge, lt, le."""

    names: Tuple[str, ...]
    kinds: Tuple[str, ...] = ()
    default: Any = None
    choices: Tuple[Any, ...] = ()
    several: bool = False
    optional: bool = False
    deprecated: bool = False
    bounds: Mapping[str, float] = field(default_factory=dict)
    doc: str = ""

    @property
    def name(self) -> str:
        return self.names[0]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Option:
        """A flag has ``names``, a field of the speculative config a ``name``."""
        names = data.get("names") or [data["name"]]
        return cls(
            tuple(names),
            tuple(data.get("kinds") or ()),
            data.get("default"),
            tuple(data.get("choices") or ()),
            bool(data.get("several")),
            bool(data.get("optional")),
            bool(data.get("deprecated")),
            data.get("bounds") or {},
            str(data.get("doc") or ""),
        )


@dataclass(frozen=True)
class Surface:
    """All options of one installed engine. ``packaged`` says that it is the one that this product ships, because the
    engine could not be asked."""

    engine: str
    version: str
    flags: Tuple[Option, ...]
    fields: Tuple[Option, ...]
    installed: Mapping[str, str]
    packaged: bool = False

    @classmethod
    def from_json(cls, data: Mapping[str, Any], packaged: bool = False) -> Surface:
        return cls(
            str(data["engine"]),
            str(data["version"]),
            tuple(Option.from_json(entry) for entry in data["flags"]),
            tuple(Option.from_json(entry) for entry in data["fields"]),
            dict(data.get("installed") or {}),
            packaged,
        )

    def search(self, text: str) -> List[Tuple[str, Option]]:
        """Options whose name, text or choices hold every word of ``text``; names first. Fields of the speculative
        config are named below its flag."""
        words = text.lower().replace("_", "-").split()
        named = [(option.name, option) for option in self.flags]
        named += [(f"{SPECULATIVE}.{option.name}", option) for option in self.fields]
        found = []
        for name, option in named:
            spelled = " ".join([name, *option.names]).lower().replace("_", "-")
            everything = f"{spelled} {option.doc} {' '.join(map(str, option.choices))}".lower()
            if all(word in everything for word in words):
                found.append((not all(word in spelled for word in words), name, option))
        return [(name, option) for _, name, option in sorted(found, key=lambda entry: entry[:2])]


def surface_key(identity: Mapping[str, Any]) -> str:
    """The name under which a surface is kept: engine, exact versions of all that is installed, Python and probe.

    Holds nothing but characters of file names, whatever a host tells. Empty for an engine without a version, as in a
    source tree on the path: it may change at any time.
    """
    if not identity["installed"]:
        return ""
    versions = "_".join(f"{name}-{version}" for name, version in sorted(identity["installed"].items()))
    text = f"{identity['engine']}-{versions}-python-{identity['python']}-probe-{identity['dumper']}"
    return re.sub(r"[^A-Za-z0-9._+-]", "_", text)


REMOVED: Dict[str, Dict[str, str]] = {
    "vllm": {
        "--speculative-model": "--speculative-config with model",
        "--num-speculative-tokens": "--speculative-config with num_speculative_tokens",
        "--speculative-draft-tensor-parallel-size": "--speculative-config with draft_tensor_parallel_size",
        "--disable-log-requests": "--no-enable-log-requests",
        "--use-v2-block-manager": "nothing: it is the only one",
        "--num-scheduler-steps": "nothing: scheduling is asynchronous",
    },
    "sglang": {
        "--speculative-draft": "--speculative-draft-model-path",
        "--enable-ep-moe": "--ep-size",
        "--enable-flashinfer-mla": "--attention-backend flashinfer",
        "--disable-mla": "nothing: latent attention is always used",
    },
}
"""Flags of older releases that guides still name, with what took their place."""


def check_options(surface: Surface, options: Mapping[str, Any], others: Sequence[Surface] = ()) -> List[Finding]:
    """Every flag of a launch, and every key of vLLM's speculative config, against what the engine takes.

    ``options`` maps a flag to its value, True for a bare one, as `plan.options_of` reads a command. ``others`` are
    surfaces of other releases: a flag that one of them has is told as removed.
    """
    known = {name: option for option in surface.flags for name in option.names}
    found: List[Finding] = []
    for written, value in options.items():
        # vLLM reads underscores as dashes, and a dotted flag as a key of a JSON value.
        flag = written.replace("_", "-") if surface.engine == "vllm" else written
        base, _, key = flag.partition(".") if surface.engine == "vllm" else (flag, "", "")
        option = known.get(base)
        if option is None:
            found.append(_unknown(surface, flag, known, others=others))
        elif key:
            key = written.partition(".")[2]
            found += _check_fields(surface, {key: value}) if base == SPECULATIVE else []
        elif base == SPECULATIVE and isinstance(value, Mapping):
            found += _check_fields(surface, value)
        else:
            found += _check_value(option, flag, value)
    return found


def _check_fields(surface: Surface, config: Mapping[str, Any]) -> Iterator[Finding]:
    known = {option.name: option for option in surface.fields}
    for key, value in config.items():
        if key not in known:
            yield _unknown(surface, key, known, f"{SPECULATIVE}.")
        else:
            yield from _check_value(known[key], f"{SPECULATIVE}.{key}", value)


def _unknown(
    surface: Surface, name: str, known: Mapping[str, Option], prefix: str = "", others: Sequence[Surface] = ()
) -> Finding:
    release = f"{TITLES[surface.engine]} {surface.version}"
    instead = "" if prefix else REMOVED[surface.engine].get(name, "")
    had = [other.version for other in others if any(name in option.names for option in other.flags)]
    if had and not instead:
        instead = f"nothing of the same name (release {had[0]} has it)"
    if instead:
        return error(
            "option_removed",
            f"{release} does not take {name} any more; in its place: {instead}.",
            path=name,
            expected=instead,
            actual=name,
            fix=f"Use {instead}.",
        )
    longer = [other for other in known if len(name) > 4 and other.startswith(name)]
    near = longer[:1] or difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f"Did you mean {prefix}{near[0]}?" if near else "Search its options with `eagle3-tui engines --host`."
    return error(
        "option_unknown",
        f"{release} has no option {prefix}{name}. {hint}",
        path=prefix + name,
        expected=prefix + near[0] if near else None,
        actual=prefix + name,
        fix=hint,
    )


def _check_value(option: Option, path: str, value: Any) -> Iterator[Finding]:
    if option.deprecated:
        yield warning(
            "option_deprecated",
            f"The engine is about to drop {path}. {option.doc}".rstrip(),
            path=path,
            actual=path,
        )
    values = list(value) if option.several and isinstance(value, list) else [value]
    for one in values:
        problem = _problem(option, one)
        if problem:
            words, expected = problem
            yield error(
                "option_value_invalid",
                f"{path} cannot be {_shown(one)}: {words}.",
                path=path,
                expected=expected,
                actual=value,
                fix=f"Give {_expected(expected)}.",
            )
            return


_OPEN = re.compile(r"\{[a-z0-9-]+\}")
"""A place of a plan that the host fills in."""


def _problem(option: Option, value: Any) -> Optional[Tuple[str, Any]]:
    """What is wrong with a value in words, and what was expected."""
    is_flag = option.name.startswith("--")
    if isinstance(value, str) and _OPEN.fullmatch(value):
        return None
    if is_flag and "bare" in option.kinds:
        return None if value is True else ("it takes no value", "no value")
    if is_flag and value is True and not option.optional and "bool" not in option.kinds:
        return "it needs a value", list(option.choices) or "a value"
    if option.choices and value is not None and not _is_choice(option, value):
        near = difflib.get_close_matches(str(value), [str(choice) for choice in option.choices], n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]}" if near else ""
        return f"it is none of its {len(option.choices)} choices{hint}", list(option.choices)
    if not option.kinds or any(_is_kind(kind, value, is_flag) for kind in option.kinds):
        return _out_of_bounds(option, value)
    return "that is of another kind", " or ".join(option.kinds)


def _is_choice(option: Option, value: Any) -> bool:
    if value in option.choices or str(value) in [str(choice) for choice in option.choices]:
        return True
    # Parsers of the engine's own mostly take any case.
    return not option.kinds and str(value).lower() in [str(choice).lower() for choice in option.choices]


def _is_kind(kind: str, value: Any, is_flag: bool) -> bool:
    """Words of a command line are text that the engine reads: an integer is a float and a text there."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind == "int":
        return (isinstance(value, int) and not isinstance(value, bool)) or (is_flag and _parses(int, value))
    if kind == "float":
        return number or (is_flag and _parses(float, value))
    if kind == "str":
        return isinstance(value, str) or (is_flag and (number or isinstance(value, (list, dict))))
    if kind == "json":
        return not isinstance(value, bool)
    wanted = {"bool": bool, "list": list, "dict": dict, "null": type(None)}.get(kind)
    return wanted is None or isinstance(value, wanted)


def _parses(kind: type, value: Any) -> bool:
    try:
        kind(value)
    except (TypeError, ValueError):
        return False
    return isinstance(value, str)


_BOUNDS = {
    "gt": ("above", lambda value, bound: value > bound),
    "ge": ("at least", lambda value, bound: value >= bound),
    "lt": ("below", lambda value, bound: value < bound),
    "le": ("at most", lambda value, bound: value <= bound),
}


def _out_of_bounds(option: Option, value: Any) -> Optional[Tuple[str, Any]]:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    for name, bound in option.bounds.items():
        words, holds = _BOUNDS[name]
        if not holds(value, bound):
            return f"it must be {words} {bound:g}", f"{words} {bound:g}"
    return None


def _shown(value: Any) -> str:
    return repr(value)[:80]


def _expected(expected: Any) -> str:
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        shown = [str(entry) for entry in expected[:12]]
        return "one of " + ", ".join(shown) + (" ..." if len(expected) > 12 else "")
    return str(expected)


def check_installation(identity: Mapping[str, Any]) -> List[Finding]:
    """Whether one version of an engine is installed, from what the probe told of it."""
    engine = str(identity["engine"])
    versions = {name: str(version).partition("+")[0] for name, version in (identity.get("installed") or {}).items()}
    if not identity.get("module"):
        return [
            error(
                "engine_missing",
                f"{TITLES[engine]} is not installed in this environment.",
                path=f"environments.{engine}",
                fix=f"Build one with set, or adopt an environment that has {TITLES[engine]}.",
            )
        ]
    if len(set(versions.values())) > 1:
        told = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
        return [
            error(
                "engine_versions_conflict",
                f"Several distributions bring {TITLES[engine]}, one over the other: {told}. Which files are whose "
                "cannot be told.",
                path=f"environments.{engine}",
                actual=versions,
                fix="Remove all of them and install one, or use a new environment.",
            )
        ]
    return []
