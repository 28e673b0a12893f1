"""Which layout and architecture the engine reads, and whether it builds the layer that the config describes."""

from __future__ import annotations

from typing import Iterator

from eagle3_backend.drafter import capabilities
from eagle3_backend.drafter.checks.subject import Subject
from eagle3_backend.drafter.config import QWEN3
from eagle3_backend.drafter.keys import LAYER_DEFAULTS, READ_DEFAULTS, SPECULATORS
from eagle3_backend.findings import Finding, error, warning

_LAYER_KEYS = ("intermediate_size", "num_hidden_layers", "hidden_act", "rms_norm_eps")
_QWEN3_KEYS = ("num_key_value_heads", "max_position_embeddings")
"""What vLLM's classes take from a layer's config without a default, beside the sizes that every reader needs."""

_NEVER_NULL = ("initializer_range", "use_cache", *(key for key in READ_DEFAULTS if key != "mlp_bias"))
_NEVER_NULL_IN = {
    "llama": (*_NEVER_NULL, "mlp_bias"),
    "qwen3": (*_NEVER_NULL, "head_dim", "attention_dropout"),
    "deepseek_v2": (*_NEVER_NULL, "mlp_bias"),
    "deepseek_v3": _NEVER_NULL,
}
"""By model type, what transformers' `configuration_*.py` (5.19) declares without None, beside the sizes that have no
default here."""

_FLATTEN = "eagle3-tui convert DRAFTER OUT --to flat"


def check_layout(subject: Subject) -> Iterator[Finding]:
    """Engines choose their config class by ``model_type``; one in a nested file is told by its reading."""
    has_type = bool(subject.config.get("model_type"))
    if subject.nested and not has_type and not subject.can("nested_layout"):
        yield error(
            "model_type_missing",
            f"{subject.release} has no reader for the nested layout of speculators and stops for want of a model_type.",
            path="model_type",
            expected=subject.layer.get("model_type", "llama"),
            fix=f"Serve the flat layout: {_FLATTEN}.",
        )
    elif not subject.nested and not has_type:
        yield error(
            "model_type_missing",
            "There is no model_type, by which every engine chooses how to read the config.",
            path="model_type",
            expected="llama",
            fix="Write model_type: llama.",
        )


def check_architecture(subject: Subject) -> Iterator[Finding]:
    """The engine has to know a drafter class of this name."""
    if subject.drafter_class is not None or (subject.nested and not subject.can("nested_layout")):
        return
    if subject.nested:
        yield _nested_unsupported(subject)
        return
    name = subject.architecture
    wanted = "Eagle3DeepseekV2ForCausalLM" if subject.drafter.mla else "LlamaForCausalLMEagle3"
    generic = bool(name) and "eagle" not in name.lower()
    consequence = (
        "builds the plain model for it, which stops at the weights of an EAGLE-3 drafter or skips them"
        if generic
        else "does not know it, so it stops"
    )
    yield error(
        "architecture_generic" if generic else "architecture_unsupported",
        f"The architecture is {name or 'not named'}, and {subject.release} {consequence}.",
        path="architectures[0]",
        expected=wanted,
        actual=name or None,
        fix=f"Write {wanted} if it is such a drafter; known are "
        + ", ".join(capabilities.architectures_of(subject.engine, subject.version))
        + ".",
    )


def _nested_unsupported(subject: Subject) -> Finding:
    """vLLM chooses the class of a nested drafter by the layer's model type."""
    return error(
        "architecture_unsupported",
        f"{subject.release} has no EAGLE-3 class for a nested drafter of this model type.",
        path=subject.layer_path("model_type"),
        expected="llama or qwen3",
        actual=subject.layer.get("model_type"),
        fix="Write the model type that the layer has, or serve the flat layout.",
    )


def check_layer_keys(subject: Subject) -> Iterator[Finding]:
    """vLLM takes the layer's config of a nested file as it stands; it does not pass through a class with defaults.

    Source: vllm `transformers_utils/configs/speculators/base.py`, `models/llama.py`, `models/qwen3.py`.
    """
    if not subject.nested or not subject.can("nested_layout"):
        return
    wanted = _LAYER_KEYS + (_QWEN3_KEYS if subject.drafter.draft_class == QWEN3 else ())
    for key in (key for key in wanted if subject.layer.get(key) is None):
        yield error(
            "drafter_config_invalid",
            f"{subject.release} fills no defaults into the layer's config of a nested file and stops where {key} is "
            "not there.",
            path=subject.layer_path(key),
            fix=f"Write {key} as the drafter was trained.",
        )


def check_nulls(subject: Subject) -> Iterator[Finding]:
    """transformers 5 checks the kinds of a flat file's values, and has a default for an absent key only."""
    if subject.nested or subject.can("takes_nulls"):
        return
    model_type = str(subject.config.get("model_type"))
    for key in (key for key in _NEVER_NULL_IN.get(model_type, ()) if key in subject.config):
        if subject.config[key] is None:
            yield error(
                "drafter_config_invalid",
                f"{key} is null, and transformers 5, by which {subject.release} reads a flat file of model_type "
                f"{model_type}, refuses that.",
                path=key,
                expected={**LAYER_DEFAULTS, **READ_DEFAULTS}.get(key, "the drafter's own"),
                fix="Write it as the drafter was trained, or leave the key out to have the default.",
            )


def check_verifier(subject: Subject) -> Iterator[Finding]:
    """What ``vllm serve DRAFTER`` needs of a nested file to find the target by itself."""
    if not subject.nested or not subject.can("serves_alone"):
        return
    packaging = subject.reading.packaging
    missing = [
        path
        for path, value in (
            (f"{SPECULATORS}.verifier.name_or_path", packaging.verifier),
            (f"{SPECULATORS}.proposal_methods[0].speculative_tokens", packaging.speculative_tokens),
        )
        if not value
    ]
    for path in missing:
        message = "Without it vLLM cannot serve the drafter by itself, only beside a target that is named to it."
        yield warning(
            "speculators_config_incomplete", message, path=path, fix="Convert it with --verifier NAME and --depth K."
        )
    if packaging.verifier and packaging.verifier.startswith(("/", "./", "../", "~")):
        yield warning(
            "verifier_path_local",
            "The target is named by a path of the machine that wrote it, so on another one the drafter cannot be "
            "served by itself.",
            path=f"{SPECULATORS}.verifier.name_or_path",
            expected="the target's name on the hub",
            actual=packaging.verifier,
            fix="Convert it with --verifier NAME.",
        )


def check_layer_names(subject: Subject) -> Iterator[Finding]:
    """Whether the engine finds the layer's weights by their names."""
    for prefix, other, capability in (
        ("layers.0", "midlayer", "layer_0_names"),
        ("midlayer", "layers.0", "midlayer_names"),
    ):
        if subject.can(capability) or not any(name.startswith(prefix + ".") for name in subject.file_names.values()):
            continue
        yield error(
            "layer_names_layout",
            f"The layer's weights are named {prefix}.*; {subject.release} looks for {other}.*, skips the others and "
            "serves a random layer.",
            path=prefix,
            expected=other,
            actual=prefix,
            fix=f"Write the flat layout anew: {_FLATTEN}.",
        )


def check_layer_count(subject: Subject) -> Iterator[Finding]:
    """As many layers as the config promises, and as many as the class builds."""
    promised, held, known = subject.drafter.layers, subject.layers_held, subject.drafter_class
    if subject.weights_known and held and held != promised:
        more = "the engine builds layers that stay untrained" if promised > held else "trained layers are left out"
        yield error(
            "draft_layer_count",
            f"num_hidden_layers is {promised}, the file holds {held}: {more}.",
            path=subject.path("layers"),
            expected=held,
            actual=None if "layers" in subject.reading.absent else promised,
            fix=f"Write num_hidden_layers: {held}.",
        )
    elif promised > 1 and known and not (known.many_layers and known.many_layers.holds(subject.version)):
        yield error(
            "draft_layer_count",
            f"{subject.release} builds drafters of one layer only in its {known.title} class.",
            path=subject.path("layers"),
            expected=1,
            actual=promised,
            fix="Write num_hidden_layers: 1 if the drafter has one layer; else serve it with vLLM.",
        )


def check_latent_attention(subject: Subject) -> Iterator[Finding]:
    """SGLang builds its fused projection from the query's low rank part."""
    mla = subject.drafter.mla
    if mla is not None and not mla.q_lora_rank and not subject.can("full_rank_queries"):
        yield error(
            "q_lora_rank_missing",
            f"{subject.release} builds latent attention only with queries of low rank, and stops without.",
            path=subject.layer_path("q_lora_rank"),
            fix="Serve this drafter with vLLM.",
        )


def check_activation(subject: Subject) -> Iterator[Finding]:
    """Every class of both engines knows SiLU only."""
    if subject.drafter.hidden_act != "silu":
        yield error(
            "hidden_act_unsupported",
            f"The drafter's MLP uses {subject.drafter.hidden_act}; {subject.release} stops at anything but silu.",
            path=subject.path("hidden_act"),
            expected="silu",
            actual=subject.drafter.hidden_act,
            fix="Write silu if the drafter was trained with it.",
        )


def check_experts(subject: Subject) -> Iterator[Finding]:
    """Every drafter class builds a dense MLP (vllm `models/deepseek_eagle3.py`, sglang `models/kimi_k25_eagle3.py`)."""
    if subject.layer.get("use_moe") is True and subject.drafter_class is not None:
        yield error(
            "experts_unsupported",
            f"The drafter's MLP is a mixture of experts; {subject.release} builds a dense one of intermediate_size in "
            "its place and has no use for the experts' weights.",
            path=subject.layer_path("use_moe"),
            expected=False,
            actual=True,
            fix="Write false if the weights are dense; else train a drafter with a dense MLP.",
        )


def check_window(subject: Subject) -> Iterator[Finding]:
    """A drafter trained on a window of attention accepts less without it."""
    sizes = sorted({window for window in subject.drafter.windows if window})
    if not sizes or subject.can("config_window"):
        return
    option = subject.can("window_option")
    yield (warning if option else error)(
        "sliding_window_unsupported",
        f"The drafter attends to the last {sizes[0]} tokens; {subject.release} ignores that part of the config and "
        "attends to all.",
        path=subject.path("windows"),
        actual=sizes[0],
        fix=f"Start it with --speculative-draft-window-size {sizes[0]}." if option else "Serve it with vLLM.",
    )
