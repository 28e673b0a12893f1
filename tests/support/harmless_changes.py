"""Single changes of a right drafter that harm nothing: other spellings, defaults left out, what no engine looks at.

They are put into a copy of a `Checkpoint` of `drafters`, and answer False where they do not apply. ``worst`` is the
most that may be told of one; ``engines`` are those for which it is harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

BOTH = ("vllm", "sglang")
IDS = "eagle_aux_hidden_state_layer_ids"
SILENT, INFO, WARNING = "", "info", "warning"


@dataclass(frozen=True)
class Change:
    """A named change; ``apply(checkpoint, target)`` makes it."""

    name: str
    apply: Callable[[Any, dict[str, Any]], bool | None]
    engines: tuple[str, ...] = BOTH
    worst: str = SILENT

    def applied(self, checkpoint: Any, target: dict[str, Any]) -> Any:
        """A copy that is changed, or None where there is nothing to change."""
        changed = checkpoint.copy()
        return None if self.apply(changed, target) is False else changed


CHANGES: list[Change] = []


def change(*engines: str, worst: str = SILENT) -> Callable[..., Any]:
    """Register a function as the change of its name."""

    def register(apply: Callable[..., Any]) -> Callable[..., Any]:
        CHANGES.append(Change(apply.__name__, apply, engines or BOTH, worst))
        return apply

    return register


def changes_for(engine: str, checkpoint: Any, target: dict[str, Any]) -> Iterator[tuple[Change, Any]]:
    """Every change that applies to this drafter on this engine, with the drafter that has it."""
    for entry in [*CHANGES, *left_out(checkpoint)]:
        changed = entry.applied(checkpoint, target) if engine in entry.engines else None
        if changed is not None:
            yield entry, changed


DEFAULTS: dict[str, Any] = {
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "norm_before_fc": False,
    "fc_norm": False,
    "norm_output": False,
    "rope_scaling": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "sliding_window": None,
    "quantization_config": None,
}
"""Keys that say nothing with this value: left out, every reader takes just it."""

IDLE = ("initializer_range", "attention_dropout", "pretraining_tp", "use_cache", "dtype", "torch_dtype",
        "speculators_version", "embed_requires_grad", "eagle3_tui_nested", "transformers_version")  # fmt: skip
"""Keys that no engine asks a drafter's config for."""


def left_out(checkpoint: Any) -> Iterator[Change]:
    """Each key left out that holds its default or that nobody reads, at the top and in the layer."""
    for place in ("config", "layer") if checkpoint.nested else ("config",):
        for key, value in getattr(checkpoint, place).items():
            if key in IDLE or (key in DEFAULTS and value == DEFAULTS[key]):
                yield Change(f"{place}_without_{key}", _without(place, key))


def _without(place: str, key: str) -> Callable[..., None]:
    return lambda checkpoint, target: getattr(checkpoint, place).__delitem__(key)


# Defaults and spellings.


@change()
def head_dim_of_the_quotient_left_out(checkpoint, target):
    layer = checkpoint.layer
    return layer["hidden_size"] == layer["num_attention_heads"] * layer.pop("head_dim")


@change()
def target_width_of_the_drafter_left_out(checkpoint, target):
    return checkpoint.config.pop("target_hidden_size") in (None, checkpoint.layer["hidden_size"])


@change()
def norm_before_residual_of_a_flat_file_left_out(checkpoint, target):
    return not (checkpoint.config.pop("norm_before_residual") or checkpoint.nested)


@change()
def base_of_10000_left_out(checkpoint, target):
    return checkpoint.layer.pop("rope_theta") == 10000.0 and not checkpoint.layer.get("rope_parameters")


@change()
def activation_of_a_flat_file_left_out(checkpoint, target):
    return checkpoint.layer.pop("hidden_act") == "silu" and not checkpoint.nested


@change()
def count_of_three_streams_left_out(checkpoint, target):
    return checkpoint.layer.pop("num_aux_hidden_states") == 3


@change("vllm")
def size_of_the_whole_draft_vocabulary_left_out(checkpoint, target):
    return checkpoint.config.pop("draft_vocab_size") == target["vocab_size"] and not checkpoint.nested


@change()
def dtype_by_its_other_name(checkpoint, target):
    config = checkpoint.config
    known = config.pop("torch_dtype", None) or config.pop("dtype", None)
    config.pop("dtype", None)
    config["dtype" if "torch_dtype" in config else "torch_dtype"] = known


@change()
def rope_by_its_new_name_alone(checkpoint, target):
    layer = checkpoint.layer
    layer.pop("rope_parameters", None)
    scaling = layer.pop("rope_scaling") or {"rope_type": "default"}
    layer["rope_parameters"] = {**scaling, "rope_theta": layer.pop("rope_theta")}


@change()
def rope_by_both_names(checkpoint, target):
    layer = checkpoint.layer
    layer["rope_parameters"] = {
        **(layer["rope_scaling"] or {"rope_type": "default"}),
        "rope_theta": layer["rope_theta"],
    }


@change()
def rope_type_by_its_older_name(checkpoint, target):
    scaling = checkpoint.layer["rope_scaling"]
    if not scaling or "rope_parameters" in checkpoint.layer or "rope_type" not in scaling:
        return False
    scaling["type"] = scaling.pop("rope_type")


@change()
def default_scaling_spelled(checkpoint, target):
    if checkpoint.layer["rope_scaling"] is not None:
        return False
    checkpoint.layer["rope_scaling"] = {"rope_type": "default"}


@change()
def base_as_a_whole_number(checkpoint, target):
    checkpoint.layer["rope_theta"] = int(checkpoint.layer["rope_theta"])


@change()
def keys_in_another_order(checkpoint, target):
    checkpoint.config = dict(reversed(checkpoint.config.items()))


@change("vllm")
def architecture_by_another_name_of_the_class(checkpoint, target):
    if checkpoint.nested or checkpoint.config["architectures"] != ["LlamaForCausalLMEagle3"]:
        return False
    checkpoint.config["architectures"] = ["Eagle3LlamaForCausalLM"]


@change("vllm", worst=INFO)
def architecture_that_vllm_completes(checkpoint, target):
    if checkpoint.nested or checkpoint.config["architectures"] != ["LlamaForCausalLMEagle3"]:
        return False
    checkpoint.config["architectures"] = ["LlamaForCausalLM"]


@change("vllm", worst=INFO)
def tied_in_the_config_alone(checkpoint, target):
    checkpoint.config["tie_word_embeddings"] = True


@change()
def full_attention_spelled(checkpoint, target):
    checkpoint.layer.update(layer_types=["full_attention"], sliding_window=None, use_sliding_window=False)


@change()
def a_window_that_is_not_in_use(checkpoint, target):
    checkpoint.layer.update(sliding_window=64, use_sliding_window=False)


@change()
def a_longer_position_table(checkpoint, target):
    checkpoint.layer["max_position_embeddings"] *= 2


@change()
def another_depth(checkpoint, target):
    if not checkpoint.nested:
        return False
    checkpoint.config["speculators_config"]["proposal_methods"][0]["speculative_tokens"] = 7


@change()
def architectures_of_the_verifier_left_out(checkpoint, target):
    if not checkpoint.nested:
        return False
    del checkpoint.config["speculators_config"]["verifier"]["architectures"]


# What nobody knows.


@change()
def an_unknown_key(checkpoint, target):
    checkpoint.config["trained_by"] = {"name": "somebody", "steps": [1, 2]}


@change()
def an_unknown_key_of_the_layer(checkpoint, target):
    checkpoint.layer["residual_multiplier_of_tomorrow"] = None


@change()
def an_unknown_key_of_eagle_config(checkpoint, target):
    checkpoint.layer.setdefault("eagle_config", {})["next_layer_regular"] = True


# Tensors.


@change(worst=WARNING)
def no_t2d(checkpoint, target):
    if "t2d" not in checkpoint.tensors:
        return False
    del checkpoint.tensors["t2d"]


@change()
def t2d_as_bytes(checkpoint, target):
    return _retyped(checkpoint, "t2d", "uint8")


@change()
def d2t_in_32_bits(checkpoint, target):
    return _retyped(checkpoint, "d2t", "int32")


def _retyped(checkpoint: Any, name: str, dtype: str) -> bool:
    if name not in checkpoint.tensors:
        return False
    checkpoint.tensors[name] = (dtype, checkpoint.tensors[name][1])
    return True


@change()
def every_weight_in_float32(checkpoint, target):
    for name, (dtype, shape) in checkpoint.tensors.items():
        if dtype == "bfloat16":
            checkpoint.tensors[name] = ("float32", shape)


@change()
def a_table_of_rotations(checkpoint, target):
    checkpoint.tensors[f"{checkpoint.prefix}self_attn.rotary_emb.inv_freq"] = ("float32", (4,))


@change()
def the_first_layer_by_its_other_name(checkpoint, target):
    other = "midlayer." if checkpoint.nested else "layers.0."
    checkpoint.tensors = {name.replace(checkpoint.prefix, other): it for name, it in checkpoint.tensors.items()}


@change(worst=WARNING)
def an_embedding_as_wide_as_the_target(checkpoint, target):
    width = checkpoint.layer["hidden_size"]
    if "embed_tokens.weight" in checkpoint.tensors or width != target["hidden_size"]:
        return False
    checkpoint.tensors["embed_tokens.weight"] = ("bfloat16", (target["vocab_size"], width))


@change("sglang")
def zeros_as_maps_of_the_whole_vocabulary(checkpoint, target):
    if "d2t" in checkpoint.tensors:
        return False
    checkpoint.tensors["d2t"] = ("int64", (target["vocab_size"],))
