"""What a campaign is: its host, environments, target and stage parameters, read from one TOML file."""

from __future__ import annotations

import difflib
import hashlib
import math
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from eagle3_backend.engines.plan import MANAGED
from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline import environments, hub_sets, long_context
from eagle3_backend.pipeline.artifacts import hash_file
from eagle3_backend.pipeline.parameters import ABOVE_ZERO, AT_LEAST, ONE_OF, StageParameters
from eagle3_backend.pipeline.plan import Upload
from eagle3_backend.pipeline.prompt_names import is_named
from eagle3_backend.pipeline.stages import STAGES
from eagle3_backend.shipped import prompt_file, prompt_sets


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Host(_Table):
    """Where the work happens."""

    address: str = ""
    """`embedded`, a host name, or a name of `~/.ssh/config`."""
    user: str = ""
    """Login name; empty: as `~/.ssh/config` or the laptop says."""
    port: int = Field(default=0, ge=0, le=65535)
    """SSH port; 0: as `~/.ssh/config` says, else 22."""
    jump: str = ""
    """Jump host as `[user@]host[:port]`, or several with commas."""
    identity: str = ""
    """Private key file; empty: the agent's keys and the usual files."""
    transport: list[str] = Field(default_factory=list)
    """Instead of SSH: a command that runs a shell command on the host, e.g. ["docker", "exec", "-i", "box"]."""
    workspace: str = "~/eagle3"
    """Durable folder on the host: state, environments and artifacts live here."""
    price_per_hour: float = Field(default=0.0, ge=0)
    """What the host costs, in any currency."""
    pcie_only: bool = False
    """The GPUs have no NVLink: tensor parallelism goes over PCIe."""


class Environment(_Table):
    """A Python on the host: adopted (`python`) or built from a requirement set (`set`)."""

    python: str = ""
    """Interpreter of an environment that is there."""
    set: str = ""
    """Requirement set to build: `train-cpu`, `vllm-cpu`, `train-cuda`, `vllm-cuda`, `sglang-cuda`,
    `speculators-cuda`, `specforge-cuda`."""


class Target(_Table):
    """The served model."""

    model: str = Field(min_length=1)
    """A path on the host, a hub id, or `demo:smollm2-135m`."""
    revision: str = ""
    """Revision of a hub id."""
    trust_remote_code: bool = False
    """Let the target's own Python code run on the host."""


class _Document(_Table):
    host: Host
    environments: dict[str, Environment] = Field(default_factory=dict)
    target: Target
    stages: dict[str, dict[str, Any]] = Field(default_factory=dict)


class Profile:
    """A validated campaign. ``campaign``, from the file's stem, names the folder of its artifacts on the host."""

    def __init__(self, path: Path, document: _Document, parameters: dict[str, StageParameters]) -> None:
        self.path = path
        self.campaign = _campaign(path.stem)
        self.host = document.host
        self.environments = document.environments
        self.target = document.target
        self.parameters = parameters

    def with_parameters(self, parameters: dict[str, StageParameters]) -> Profile:
        """The same campaign with other stage parameters."""
        other = object.__new__(Profile)
        other.__dict__.update(self.__dict__, parameters=parameters)
        return other

    def with_settings(self, settings: list[str]) -> Profile:
        """Apply ``stage.field=value`` settings (values as TOML, else as text). Raises FindingError."""
        changed: dict[str, dict[str, Any]] = {}
        for setting in settings:
            name, equals, text = setting.partition("=")
            stage, dot, field_name = name.strip().partition(".")
            if not equals or not dot:
                raise FindingError(
                    error(
                        "setting_invalid", f"'{setting}' is not a setting", path="--set", expected="stage.field=value"
                    )
                )
            try:
                value = tomllib.loads(f"value = {text}")["value"]
            except tomllib.TOMLDecodeError:
                value = text
            values = changed.setdefault(stage, {})
            field_name, dot, key = field_name.partition(".")
            if dot:  # one entry of a table, such as serve.options.--max-num-seqs
                held = getattr(self.parameters.get(stage), field_name, None)
                values.setdefault(field_name, dict(held) if isinstance(held, dict) else {})[key] = value
            else:
                values[field_name] = value
        parameters = dict(self.parameters)
        for stage, values in changed.items():
            if stage not in STAGES:
                raise FindingError(_unknown_key(f"--set {stage}", stage, list(STAGES)))
            current = {entry.name: getattr(parameters[stage], entry.name) for entry in fields(parameters[stage])}
            parameters[stage] = _validate_stage(stage, {**current, **values}, "--set ")
        return self.with_parameters(parameters)

    def uploads(self) -> tuple[dict[str, list[Upload]], dict[str, Path]]:
        """Prompt files by kind with their hashes, and the laptop path of each hash.

        Sets that go by a name need none. Raises FindingError with one finding for each that cannot be read.
        """
        kinds: dict[str, list[Upload]] = {"files": [], "published": []}
        sources: dict[str, Path] = {}
        unreadable = []
        prompts = self.parameters["prompts"]
        for kind, found in kinds.items():
            for name in getattr(prompts, kind):
                if hub_sets.is_hub(name):
                    hub_sets.parse_name(name, f"stages.prompts.{kind}")
                if is_named(name):
                    continue
                path = prompt_file(self.path.parent, name)
                try:
                    digest = hash_file(path)
                except OSError as problem:
                    unreadable.append(_unreadable(path, f"stages.prompts.{kind}", problem))
                    continue
                found.append(Upload(path.name, digest))
                sources[digest] = path
        if unreadable:
            raise FindingError(*unreadable)
        return kinds, sources


def _campaign(stem: str) -> str:
    """The stem where a host can take it for a name of runs and folders; else what is left of it, and its hash."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")[:100]
    return name if name == stem else f"{name}-{hashlib.sha256(stem.encode()).hexdigest()[:6]}".lstrip("-")


def _unreadable(path: Path, key: str, problem: OSError) -> Finding:
    return error(
        "prompt_file_unreadable",
        f"The prompt file {path} cannot be read: {problem.strerror}.",
        path=key,
        actual=str(path),
        fix=f"Correct the path; it is relative to the profile file. Shipped sets by name: "
        f"{', '.join([*prompt_sets(), long_context.NAME])}. Data sets: {hub_sets.FORM}.",
    )


def _unknown_key(path: str, name: str, known: list[str]) -> Finding:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'?" if near else "Known: " + ", ".join(known)
    return error("profile_key_unknown", f"'{name}' is not a known key.", path=path, actual=name, fix=hint)


def _known_keys(location: tuple[Any, ...]) -> list[str]:
    """The keys that were possible where pydantic met an unknown one."""
    table: dict[Any, type[_Table]] = {"host": Host, "target": Target, "environments": Environment}
    if len(location) == 1:
        return list(_Document.model_fields)
    return list(table[location[0]].model_fields)


_WORDS = {
    "missing": "It is required.",
    "model_type": "It has to be a table.",
    "dict_type": "It has to be a table.",
    "list_type": "It has to be a list.",
    "tuple_type": "It has to be a list.",
}
"""What a profile's author is told where pydantic would speak of its own types."""


def _findings(problem: ValidationError, prefix: str, known: Any) -> list[Finding]:
    found = []
    for entry in problem.errors():
        path = prefix + ".".join(str(part) for part in entry["loc"])
        if entry["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            found.append(_unknown_key(path, str(entry["loc"][-1]), known(entry["loc"])))
        else:
            message = _WORDS.get(entry["type"], entry["msg"])
            actual = None if entry["type"] == "missing" else repr(entry.get("input"))[:200]
            found.append(error("profile_value_invalid", message, path=path, actual=actual))
    return found


def _validate_stage(name: str, values: dict[str, Any], prefix: str) -> StageParameters:
    kind = STAGES[name].parameters
    try:
        parameters: StageParameters = TypeAdapter(kind).validate_python(values)
    except ValidationError as problem:
        known = [entry.name for entry in fields(kind)]
        raise FindingError(*_findings(problem, f"{prefix}{name}.", lambda _: known)) from problem
    outside = _out_of_range(parameters, f"{prefix}{name}.")
    if outside:
        raise FindingError(*outside)
    return parameters


def _out_of_range(parameters: StageParameters, prefix: str) -> list[Finding]:
    found = _managed_options(getattr(parameters, "options", {}), prefix)
    for entry in fields(parameters):
        name, value = entry.name, getattr(parameters, entry.name)
        smallest = min(value, default=math.inf) if isinstance(value, tuple) and name in AT_LEAST else value
        if name in AT_LEAST and smallest < AT_LEAST[name]:
            expected: str | list[str] = f">= {AT_LEAST[name]:g}"
        elif name in ABOVE_ZERO and not value > 0:
            expected = "> 0"
        elif name in ONE_OF and value not in ONE_OF[name]:
            expected = list(ONE_OF[name])
        elif isinstance(value, float) and not math.isfinite(value):
            expected = "a finite number"
        else:
            continue
        found.append(
            error(
                "profile_value_invalid",
                f"{name} cannot be {value}.",
                path=prefix + name,
                expected=expected,
                actual=value,
            )
        )
    return found


def _managed_options(options: dict[str, Any], prefix: str) -> list[Finding]:
    """An engine's own options that are not the operator's to set."""
    return [
        error(
            "option_managed",
            f"{name} cannot be set here: {MANAGED[name]}.",
            path=f"{prefix}options.{name}",
            actual=name,
            fix="Take it out.",
        )
        for name in options
        if name in MANAGED
    ]


def parameter_schema() -> dict[str, Any]:
    """JSON schema of each stage's parameters by stage name; the descriptions are the text under each field."""
    schemas = {}
    for name, stage in STAGES.items():
        schemas[name] = TypeAdapter(stage.parameters).json_schema()
        # pydantic reads the text under a field from the class that it is given, not from those above it.
        for base in stage.parameters.__mro__[1:-1]:
            for key, values in TypeAdapter(base).json_schema()["properties"].items():
                if "description" in values:
                    schemas[name]["properties"][key].setdefault("description", values["description"])
    return schemas


def load(path: Path) -> Profile:
    """Read and validate a profile. Raises FindingError with one finding for each fault."""
    return validated(path, _read(path))


def validated(path: Path, data: dict[str, Any]) -> Profile:
    """The profile that a file with this content is, or would be. Raises FindingError as `load`."""
    found: list[Finding] = []
    document = None
    try:
        document = _Document.model_validate(data)
    except ValidationError as problem:
        found += _findings(problem, "", _known_keys)
    # The stages are looked at even then, so that no fault waits for another one.
    given = data.get("stages")
    tables: dict[str, Any] = given if isinstance(given, dict) else {}
    found += [_unknown_key(f"stages.{name}", name, list(STAGES)) for name in tables if name not in STAGES]
    facts = _facts(document) if document else {}
    parameters: dict[str, StageParameters] = {}
    for name in STAGES:
        values = tables.get(name, {})
        if not isinstance(values, dict):
            continue
        try:
            parameters[name] = _validate_stage(name, {**values, **facts.get(name, {})}, "stages.")
        except FindingError as problem:
            found += problem.findings
    if document is not None:
        found += _host_findings(document.host) + _environment_findings(document.environments)
    if found or document is None:
        raise FindingError(*found)
    return Profile(path, document, parameters)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin a file with a byte order mark
    except OSError as problem:
        raise FindingError(
            error("profile_unreadable", f"The profile cannot be read: {problem.strerror}.", path=str(path))
        ) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise FindingError(
            error("profile_invalid", f"The profile is not TOML: {problem}.", path=str(path))
        ) from problem


def _facts(document: _Document) -> dict[str, dict[str, Any]]:
    """Stage parameters that the profile says in tables of their own."""
    environments = {
        name: {key: value for key, value in entry.model_dump().items() if value}
        for name, entry in document.environments.items()
    }
    return {"setup": {"environments": environments}, "target": document.target.model_dump()}


def _host_findings(host: Host) -> list[Finding]:
    found = []
    if bool(host.address) == bool(host.transport):
        found.append(
            error(
                "profile_value_invalid",
                "A host has either an address or a transport command.",
                path="host.address",
                actual=host.address,
                fix='Write address = "embedded", a host name, or transport = ["docker", "exec", "-i", "box"].',
            )
        )
    if not re.fullmatch(r"~|~?/.+", host.workspace):
        found.append(
            error(
                "profile_value_invalid",
                "The workspace has to be an absolute path, or one below the login's home (~/).",
                path="host.workspace",
                actual=host.workspace,
                fix="Name a folder on a durable disk of the host.",
            )
        )
    return found


def _environment_findings(entries: dict[str, Environment]) -> list[Finding]:
    found = []
    for name, entry in entries.items():
        if name not in environments.ADOPTED_IMPORTS:
            found.append(_unknown_key(f"environments.{name}", name, list(environments.ADOPTED_IMPORTS)))
        if bool(entry.python) == bool(entry.set):
            found.append(
                error(
                    "profile_value_invalid",
                    "An environment is either adopted (python) or built (set).",
                    path=f"environments.{name}",
                    fix='Write python = "/path/bin/python", or set = "train-cpu".',
                )
            )
        elif entry.set and entry.set not in environments.SETS:
            found.append(environments.set_unknown(name, entry.set))
    return found
