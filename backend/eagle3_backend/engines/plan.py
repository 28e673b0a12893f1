"""A launch plan: the command and environment of a server, with the reason for every value.

A plan is plain JSON: ``{"engine", "device", "argv", "env", "reasons", "expects", "api_key"}``. It is made on the laptop
before the host is touched, so some values stay open and are filled in on the host: ``{model}``, ``{port}``,
``{config}``, ``{cores}`` and ``{cores-1}`` (one at least). ``expects`` is what the engine has to say of itself once it
is up; ``api_key`` is how it gets the key.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

SERVED_NAME = "target"
"""The model name that requests use, with and without a drafter."""
KEY_VARIABLE = "EAGLE3_ENDPOINT_KEY"
"""Of a stage's environment: the API key for its server, where one that is there already has to be kept."""

Plan = Mapping[str, Any]


@dataclass(frozen=True)
class Wishes:
    """What a server is wanted for; both engines make the same of it.

    ``device`` is ``cpu`` or ``cuda``; ``context`` the longest prompt plus answer, tokens; ``concurrency`` the most
    requests in flight. ``memory_share`` is the share of each GPU's memory for weights and KV cache, None as the engine
    chooses. ``pcie_only`` says that the GPUs have no NVLink. ``bulk`` is for offline work (generate, extract), where
    throughput alone counts.
    """

    device: str
    dtype: str
    context: int
    model: str = "{model}"
    concurrency: int = 32
    tensor_parallel: int = 1
    expert_parallel: bool = False
    memory_share: Optional[float] = None
    pcie_only: bool = False
    trust_remote_code: bool = False
    bulk: bool = False


class Builder:
    """Collects flags and variables with the reason for each; `plan` gives the whole of it."""

    def __init__(self, engine: str, device: str, argv: Sequence[str]) -> None:
        self._engine = engine
        self._device = device
        self._argv: List[str] = list(argv)
        self._env: Dict[str, str] = {}
        self._reasons: Dict[str, str] = {}
        self._expects: Dict[str, Any] = {}
        self._api_key: Mapping[str, str] = {}

    @classmethod
    def of(cls, plan: Plan) -> Builder:
        """To add to a plan; that one stays as it is."""
        builder = cls(plan["engine"], plan["device"], plan["argv"])
        builder._env.update(plan["env"])
        builder._reasons.update(plan["reasons"])
        builder._expects.update(plan["expects"])
        builder._api_key = plan["api_key"]
        return builder

    def flag(self, name: str, value: Optional[object], reason: str) -> None:
        """Add ``name value``, or the bare flag for None."""
        self._argv += [name] if value is None else [name, str(value)]
        self._reasons[name] = reason

    def variable(self, name: str, value: str, reason: str) -> None:
        self._env[name] = value
        self._reasons[name] = reason

    def without_peer_access(self) -> None:
        """For GPUs that share a target over PCIe alone; both engines know the flag by this name."""
        self.flag("--disable-custom-all-reduce", None, "its peer access can hang over PCIe (vllm-project/vllm#51513)")
        self.variable(
            "NCCL_P2P_DISABLE",
            "1",
            "peer access over PCIe can hang behind an IOMMU (NVIDIA/nccl#1999); once a collective of two ranks works "
            "without it, dropping it is a little faster",
        )

    def expect(self, **values: Any) -> None:
        self._expects.update(values)

    def api_key(self, way: str, name: str) -> None:
        """How the random key of a launch reaches the server: ``variable`` NAME, or the key NAME of a YAML ``file``
        readable by its owner alone, whose path stands for ``{config}``. Never as an argument, which every user of the
        host could read."""
        self._api_key = {way: name}

    def plan(self) -> Dict[str, Any]:
        return {
            "engine": self._engine,
            "device": self._device,
            "argv": self._argv,
            "env": self._env,
            "reasons": self._reasons,
            "expects": self._expects,
            "api_key": dict(self._api_key),
        }


def overridden(plan: Plan, options: Mapping[str, Any]) -> Dict[str, Any]:
    """The plan with an operator's own values: a flag's value is replaced or added, True is a bare flag, None takes a
    flag out. A dotted name is a key of a JSON value (``--speculative-config.kv_cache_dtype``); a name without dashes is
    a variable of the environment."""
    argv, env, reasons = list(plan["argv"]), dict(plan["env"]), dict(plan["reasons"])
    for name, value in options.items():
        if not name.startswith("--"):
            env.pop(name, None)
            if value is not None:
                env[name] = str(value)
        else:
            flag, _, key = name.partition(".")
            if key:
                whole = options_of(argv).get(flag)
                kept = {**(whole if isinstance(whole, dict) else {}), key: value}
                value = {entry: held for entry, held in kept.items() if held is not None}
            argv = _replaced(argv, flag, value)
            name = flag
        reasons.pop(name, None)
        if value is not None:
            reasons[name] = OPERATORS
    return {**plan, "argv": argv, "env": env, "reasons": reasons}


OPERATORS = "the operator's own value"

MANAGED = {
    "--host": "the server stays on the host's loopback, which is its fence",
    "--port": "a free port is taken on the host at launch",
    "--served-model-name": "requests and checks name the target alike with and without a drafter",
    "--model": "it is the campaign's target",
    "--model-path": "it is the campaign's target",
    "--api-key": "the key is random for each launch and never stands on a command line",
    "--config": "the file with the key",
    "VLLM_API_KEY": "the key is random for each launch and never stands in a profile",
}
"""What an operator's own options may not be, with the reason."""


def of_operator(plan: Plan, options: Mapping[str, Any]) -> Dict[str, Any]:
    """The plan with the options of a profile, which has `false` where a flag is to be left out."""
    return overridden(plan, {name: None if value is False else value for name, value in options.items()})


def _replaced(argv: Sequence[str], flag: str, value: Any) -> List[str]:
    """The command with this flag's words in the place of those it had, or at the end."""
    words: List[str] = []
    if value is True:
        words = [flag]
    elif value is not None:
        values = value if isinstance(value, list) else [value]
        words = [flag, *(compact(one) if isinstance(one, dict) else str(one) for one in values)]
    if flag not in argv:
        return [*argv, *words]
    begin = end = argv.index(flag)
    end += 1
    while end < len(argv) and not argv[end].startswith("--"):
        end += 1
    return [*argv[:begin], *words, *argv[end:]]


def compact(value: Any) -> str:
    """JSON without blanks, as a flag takes it."""
    return json.dumps(value, separators=(",", ":"))


def shell_line(plan: Plan, values: Optional[Mapping[str, str]] = None) -> str:
    """The plan as a line that a shell takes; ``values`` fills in open places such as ``{port}``."""
    known = values or {}
    words = [f"{name}={shlex.quote(known.get(value, value))}" for name, value in plan["env"].items()]
    return " ".join([*words, *(shlex.quote(known.get(word, word)) for word in plan["argv"])])


def explained(plan: Plan) -> List[Tuple[str, str, str]]:
    """Rows for a preview: flag or variable, its value (empty for a bare flag), and the reason."""
    rows = [(name, value, plan["reasons"].get(name, "")) for name, value in plan["env"].items()]
    for name, value in options_of(plan["argv"]).items():
        shown = "" if value is True else value if isinstance(value, str) else compact(value)
        rows.append((name, shown, plan["reasons"].get(name, "")))
    return rows


def options_of(argv: Sequence[str]) -> Dict[str, Any]:
    """Flag to value of a command: JSON values read, integers as such, True for a bare flag, a list for several values.

    Words before the first flag (the program, its command and the model) are no options.
    """
    options: Dict[str, Any] = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            options[name] = _value(value) if equals else True
        elif name:
            known = options[name]
            options[name] = _value(word) if known is True else [*(known if isinstance(known, list) else [known]), word]
    return options


def _value(word: str) -> Any:
    if word[:1] in "{[" or word.lstrip("-").isdigit():
        try:
            return json.loads(word)
        except ValueError:
            pass
    return word
