"""Rotary embeddings: both spellings of a config read into one form, checked, written and compared by frequency.

transformers 4 writes ``rope_theta`` and ``rope_scaling`` (with ``type`` or ``rope_type``), transformers 5
``rope_parameters`` with base and type inside. Formulas: ``transformers/modeling_rope_utils.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Tuple

from eagle3_backend.findings import Finding, error

DEFAULT_THETA = 10000.0
DEFAULT_KIND = "default"
OLD, NEW = "rope_scaling", "rope_parameters"

REQUIRED_MEMBERS: Dict[str, Tuple[str, ...]] = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings"),
    "deepseek_yarn": ("factor", "original_max_position_embeddings"),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "longrope": ("short_factor", "long_factor", "original_max_position_embeddings"),
}
"""Members without which a loader of this kind stops (vllm-project/vllm#51092)."""


@dataclass(frozen=True)
class Rope:
    """Base, kind and the kind's own members of a rotary embedding."""

    theta: float = DEFAULT_THETA
    kind: str = DEFAULT_KIND
    members: Mapping[str, Any] = field(default_factory=dict)

    @property
    def scaling(self) -> Optional[Dict[str, Any]]:
        """The value of ``rope_scaling``: None for plain rotary embeddings."""
        if self.kind == DEFAULT_KIND and not self.members:
            return None
        return {"rope_type": self.kind, **self.members}

    @property
    def parameters(self) -> Dict[str, Any]:
        """The value of ``rope_parameters``."""
        return {"rope_type": self.kind, "rope_theta": self.theta, **self.members}


def rope_of(config: Mapping[str, Any]) -> Rope:
    """The rotary embedding of a config in either spelling, as transformers 5.19 resolves it.

    A ``rope_scaling`` that is not empty wins, with the top-level base; else ``rope_parameters``, whose base beats the
    top-level one. A missing base is 10000. Where each kind of layer has its own, that of full attention is meant.
    Raises ValueError for values that are no rotary embedding.
    """
    theta, scaling = config.get("rope_theta"), _object(config, OLD)
    if not scaling:
        scaling = _object(config, NEW)
        scaling = _object(scaling, "full_attention") or scaling
        inner = scaling.get("rope_theta")
        theta = theta if inner is None else inner
    if theta is not None and (
        isinstance(theta, bool) or not isinstance(theta, (int, float)) or not 0 < theta < math.inf
    ):
        raise ValueError(f"rope_theta is {theta!r}, not a number above zero")
    kind = scaling.get("rope_type") or scaling.get("type") or DEFAULT_KIND
    members = {key: value for key, value in scaling.items() if key not in ("rope_theta", "rope_type", "type")}
    return Rope(DEFAULT_THETA if theta is None else float(theta), str(kind), members)


def _object(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = config.get(key) or {}
    if not isinstance(value, Mapping):
        raise ValueError(f"{key} is {value!r}, not an object")
    return value


def spelled_at(config: Mapping[str, Any]) -> str:
    """The key that holds the scaling which is in effect."""
    return NEW if not config.get(OLD) and config.get(NEW) else OLD


def theta_path(config: Mapping[str, Any]) -> str:
    """The key that holds the base which is in effect."""
    inner = (config.get(NEW) or {}).get("rope_theta") if not config.get(OLD) else None
    return "rope_theta" if inner is None else f"{NEW}.rope_theta"


def check_members(config: Mapping[str, Any], prefix: str = "") -> List[Finding]:
    """Members that the kind of rotary embedding needs and that are not there."""
    rope, key = rope_of(config), spelled_at(config)
    missing = [name for name in REQUIRED_MEMBERS.get(rope.kind, ()) if rope.members.get(name) is None]
    return [
        error(
            "rope_scaling_incomplete",
            f"A rotary embedding of kind {rope.kind} needs {name}; without it the loader stops.",
            path=f"{prefix}{key}.{name}",
            fix=f"Copy {name} from the target's config.",
        )
        for name in missing
    ]


def check_spellings(config: Mapping[str, Any], prefix: str = "") -> List[Finding]:
    """Whether a config that uses both spellings says the same in both; readers differ in which one they take."""
    new = config.get(NEW)
    if not new:
        return []
    outer, inner = config.get("rope_theta"), new.get("rope_theta")
    theta_agrees = outer is None or inner is None or float(outer) == float(inner)
    if theta_agrees and (OLD not in config or rope_of({OLD: config[OLD]}).scaling == rope_of({NEW: new}).scaling):
        return []
    return [
        error(
            "rope_contradiction",
            f"{NEW} and the older keys describe different rotary embeddings; which one is used depends on the reader.",
            path=prefix + NEW,
            expected={key: config[key] for key in ("rope_theta", OLD) if key in config},
            actual=dict(new),
            fix="Keep the one that the drafter was trained with.",
        )
    ]


def inverse_frequencies(rope: Rope, dim: int) -> Tuple[List[float], float]:
    """Frequency of each rotated pair, and the factor on sine and cosine, for a head of ``dim`` rotated channels.

    Kinds whose frequencies depend on the sequence at hand (dynamic, longrope) and unknown ones are compared by their
    members; their plain frequencies are given here. Raises KeyError for a missing member.
    """
    plain = [rope.theta ** (-index / dim) for index in range(0, dim, 2)]
    members = rope.members
    if rope.kind == "linear":
        return [frequency / members["factor"] for frequency in plain], 1.0
    if rope.kind == "llama3":
        return [_llama3(frequency, members) for frequency in plain], 1.0
    if rope.kind == "yarn":
        return _yarn(plain, rope, dim), _yarn_attention(members)
    return plain, 1.0


def same_rotation(left: Rope, right: Rope, dim: int) -> bool:
    """Whether two rotary embeddings rotate ``dim`` channels of a text alike, to the precision of float32.

    Multimodal sections (the kind mrope, which transformers renames to default) do not count: in a text, all positions
    of a token are the same.
    """
    if left == right:
        return True
    computed = (DEFAULT_KIND, "mrope", "linear", "llama3", "yarn")
    if left.kind not in computed or right.kind not in computed:
        return False
    try:
        (one, factor), (other, other_factor) = inverse_frequencies(left, dim), inverse_frequencies(right, dim)
    except (KeyError, TypeError, ZeroDivisionError):
        return False
    pairs = [*zip(one, other), (factor, other_factor)]
    return all(math.isclose(a, b, rel_tol=1e-6) for a, b in pairs)


def _llama3(frequency: float, members: Mapping[str, Any]) -> float:
    low, high = members["low_freq_factor"], members["high_freq_factor"]
    turns = members["original_max_position_embeddings"] * frequency / (2 * math.pi)
    if turns < low:
        return frequency / members["factor"]
    if turns > high:
        return frequency
    smooth = (turns - low) / (high - low)
    return (1 - smooth) * frequency / members["factor"] + smooth * frequency


def _yarn(plain: List[float], rope: Rope, dim: int) -> List[float]:
    """Interpolated below, extrapolated above, with a ramp between (arXiv 2309.00071)."""
    members = rope.members
    positions = members["original_max_position_embeddings"]

    def channel(turns: float) -> float:
        return dim * math.log(positions / (turns * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = channel(members.get("beta_fast") or 32.0), channel(members.get("beta_slow") or 1.0)
    if members.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = (high - low) or 0.001
    ramp = [min(max((index - low) / width, 0.0), 1.0) for index in range(len(plain))]
    return [frequency * (1 - share + share / members["factor"]) for frequency, share in zip(plain, ramp)]


def _yarn_attention(members: Mapping[str, Any]) -> float:
    factor = members["factor"]

    def scale(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    if members.get("attention_factor") is not None:
        return float(members["attention_factor"])
    if members.get("mscale") and members.get("mscale_all_dim"):
        return scale(members["mscale"]) / scale(members["mscale_all_dim"])
    return scale(1.0)
