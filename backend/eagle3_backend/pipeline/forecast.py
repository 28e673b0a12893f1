"""What a campaign will cost before it starts: time, disk and money, stage by stage.

Time comes from what this host did before, scaled by the amount of work; without such a run, from figures measured on
two CPU cores for the demo target, and for anything else it is unknown and said to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from eagle3_backend.findings import Finding, error
from eagle3_backend.pipeline.environments import GB, SETS
from eagle3_backend.pipeline.parameters import NATIVE

CHARACTERS_PER_TOKEN = 4
"""English text; a rule of thumb that is replaced by counts as soon as conversations exist."""

DEMO_MODEL = "demo:smollm2-135m"


@dataclass(frozen=True)
class Shape:
    """What the forecast knows of a target: layers captured for each token, width, and bytes a value."""

    slots: int
    hidden_size: int
    bytes_per_value: int = 2

    @property
    def bytes_per_token(self) -> int:
        return self.slots * self.hidden_size * self.bytes_per_value


DEMO_SHAPE = Shape(slots=4, hidden_size=576)


@dataclass(frozen=True)
class Amounts:
    """Prompts of a campaign: training and hold-out conversations, turns in all, and prompt characters in all."""

    turns: int
    characters: int


@dataclass(frozen=True)
class History:
    """An earlier run of a stage on this host: seconds it took and how much work it was (`work`)."""

    seconds: float
    work: float


@dataclass(frozen=True)
class StageForecast:
    """``seconds`` and ``bytes`` are None where nothing is known; ``basis`` says where the time comes from."""

    stage: str
    seconds: Optional[float]
    bytes: Optional[int]
    basis: str


@dataclass(frozen=True)
class Forecast:
    stages: Tuple[StageForecast, ...]
    price_per_hour: float

    @property
    def seconds(self) -> Optional[float]:
        """Time of all stages; None when one of them is unknown."""
        known = [entry.seconds for entry in self.stages]
        return None if None in known else sum(value for value in known if value is not None)

    @property
    def bytes(self) -> int:
        """Disk of the stages whose size is known."""
        return sum(entry.bytes or 0 for entry in self.stages)

    @property
    def cost(self) -> Optional[float]:
        return None if self.seconds is None else self.seconds / 3600 * self.price_per_hour

    def to_json(self) -> Dict[str, Any]:
        return {
            "stages": [
                {"stage": entry.stage, "seconds": entry.seconds, "bytes": entry.bytes, "basis": entry.basis}
                for entry in self.stages
            ],
            "seconds": self.seconds,
            "bytes": self.bytes,
            "cost": self.cost,
        }


ENGINE_START = 25.0
"""Seconds until the demo's engine answers, on two cores."""

_DEMO_SECONDS = {
    "target": (30.0, 0.0),
    "prompts": (1.0, 0.0),
    # 6.2 CPU seconds for 1000 answer tokens with their hidden states; with the prompts, four in five tokens are such.
    "generate": (ENGINE_START, 2.45e-3),
    "extract": (1.0, 4.0e-5),
    "vocab": (2.0, 0.0),
    "train": (10.0, 3.75e-4),
    "evaluate": (18.0, 0.0),
    "export": (4.0, 0.0),
    "bench": (2 * ENGINE_START, 1.95e-2),
    "trace": (2 * ENGINE_START + 20.0, 0.0),
}
"""Fixed seconds, and seconds for each unit of `work`, measured for the demo target on two cores."""

_DEMO_TARGET_BYTES = 700_000_000
"""The demo target with its cut-out head."""

_CHECK_SECONDS = 15.0
"""For `setup` to import what environments promise."""

_BUILD_SECONDS_PER_BYTE = 225.0 / (6 * GB)
"""Both CPU environments took 225 s, most of it to fetch and unpack packages."""


def tokens(amounts: Amounts, generate: Mapping[str, Any]) -> int:
    """Upper estimate of tokens in all conversations: prompts as counted, answers at their full length."""
    return amounts.characters // CHARACTERS_PER_TOKEN + amounts.turns * int(generate["max_new_tokens"])


def work(stage: str, parameters: Mapping[str, Mapping[str, Any]], amounts: Optional[Amounts]) -> Optional[float]:
    """How much a stage has to do, in the unit that its time grows with; 1 for stages of fixed length. None where that
    is unknown: it grows with prompts that nobody has counted yet (``amounts`` None)."""
    if stage in ("generate", "extract", "train"):
        if amounts is None:
            return None
        passes = int(parameters["train"]["epochs"]) if stage == "train" else 1
        return float(tokens(amounts, parameters["generate"]) * passes)
    if stage == "bench":
        bench = parameters["bench"]
        answers = int(bench["in_domain"]) + int(bench["published"])
        tokens_asked = (answers + SWEEP_WEIGHT * _swept(bench)) * int(bench["max_new_tokens"])
        tokens_asked += int(bench.get("long_context", 0)) * (int(bench["max_new_tokens"]) + LONG_PROMPT_WORK)
        return tokens_asked + START_WORK * (bench_starts(bench) - 2)
    return 1.0


SWEEP_WEIGHT = 3.0
"""What a pair of timed answers costs of an answer that is counted only: there are two, fewer of them at a time."""


LONG_PROMPT_WORK = 440.0
"""Answer tokens that a bench measures in the time of reading a long document, 3.5k tokens on average. Not measured: by
what a token costs `generate`, prompts included."""


START_WORK = 1280.0
"""Answer tokens that a bench measures in the time of an engine start."""


def bench_starts(bench: Mapping[str, Any]) -> int:
    """Engine starts of a bench: the target alone, and each depth and way to draft."""
    return 1 + len({int(bench["depth"]), *bench["depths"]}) + len(set(bench["against"]))


def _swept(bench: Mapping[str, Any]) -> int:
    """Timed pairs of answers beyond those of the plain bench, our drafter one request at a time."""
    prompts = int(bench["speed_prompts"])
    loads = set(bench["concurrencies"]) - {1}
    timed = prompts + sum(max(prompts, 4 * load) for load in loads)
    return timed * (bench_starts(bench) - 1) - prompts if prompts else 0


def forecast(
    stages: Sequence[str],
    parameters: Mapping[str, Mapping[str, Any]],
    amounts: Optional[Amounts],
    shape: Optional[Shape],
    history: Mapping[str, History],
    price_per_hour: float,
    builds: Sequence[str] = (),
) -> Forecast:
    """Forecast of ``stages`` (names, in order). ``shape`` None: the target is not known yet; ``amounts`` None: a data
    set of the prompts is not read yet.

    ``builds`` are the requirement sets that `setup` will build: environments that are adopted or there cost nothing.
    """
    demo = str(parameters["target"]["model"]) == DEMO_MODEL
    borrowed = _borrows_trainer(parameters)
    entries = []
    for stage in stages:
        if stage == "setup":
            entries.append(_setup(builds))
            continue
        measured = demo and not (stage == "train" and borrowed)
        seconds, basis = _seconds(stage, work(stage, parameters, amounts), history.get(stage), measured)
        entries.append(StageForecast(stage, seconds, _bytes(stage, parameters, amounts, shape, demo), basis))
    return Forecast(tuple(entries), price_per_hour)


def _borrows_trainer(parameters: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether another library trains, whose speed is its own, and which gets the states in files of its own."""
    return parameters["train"].get("trainer", NATIVE) != NATIVE


def _setup(builds: Sequence[str]) -> StageForecast:
    """An earlier run says little about it: what was built then is there now."""
    size = sum(SETS[name].bytes_needed for name in builds)
    basis = "the size of its packages" if builds else "nothing to build"
    return StageForecast("setup", _CHECK_SECONDS + size * _BUILD_SECONDS_PER_BYTE, size, basis)


def _seconds(stage: str, amount: Optional[float], known: Optional[History], demo: bool) -> Tuple[Optional[float], str]:
    """Seconds of a stage with this much work, and what they rest on."""
    if amount is None:
        return None, "unknown until the data set is read"
    fixed, each = _DEMO_SECONDS.get(stage, (0.0, 0.0)) if demo else (0.0, 0.0)
    if known is not None:
        fixed = min(fixed, known.seconds / 2)
        return fixed + (known.seconds - fixed) * amount / known.work, "an earlier run on this host"
    if demo and stage in _DEMO_SECONDS:
        return fixed + each * amount, "two CPU cores"
    return None, "unknown until this host has run it once"


def _bytes(
    stage: str,
    parameters: Mapping[str, Mapping[str, Any]],
    amounts: Optional[Amounts],
    shape: Optional[Shape],
    demo: bool,
) -> Optional[int]:
    if stage in ("generate", "extract") or (stage == "train" and _borrows_trainer(parameters)):
        if shape is None or amounts is None:
            return None
        captured = stage != "generate" or bool(parameters["generate"]["capture"])
        return tokens(amounts, parameters["generate"]) * shape.bytes_per_token if captured else 0
    if stage == "target":
        return _DEMO_TARGET_BYTES if demo else None
    return 0


def store_bytes(samples: int, mean_tokens: int, shape: Shape) -> int:
    """Bytes of a hidden-state store: every token keeps ``slots`` streams."""
    return samples * mean_tokens * shape.bytes_per_token


def mount_of(path: str, mounts: Mapping[str, int]) -> str:
    """The mount point among ``mounts`` (mount to free bytes) that holds ``path``: the longest that is a parent."""
    parents = [mount for mount in mounts if path == mount or path.startswith(mount.rstrip("/") + "/")]
    return max(parents, key=len, default="/")


def disk_findings(needed: int, path: str, mounts: Mapping[str, int]) -> Tuple[Finding, ...]:
    """`disk_space_insufficient` when ``needed`` bytes do not fit into what is free on the mount that holds ``path``."""
    mount = mount_of(path, mounts)
    free = mounts.get(mount)
    if free is None or needed <= free:
        return ()
    return (
        error(
            "disk_space_insufficient",
            f"{path} needs {needed} bytes ({needed / 1e9:.1f} GB), and {mount} has {free} ({free / 1e9:.1f} GB) free.",
            path=mount,
            expected=needed,
            actual=free,
            fix="Free space, choose a larger workspace, or use fewer or shorter conversations.",
        ),
    )
