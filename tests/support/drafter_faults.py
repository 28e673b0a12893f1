"""Single faults of a right drafter, each with what it spoils: what tests of the checks put in, one at a time.

A fault changes a copy of a `Checkpoint` of `drafters` in place. It answers False where it does not apply: where the
changed drafter would be the same, or right as well. ``field`` is the config key, tensor or file that a finding has to
name. ``engines`` are those for which it is a fault at all.

Not here, as no header tells: `norm_output`, and `norm_before_residual` on vLLM, whose two values take the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BOTH = ("vllm", "sglang")
IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class Fault:
    """A named fault. ``change(checkpoint, target)`` puts it in; see the module."""

    name: str
    field: str
    change: Callable[[Any, dict[str, Any]], bool | None]
    engines: tuple[str, ...] = BOTH

    def applied(self, checkpoint: Any, target: dict[str, Any]) -> Any:
        """A copy with the fault in it, or None where it does not apply."""
        spoiled = checkpoint.copy()
        return None if self.change(spoiled, target) is False else spoiled


FAULTS: list[Fault] = []


def fault(field: str, *engines: str) -> Callable[..., Any]:
    """Register a function as the fault of its name."""

    def register(change: Callable[..., Any]) -> Callable[..., Any]:
        FAULTS.append(Fault(change.__name__, field, change, engines or BOTH))
        return change

    return register


def faults_for(engine: str, checkpoint: Any, target: dict[str, Any]) -> list[tuple[Fault, Any]]:
    """Every fault that applies to this drafter on this engine, with the drafter that has it."""
    found = []
    for entry in [*FAULTS, *tensor_faults(checkpoint)]:
        spoiled = entry.applied(checkpoint, target) if engine in entry.engines else None
        if spoiled is not None:
            found.append((entry, spoiled))
    return found


def tensor_faults(checkpoint: Any) -> list[Fault]:
    """Each tensor left out, each with one row too many, and each weight as codes without a config for them."""
    found = []
    whole = "d2t" not in checkpoint.tensors
    for name in checkpoint.tensors:
        # With the whole vocabulary and the target's width, vLLM uses the target's head.
        shared = name == "lm_head.weight" and whole and "embed_tokens.weight" not in checkpoint.tensors
        engines = ("sglang",) if shared else BOTH
        found.append(Fault(f"without_{name}", name, lambda it, _, name=name: _drop(it, name), engines))
        found.append(Fault(f"longer_{name}", name, lambda it, _, name=name: _lengthen(it, name)))
        if name not in ("d2t", "t2d"):
            found.append(Fault(f"int8_{name}", name, lambda it, _, name=name: _retype(it, name, "int8")))
    return found


def _drop(checkpoint, name) -> None:
    del checkpoint.tensors[name]


def _lengthen(checkpoint, name) -> None:
    dtype, (rows, *rest) = checkpoint.tensors[name]
    checkpoint.tensors[name] = (dtype, (rows + 1, *rest))
    if name in checkpoint.values:
        checkpoint.values[name] = [*checkpoint.values[name], 0]


def _retype(checkpoint, name, dtype) -> None:
    checkpoint.tensors[name] = (dtype, checkpoint.tensors[name][1])


# Sizes of the config.


@fault("head_dim")
def head_dim_left_out(checkpoint, target):
    layer = checkpoint.layer
    if layer["hidden_size"] // layer["num_attention_heads"] == layer.pop("head_dim"):
        return False


@fault("head_dim")
def head_dim_doubled(checkpoint, target):
    checkpoint.layer["head_dim"] *= 2


@fault("num_attention_heads")
def one_head_more(checkpoint, target):
    checkpoint.layer["num_attention_heads"] += 1


@fault("num_key_value_heads")
def key_heads_doubled(checkpoint, target):
    checkpoint.layer["num_key_value_heads"] *= 2


@fault("hidden_size")
def wider(checkpoint, target):
    checkpoint.layer["hidden_size"] += 8


@fault("intermediate_size")
def wider_mlp(checkpoint, target):
    checkpoint.layer["intermediate_size"] += 8


@fault("vocab_size")
def vocabulary_of_another_family(checkpoint, target):
    checkpoint.layer["vocab_size"] += 64


@fault("draft_vocab_size")
def draft_vocabulary_smaller(checkpoint, target):
    checkpoint.config["draft_vocab_size"] -= 1


@fault("draft_vocab_size")
def draft_vocabulary_left_out(checkpoint, target):
    if checkpoint.config.pop("draft_vocab_size") == target["vocab_size"]:
        return False


@fault("draft_vocab_size")
def draft_vocabulary_null(checkpoint, target):
    if checkpoint.config["draft_vocab_size"] == target["vocab_size"]:
        return False
    checkpoint.config["draft_vocab_size"] = None


@fault("draft_vocab_size", "sglang")
def whole_draft_vocabulary_left_out(checkpoint, target):
    if checkpoint.config.pop("draft_vocab_size") != target["vocab_size"]:
        return False


@fault("target_hidden_size")
def target_width_left_out(checkpoint, target):
    checkpoint.config.pop("target_hidden_size")
    if checkpoint.layer["hidden_size"] == target["hidden_size"]:
        return False


@fault("target_hidden_size")
def target_width_null(checkpoint, target):
    if checkpoint.nested:
        return False
    checkpoint.config["target_hidden_size"] = None


@fault("hidden_size")
def target_width_of_another(checkpoint, target):
    checkpoint.config["target_hidden_size"] = target["hidden_size"] + 8


@fault("num_hidden_layers")
def layers_of_the_target(checkpoint, target):
    checkpoint.layer["num_hidden_layers"] = target["num_hidden_layers"]


@fault("num_aux_hidden_states")
def one_stream_more(checkpoint, target):
    checkpoint.layer["num_aux_hidden_states"] += 1


@fault("num_aux_hidden_states", "vllm")
def stream_count_left_out(checkpoint, target):
    """Engines then count the list under ``eagle_config``, else take three."""
    checkpoint.layer.pop("num_aux_hidden_states")
    listed = checkpoint.layer.get("eagle_config", {}).get(IDS)
    if listed or len(checkpoint.config[IDS]) == 3 or checkpoint.layer["model_type"] == "qwen3":
        return False


@fault("rms_norm_eps")
def no_epsilon(checkpoint, target):
    checkpoint.layer["rms_norm_eps"] = 0


@fault("hidden_act")
def another_activation(checkpoint, target):
    checkpoint.layer["hidden_act"] = "gelu"


@fault("rms_norm_eps", "vllm")
def epsilon_left_out_of_a_nested_layer(checkpoint, target):
    del checkpoint.layer["rms_norm_eps"]
    return checkpoint.nested


@fault("hidden_act", "vllm")
def activation_left_out_of_a_nested_layer(checkpoint, target):
    del checkpoint.layer["hidden_act"]
    return checkpoint.nested


@fault("max_position_embeddings")
def short_position_table(checkpoint, target):
    checkpoint.layer["max_position_embeddings"] = target["max_position_embeddings"] // 2


@fault("rms_norm_eps")
def epsilon_null(checkpoint, target):
    checkpoint.layer["rms_norm_eps"] = None


# Rotary embedding.


@fault("rope_theta")
def another_base(checkpoint, target):
    checkpoint.layer["rope_theta"] *= 10


@fault("rope_theta")
def base_left_out(checkpoint, target):
    if checkpoint.layer.pop("rope_theta") == 10000.0 or checkpoint.layer.get("rope_parameters"):
        return False


@fault("rope_scaling")
def another_scaling(checkpoint, target):
    checkpoint.layer["rope_scaling"] = {"rope_type": "linear", "factor": 7.0}


@fault("rope_scaling")
def scaling_without_factor(checkpoint, target):
    if "factor" not in (checkpoint.layer["rope_scaling"] or {}):
        return False
    del checkpoint.layer["rope_scaling"]["factor"]


@fault("rope_scaling")
def scaling_lost(checkpoint, target):
    if "factor" not in (checkpoint.layer["rope_scaling"] or {}):
        return False
    checkpoint.layer["rope_scaling"] = None


@fault("rope_parameters")
def two_rotary_embeddings(checkpoint, target):
    theta = checkpoint.layer["rope_theta"]
    checkpoint.layer["rope_parameters"] = {"rope_type": "linear", "factor": 3.0, "rope_theta": theta}


# Aux layers.


@fault(IDS)
def ids_left_out(checkpoint, target):
    checkpoint.config.pop(IDS)
    checkpoint.config.pop("eagle_config", None)


@fault(IDS)
def ids_twice_the_same(checkpoint, target):
    _set_ids(checkpoint, lambda ids: [ids[0], *ids[:-1]])


@fault(IDS)
def ids_in_falling_order(checkpoint, target):
    _set_ids(checkpoint, lambda ids: ids[::-1])


@fault(IDS)
def ids_beyond_the_target(checkpoint, target):
    _set_ids(checkpoint, lambda ids: [*ids[:-1], target["num_hidden_layers"] + 2])


@fault(IDS)
def ids_one_beside(checkpoint, target):
    layers = target["num_hidden_layers"]
    if checkpoint.config[IDS] != [2, layers // 2, layers - 3]:
        return False
    _set_ids(checkpoint, lambda ids: [layer - 1 for layer in ids])


@fault(IDS)
def ids_of_the_other_engine(checkpoint, target):
    """The top level's list, in vLLM's counting, copied to where SGLang reads its own."""
    if checkpoint.nested or checkpoint.config["eagle_config"].get(IDS) == checkpoint.config[IDS]:
        return False
    if target["architectures"] == ["DeepseekV3ForCausalLM"] and checkpoint.config[IDS][0] != 1:
        return False  # SGLang reads such a list of a DeepSeek target as it is.
    checkpoint.config["eagle_config"][IDS] = checkpoint.config[IDS]


@fault(IDS, "sglang")
def ids_for_vllm_only(checkpoint, target):
    layers = target["num_hidden_layers"]
    if checkpoint.nested or checkpoint.config[IDS] == [2, layers // 2, layers - 3]:
        return False
    del checkpoint.config["eagle_config"][IDS]


def _set_ids(checkpoint, change) -> None:
    """Change every list that is there alike: the same mistake made for each engine."""
    for level in (checkpoint.config, checkpoint.config.get("eagle_config", {})):
        if IDS in level:
            level[IDS] = change(level[IDS])


# Norms, biases, window.


@fault("norm_before_residual", "sglang")
def residual_of_normed_states(checkpoint, target):
    if checkpoint.config["norm_before_residual"]:
        return False
    checkpoint.config["norm_before_residual"] = True


@fault("norm_before_residual", "vllm")
def residual_not_told(checkpoint, target):
    del checkpoint.config["norm_before_residual"]
    return checkpoint.nested


@fault("norm_before_fc")
def norm_before_fc_flipped(checkpoint, target):
    checkpoint.config["norm_before_fc"] ^= True
    if not checkpoint.nested:
        checkpoint.config["eagle_config"]["norm_before_fc"] ^= True


@fault("norm_before_fc")
def norm_before_fc_in_two_ways(checkpoint, target):
    if checkpoint.nested:
        return False
    checkpoint.config["norm_before_fc"] ^= True


@fault("fc_norm")
def fc_norm_flipped(checkpoint, target):
    checkpoint.config["fc_norm"] ^= True


@fault("attention_bias")
def attention_bias_without_biases(checkpoint, target):
    checkpoint.layer["attention_bias"] = True


@fault("mlp_bias")
def mlp_bias_without_biases(checkpoint, target):
    checkpoint.layer["mlp_bias"] = True


@fault("sliding_window", "sglang")
def window(checkpoint, target):
    checkpoint.layer.update(sliding_window=64, use_sliding_window=True, layer_types=["sliding_attention"])


@fault("use_aux_hidden_state")
def input_of_eagle_1(checkpoint, target):
    checkpoint.layer.setdefault("eagle_config", {})["use_aux_hidden_state"] = False


# Names, layout, sharing, quantisation.


@fault("tie_word_embeddings", "sglang")
def tied(checkpoint, target):
    checkpoint.config["tie_word_embeddings"] = True


@fault("architectures", "sglang")
def plain_architecture(checkpoint, target):
    if checkpoint.nested:
        return False
    checkpoint.config["architectures"] = ["LlamaForCausalLM"]


@fault("architectures")
def unknown_architecture(checkpoint, target):
    if checkpoint.nested:
        return False
    checkpoint.config["architectures"] = ["Glm4MoeForCausalLMEagle3"]


@fault("architectures")
def no_architecture(checkpoint, target):
    if checkpoint.nested:
        return False
    del checkpoint.config["architectures"]


@fault("model_type")
def no_model_type(checkpoint, target):
    if checkpoint.nested:
        return False
    del checkpoint.config["model_type"]


@fault("model_type", "vllm")
def nested_with_a_model_type(checkpoint, target):
    if not checkpoint.nested:
        return False
    checkpoint.config["model_type"] = "llama"


@fault("model_type", "vllm")
def nested_layer_of_another_type(checkpoint, target):
    if not checkpoint.nested:
        return False
    checkpoint.layer["model_type"] = "phi3"


@fault("speculators_model_type", "vllm")
def another_algorithm(checkpoint, target):
    if not checkpoint.nested:
        return False
    checkpoint.config["speculators_model_type"] = "dflash"


@fault("verifier", "vllm")
def verifier_by_a_local_path(checkpoint, target):
    if not checkpoint.nested:
        return False
    checkpoint.config["speculators_config"]["verifier"]["name_or_path"] = "/data/models/target"


@fault("speculative_tokens", "vllm")
def no_depth(checkpoint, target):
    if not checkpoint.nested:
        return False
    del checkpoint.config["speculators_config"]["proposal_methods"][0]["speculative_tokens"]


@fault("quantization_config")
def quantisation_of_the_target(checkpoint, target):
    checkpoint.layer["quantization_config"] = {"quant_method": "fp8"}


@fault("extra.weight")
def leftover_tensor(checkpoint, target):
    checkpoint.tensors["extra.weight"] = ("bfloat16", (2,))


@fault("bias")
def bias_that_nobody_asked_for(checkpoint, target):
    checkpoint.tensors[checkpoint.prefix + "self_attn.q_proj.bias"] = ("bfloat16", (4,))


# Vocabulary maps.


@fault("d2t")
def d2t_left_at_zero(checkpoint, target):
    return _map(checkpoint, "d2t", lambda d2t: [0] * len(d2t))


@fault("d2t", "vllm")
def d2t_of_a_whole_vocabulary(checkpoint, target):
    if "d2t" in checkpoint.tensors:
        return False
    checkpoint.tensors["d2t"] = ("int64", (target["vocab_size"],))


@fault("d2t")
def d2t_with_target_ids(checkpoint, target):
    return _map(checkpoint, "d2t", lambda d2t: [offset + index for index, offset in enumerate(d2t)])


@fault("d2t")
def d2t_past_the_vocabulary(checkpoint, target):
    return _map(checkpoint, "d2t", lambda d2t: [*d2t[:-1], d2t[-1] + 1])


@fault("d2t")
def d2t_not_rising(checkpoint, target):
    return _map(checkpoint, "d2t", lambda d2t: [*d2t[:-1], -len(d2t)])


@fault("d2t")
def d2t_in_floating_point(checkpoint, target):
    if "d2t" not in checkpoint.tensors:
        return False
    _retype(checkpoint, "d2t", "float32")


@fault("t2d")
def t2d_all_true(checkpoint, target):
    return _map(checkpoint, "t2d", lambda t2d: [1] * len(t2d))


@fault("d2t")
def t2d_of_another_choice(checkpoint, target):
    return _map(checkpoint, "t2d", lambda t2d: t2d[-1:] + t2d[:-1] if t2d[-1] != t2d[-2] else _swap(t2d))


def _swap(t2d: list[int]) -> list[int]:
    """The same number of flags, at one other place."""
    first_false = t2d.index(0)
    return [*t2d[: first_false - 1], 0, 1, *t2d[first_false + 1 :]] if first_false else [1, *t2d[1:-1], 0]


def _map(checkpoint, name, change) -> bool | None:
    if name not in checkpoint.values:
        return False
    checkpoint.values[name] = change(checkpoint.values[name])
