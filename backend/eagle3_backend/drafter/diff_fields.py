"""What every key of a drafter's config means for a comparison: where each layout writes it, its default, who reads it.

Defaults are those of transformers' LlamaConfig and of the engines' own readers; what breaks where follows vLLM 0.32 and
SGLang 0.5.23.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Mapping, Tuple

from eagle3_backend.drafter.aux_layers import NESTED_IDS
from eagle3_backend.drafter.config import DEFAULT_AUX_COUNT
from eagle3_backend.drafter.keys import LAYER, LAYER_DEFAULTS, NESTED_IN_FLAT, READ_DEFAULTS

MISSING = object()
"""Stands for a key that is not there, where None is a value."""
BOTH = ("vllm", "sglang")
VLLM = ("vllm",)
SGLANG = ("sglang",)


class View:
    """One config.json, asked by dotted path."""

    def __init__(self, config: Mapping[str, Any], nested: bool) -> None:
        self.config = config
        self.nested = nested

    def at(self, path: str) -> Any:
        """The value at ``path``, or MISSING."""
        found: Any = self.config
        for name in path.split("."):
            if not isinstance(found, Mapping) or name not in found:
                return MISSING
            found = found[name]
        return found

    def get(self, name: str) -> Any:
        """The value of a key of the layer, wherever the layout keeps it; None when it is absent or null."""
        for path in (f"{LAYER}.{name}", name) if self.nested else (name,):
            found = self.at(path)
            if found is not MISSING and found is not None:
                return found
        return None


_DEFAULTS = {**LAYER_DEFAULTS, **READ_DEFAULTS}

Default = Callable[[View], Any]
Read = Callable[[View, Any], Any]


def _nothing(view: View) -> Any:
    return None


def _as_written(view: View, value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Field:
    """One thing that a config says.

    ``flat`` and ``nested`` are the places of either layout, the one that counts first. ``default`` is what readers take
    where nothing, or null, is written; ``read`` turns what is written into what it means. A difference breaks ``what``
    on ``engines``; without engines it is harmless, and ``note`` says why. ``launch`` marks what the flat layout has no
    place for, because there it is said when the server is started; ``by_layout`` a default that differs by layout.
    """

    name: str
    group: str
    flat: Tuple[str, ...]
    nested: Tuple[str, ...]
    what: str = ""
    engines: Tuple[str, ...] = ()
    note: str = ""
    default: Default = _nothing
    read: Read = _as_written
    launch: bool = False
    by_layout: bool = False
    bookkeeping: bool = False

    def places(self, view: View) -> Tuple[str, ...]:
        return self.nested if view.nested else self.flat


def constant(value: Any) -> Default:
    return lambda view: value


def _layer(group: str, name: str, **rest: Any) -> Field:
    """A key of the decoder layer: inside ``transformer_layer_config`` of the nested layout."""
    if name in _DEFAULTS:
        rest["default"] = constant(_DEFAULTS[name])
    return Field(name, group, (name,), (f"{LAYER}.{name}", name), **rest)


def _top(group: str, name: str, *older: str, **rest: Any) -> Field:
    """A key that both layouts keep at the top, under one of several names; a converted flat file may keep it aside."""
    names = (name, *older)
    aside = (f"{NESTED_IN_FLAT}.{name}",)
    return Field(name, group, names + aside, names + tuple(f"{LAYER}.{one}" for one in names), **rest)


def _eagle(group: str, name: str, **rest: Any) -> Field:
    """A key of ``eagle_config``, which travels inside the layer config of the nested layout."""
    path = f"eagle_config.{name}"
    return Field(path, group, (path,), (f"{LAYER}.{path}", path), **rest)


def _nested_only(group: str, name: str, **rest: Any) -> Field:
    """A key of the nested layout; a flat file that was converted keeps it aside."""
    return Field(name, group, (f"{NESTED_IN_FLAT}.{name}", name), (name, f"{LAYER}.{name}"), **rest)


def head_dim(view: View) -> Any:
    """hidden_size / heads, what every reader takes for an absent head_dim; None where that cannot be said."""
    hidden, heads = view.get("hidden_size"), view.get("num_attention_heads")
    return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else None


def _window(view: View, value: Any) -> Any:
    """A window that no layer uses is none."""
    types = view.get("layer_types")
    used = "sliding_attention" in types if isinstance(types, list) else view.get("use_sliding_window") is True
    return value if used else None


def _windowed(view: View, value: Any) -> Any:
    """Which layers have a window; full attention everywhere is what all readers take without a list."""
    full = isinstance(value, list) and all(one == "full_attention" for one in value)
    return None if full else value


def _other(name: str) -> Default:
    return lambda view: view.get(name)


def aux_count(view: View) -> int:
    """How many streams both engines make room for where no count is written; a list at the top level does not count."""
    ids = view.get(NESTED_IDS)
    return len(ids) if isinstance(ids, list) and ids else DEFAULT_AUX_COUNT


SHAPE = "tensor shapes"
FLAG = "the norms"
ATTENTION = "the attention"
MODEL_OPTIMIZER = "written by Model-Optimizer; neither engine reads it"
TRAINING = "of training only"

_SHAPES = tuple(
    _layer("Shape", name, what=SHAPE, engines=BOTH, **rest)
    for name, rest in (
        ("hidden_size", {}),
        ("intermediate_size", {}),
        ("num_attention_heads", {}),
        ("num_key_value_heads", {"default": _other("num_attention_heads")}),
        ("head_dim", {"default": head_dim}),
        ("num_hidden_layers", {}),
        ("q_lora_rank", {}),
        ("kv_lora_rank", {}),
        ("qk_nope_head_dim", {}),
        ("qk_rope_head_dim", {}),
        ("v_head_dim", {}),
        ("use_moe", {"default": constant(False)}),
        ("n_routed_experts", {}),
        ("n_shared_experts", {}),
        ("moe_intermediate_size", {}),
    )
)

_EXPERTS = tuple(
    _layer("Shape", name, what="which experts a token goes to", engines=BOTH)
    for name in (
        "num_experts_per_tok",
        "first_k_dense_replace",
        "n_group",
        "topk_group",
        "norm_topk_prob",
        "routed_scaling_factor",
        "scoring_func",
    )
)

FIELDS: Tuple[Field, ...] = (
    *_SHAPES,
    _top("Shape", "target_hidden_size", what=SHAPE, engines=BOTH, default=_other("hidden_size")),
    *_EXPERTS,
    _layer("Vocabulary", "vocab_size", what=SHAPE, engines=BOTH),
    _top("Vocabulary", "draft_vocab_size", "truncated_vocab_size", what=SHAPE, engines=BOTH,
         default=_other("vocab_size")),
    _layer("Vocabulary", "tie_word_embeddings", what="the output head", engines=SGLANG,
           note="vLLM does not read it for drafters"),
    _layer("Aux layers", "num_aux_hidden_states", what="the width of fc", engines=BOTH, default=aux_count),
    _layer("Aux layers", "num_aux_layers", what="the width of fc", engines=VLLM, note="read for Qwen3 drafters only"),
    _eagle("Aux layers", "use_aux_hidden_state", what="what enters the drafter", engines=BOTH, default=constant(True)),
    Field("norm_before_residual", "Norms", ("norm_before_residual",),
          ("norm_before_residual", f"{LAYER}.norm_before_residual"), what="the residual stream", engines=VLLM,
          default=lambda view: view.nested, by_layout=True, note="SGLang has no such branch"),
    Field("norm_before_fc", "Norms", ("eagle_config.norm_before_fc", "norm_before_fc"),
          ("norm_before_fc", f"{LAYER}.norm_before_fc", f"{LAYER}.eagle_config.norm_before_fc"), what=FLAG,
          engines=BOTH, default=constant(False)),
    _top("Norms", "fc_norm", "use_aux_norm", what=FLAG, engines=BOTH, default=constant(False)),
    _top("Norms", "norm_output", what=FLAG, engines=BOTH, default=constant(False)),
    _layer("Norms", "rms_norm_eps", what="the norms", engines=BOTH),
    _layer("Positions", "max_position_embeddings", what="the longest context", engines=SGLANG,
           note="vLLM enlarges the table to the served context"),
    _layer("Attention", "attention_bias", what=ATTENTION, engines=VLLM,
           note="SGLang never uses a bias here"),
    _layer("Attention", "sliding_window", what=ATTENTION, engines=VLLM, read=_window,
           note="SGLang takes a window from its own option only"),
    _layer("Attention", "layer_types", what=ATTENTION, engines=VLLM, read=_windowed,
           note="SGLang takes a window from its own option only"),
    _layer("Attention", "use_sliding_window", note="the window itself is compared", default=constant(False)),
    _layer("Attention", "max_window_layers", note="neither engine reads it for drafters"),
    _layer("MLP", "hidden_act", what="the MLP", engines=BOTH),
    _layer("MLP", "mlp_bias", what="the MLP", engines=VLLM,
           note="SGLang never uses a bias here"),
    _layer("Vocabulary", "logit_scale", what="the logits", engines=VLLM, default=constant(1.0)),
    _top("Weights", "quantization_config", what="how weights are read", engines=BOTH),
    Field("torch_dtype", "Weights", ("torch_dtype", "dtype"),
          ("torch_dtype", "dtype", f"{LAYER}.torch_dtype", f"{LAYER}.dtype"),
          what="the dtype it runs in", engines=SGLANG, note="vLLM runs a drafter in the target's dtype"),
    _nested_only("Launch", "speculators_config.algorithm", what="what vLLM loads", engines=VLLM, launch=True),
    _nested_only("Launch", "speculators_config.proposal_methods", what="the number of draft tokens", engines=VLLM,
                 launch=True),
    _nested_only("Launch", "speculators_config.verifier.name_or_path", what="the target of `vllm serve DRAFTER`",
                 engines=VLLM, launch=True),
    _nested_only("Launch", "speculators_config.verifier.architectures", note="vLLM does not read it", launch=True),
    _nested_only("Launch", "speculators_config.default_proposal_method", note="vLLM does not read it", launch=True),
    _nested_only("Launch", "speculators_model_type", what="what vLLM loads", engines=VLLM, launch=True),
    *(_layer("Tokens", name, note="engines take special tokens from the target")
      for name in ("bos_token_id", "eos_token_id", "pad_token_id")),
    _layer("Training", "initializer_range", note=TRAINING),
    _layer("Training", "attention_dropout", note=TRAINING),
    _layer("Training", "use_cache", note="engines keep their own cache"),
    _layer("Training", "pretraining_tp", note="neither engine reads it"),
    *(_layer("Training", name, note=TRAINING)
      for name in ("router_aux_loss_coef", "output_router_logits", "train_router")),
    *(_layer("Training", name, note="written by the trainer; neither engine reads it")
      for name in ("target_model_type", "modal_type", "num_eagle_features", "decoder_sparse_step")),
    _top("Training", "embed_requires_grad", note=TRAINING, default=constant(False)),
    *(_eagle("Training", name, note=MODEL_OPTIMIZER, default=constant(value))
      for name, value in (("use_input_layernorm_in_first_layer", True), ("use_last_layernorm", True),
                          ("use_mtp_layernorm", False), ("next_layer_regular", True), ("parallel_draft_step", 1),
                          ("parallel_draft_heads_num_layers", None))),
    *(_top("Origin", name, note="the tool that wrote the file", bookkeeping=True)
      for name in ("transformers_version", "speculators_version", "auto_map", "has_no_defaults_at_init",
                   "base_model_ep_plan", "_name_or_path")),
)  # fmt: skip
"""All plain fields, in the order in which they are shown; `diff` adds the architecture, the rope and the aux layers."""
