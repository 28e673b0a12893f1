"""The vocabulary of drafter configs: which keys there are, what they default to, and typed access to them."""

from __future__ import annotations

import math
from typing import Any, Dict, FrozenSet, Mapping, Sequence, Set, Tuple

from eagle3_backend.drafter.config import DEEPSEEK, LLAMA, QWEN3

LAYER = "transformer_layer_config"
EAGLE = "eagle_config"
SPECULATORS = "speculators_config"
NESTED_IN_FLAT = "eagle3_tui_nested"
"""The one key of a flat file that holds what only the nested layout has a place for."""

SPECULATORS_VERSION = "0.9.0"
"""The release of speculators whose nested layout is written."""

DRAFT_CLASSES: Dict[str, str] = {
    "LlamaForCausalLMEagle3": LLAMA,
    "Eagle3LlamaForCausalLM": LLAMA,
    "Eagle3Qwen2_5vlForCausalLM": LLAMA,
    "Eagle3Qwen3vlForCausalLM": LLAMA,
    "Eagle3MiniMaxM2ForCausalLM": LLAMA,
    "Eagle3Qwen3ForCausalLM": QWEN3,
    "Eagle3DeepseekV2ForCausalLM": DEEPSEEK,
    "Eagle3DeepseekV3ForCausalLM": DEEPSEEK,
}
"""What the architecture names of EAGLE-3 drafters stand for (vllm `model_executor/models/registry.py`)."""

ARCHITECTURES: Dict[str, str] = {
    LLAMA: "LlamaForCausalLMEagle3",
    QWEN3: "Eagle3Qwen3ForCausalLM",
    DEEPSEEK: "Eagle3DeepseekV2ForCausalLM",
}
"""The name that is written for each class: the one which most engines know."""

_MODEL_TYPES = {LLAMA: "llama", QWEN3: "qwen3", DEEPSEEK: "deepseek_v3"}


def model_type_of(draft_class: str) -> str:
    """The config class that a drafter of this class is usually read into."""
    return _MODEL_TYPES.get(draft_class, "llama")


LAYER_DEFAULTS: Dict[str, Any] = {
    "initializer_range": 0.02,
    "attention_dropout": 0.0,
    "pretraining_tp": 1,
    "use_cache": True,
}
"""Keys of a layer that change nothing here, with the value that is written where a file has none."""

READ_DEFAULTS: Dict[str, Any] = {
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
}
"""What is read for a key of the layer that is not there (transformers `configuration_llama.py`)."""

NESTED_DEFAULTS: Dict[str, Any] = {
    "architectures": ["Eagle3DraftModel"],
    "embed_requires_grad": False,
    "speculators_model_type": "eagle3",
    "speculators_version": SPECULATORS_VERSION,
}
SPECULATORS_DEFAULTS: Dict[str, Any] = {"algorithm": "eagle3", "default_proposal_method": "greedy"}
PROPOSAL_DEFAULTS: Dict[str, Any] = {"accept_tolerance": 0.0, "proposal_type": "greedy", "verifier_accept_k": 1}

KNOWN: FrozenSet[str] = frozenset(
    {
        *LAYER_DEFAULTS,
        *NESTED_DEFAULTS,
        SPECULATORS,
        "_name_or_path",
        "auto_map",
        "base_model_ep_plan",
        "has_no_defaults_at_init",
        "max_window_layers",
        "sliding_window",
        "use_sliding_window",
        "layer_types",
        "transformers_version",
        "target_model_type",
        "modal_type",
        # Model-Optimizer and TensorRT-LLM
        "next_layer_regular",
        "num_eagle_features",
        "parallel_draft_heads_num_layers",
        "parallel_draft_step",
        "use_input_layernorm_in_first_layer",
        "use_last_layernorm",
        "use_mtp_layernorm",
        # mixtures of experts
        "decoder_sparse_step",
        "first_k_dense_replace",
        "moe_intermediate_size",
        "n_group",
        "n_routed_experts",
        "n_shared_experts",
        "norm_topk_prob",
        "num_experts_per_tok",
        "output_router_logits",
        "router_aux_loss_coef",
        "routed_scaling_factor",
        "scoring_func",
        "topk_group",
        "train_router",
        "use_moe",
    }
)
"""Keys of published drafters that have no field in the canonical form and are no surprise either."""


class InvalidValue(ValueError):
    """A key that is missing or holds a value of a wrong kind; ``path`` is where."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path} {what}")
        self.path = path


class Level:
    """One object of a config: hands out its values and remembers which keys were asked for."""

    def __init__(self, values: Mapping[str, Any], prefix: str) -> None:
        self.values = values
        self.prefix = prefix
        self.asked: Set[str] = set()

    def take(self, key: str) -> Any:
        self.asked.add(key)
        return self.values.get(key)

    def path(self, key: str) -> str:
        return self.prefix + key

    def rest(self) -> Dict[str, Any]:
        """What nobody asked for."""
        return {key: value for key, value in self.values.items() if key not in self.asked}


def integer(value: Any, path: str) -> int:
    """A size: a whole number above zero."""
    if value is None:
        raise InvalidValue(path, "is missing")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or value <= 0:
        raise InvalidValue(path, f"is {value!r}, not a number above zero")
    if math.isinf(value) or int(value) != value:
        raise InvalidValue(path, f"is {value!r}, not a whole number")
    return int(value)


def number(value: Any, path: str) -> float:
    """A finite number above zero."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise InvalidValue(path, f"is {value!r}, not a number above zero")
    return float(value)


def boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(path, f"is {value!r}, not true or false")
    return value


def text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise InvalidValue(path, f"is {value!r}, not a text")
    return value


def texts(value: Any, path: str) -> Tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise InvalidValue(path, f"is {value!r}, not a list of texts")
    return tuple(value)


def mapping(value: Any, path: str) -> Mapping[str, Any]:
    if value is None:
        raise InvalidValue(path, "is missing")
    if not isinstance(value, Mapping):
        raise InvalidValue(path, f"is {value!r}, not an object")
    return value


def objects(value: Any, path: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
        raise InvalidValue(path, f"is {value!r}, not a list of objects")
    return value


def layer_ids(value: Any, path: str) -> Tuple[int, ...]:
    whole = isinstance(value, list) and all(isinstance(entry, int) and not isinstance(entry, bool) for entry in value)
    if not whole:
        raise InvalidValue(path, f"is {value!r}, not a list of layer numbers")
    return tuple(value)


def anything(value: Any, path: str) -> Any:
    return value
