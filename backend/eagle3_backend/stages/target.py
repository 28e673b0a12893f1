"""target: find or fetch the served model, and write down what the later stages need of it.

The artifact is the *target in small*: config, tokenizer, template, facts, and the three tensors that training needs
(final norm, head, embedding) cut out of the shards. The model itself stays where it is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from eagle3_backend.engines.targets import engines_for
from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.pipeline.artifacts import hash_file, write_json
from eagle3_backend.stages import demo_target
from eagle3_backend.stages.context import StageContext

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tiktoken.model",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
)
VOCABULARIES = ("tokenizer.json", "tokenizer.model", "tiktoken.model", "vocab.json")
"""Any one of these makes a directory one with a tokenizer."""

HUB_FILES = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")
"""Files taken from the hub: weights, configs, tokenizer; no pickles."""

TENSORS = {
    "norm.weight": ("model.norm.weight", "norm.weight", "model.final_layernorm.weight"),
    "lm_head.weight": ("lm_head.weight", "output.weight"),
    "embed_tokens.weight": ("model.embed_tokens.weight", "embed_tokens.weight", "model.word_embeddings.weight"),
}
"""Small name to the names used by model families, without a wrapper's prefix (`language_model.`)."""


def run(context: StageContext) -> None:
    """Write facts.json, config and tokenizer files, and head.safetensors. Raises FindingError."""
    shutil.rmtree(context.output)
    context.output.mkdir()
    parameters = context.parameters
    context.journal.progress(0, 3, "steps")
    directory, revision = locate(parameters.model, parameters.revision, context)
    context.journal.progress(1, 3, "steps")
    outer = read_config(directory)
    architecture = (outer.get("architectures") or [""])[0]
    if not engines_for(architecture)["vllm"]:
        context.refuse(_unsupported(architecture))
    facts = read_facts(directory, revision, outer)
    if not facts["template_hash"]:
        context.refuse(_no_template(directory))
    for name in ("config.json", *TOKENIZER_FILES):
        if (directory / name).exists():
            shutil.copy(directory / name, context.output / name)
    context.journal.progress(2, 3, "steps")
    cut_head(directory, context.output / "head.safetensors")
    write_json(context.output / "facts.json", facts)
    context.journal.progress(3, 3, "steps")
    context.finish(facts)


def locate(model: str, revision: str, context: StageContext) -> tuple[Path, str]:
    """The model's directory on this host and its revision. Raises FindingError."""
    if model == demo_target.NAME:
        directory = demo_target.provide(context.workspace / "models", context.journal.note)
        return directory, demo_target.REVISION
    path = Path(model).expanduser()
    if path.is_dir():
        return path.resolve(), revision or weights_revision(path)
    if model.startswith(("/", "~", ".")) or model.count("/") != 1:
        raise FindingError(
            error(
                "target_unavailable",
                f"There is no model directory {model} on this host.",
                path="target.model",
                actual=model,
                fix="Name a directory on the host, a hub id (owner/name), or demo:smollm2-135m.",
            )
        )
    return _from_hub(model, revision)


def _from_hub(model: str, revision: str) -> tuple[Path, str]:
    """A snapshot of a hub repository; its folder is named by the commit, which is the revision."""
    from huggingface_hub import snapshot_download

    try:
        directory = Path(snapshot_download(model, revision=revision or None, allow_patterns=list(HUB_FILES)))
    except Exception as problem:
        raise FindingError(
            error(
                "target_unavailable",
                f"{model} could not be taken from the hub: {type(problem).__name__}: {problem}",
                path="target.model",
                actual=model,
                fix="Check name, revision and HF_TOKEN, or put the model on the host and name its directory.",
            )
        ) from problem
    return directory, directory.name


def weights_revision(directory: Path) -> str:
    """A local directory's revision: a hash over its config and the sizes and headers of its weight files.

    Reading hundreds of GB for a hash would take longer than everything else; a header names every tensor's place.
    """
    digest = hashlib.sha256((directory / "config.json").read_bytes() if (directory / "config.json").exists() else b"")
    for path in sorted(directory.glob("*.safetensors")):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
        with open(path, "rb") as file:
            digest.update(file.read(1 << 16))
    return "local-" + digest.hexdigest()[:16]


def read_config(directory: Path) -> dict[str, Any]:
    """The target's config.json. Raises FindingError."""
    try:
        return dict(json.loads((directory / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as problem:
        raise FindingError(
            error(
                "target_config_unreadable",
                f"{directory} has no readable config.json: {problem}.",
                path="config.json",
                fix="Name the directory of a whole Hugging Face model.",
            )
        ) from problem


def read_facts(directory: Path, revision: str, outer: dict[str, Any]) -> dict[str, Any]:
    """What the later stages need to know of a target, whose config.json is ``outer``. Raises FindingError."""
    if not any((directory / name).exists() for name in VOCABULARIES):
        raise FindingError(
            error(
                "tokenizer_missing",
                f"{directory} has no tokenizer: answers could neither be asked for nor read.",
                path="tokenizer.json",
                expected=list(VOCABULARIES),
                fix="Copy the tokenizer files of the model into its directory.",
            )
        )
    try:
        return _facts(directory, revision, outer)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        reason = f"{type(problem).__name__} {problem}"
        raise FindingError(
            error(
                "target_config_invalid",
                f"The configuration in {directory} lacks a field or has a wrong value: {reason}.",
                path="config.json",
                actual=reason,
                fix="Compare its JSON files with the published model's.",
            )
        ) from problem


def _facts(directory: Path, revision: str, outer: dict[str, Any]) -> dict[str, Any]:
    config = outer.get("text_config") or outer
    architecture = (outer.get("architectures") or [""])[0]
    layers = int(config["num_hidden_layers"])
    heads = int(config["num_attention_heads"])
    rope = config.get("rope_parameters") or {}
    return {
        "model": str(directory),
        "revision": revision,
        "architecture": architecture,
        "model_type": config.get("model_type"),
        "layers": layers,
        "hidden_size": config["hidden_size"],
        "vocab_size": config["vocab_size"],
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
        "context": config.get("max_position_embeddings"),
        "rope_theta": config.get("rope_theta") or rope.get("rope_theta"),
        "eos": _eos(directory, config),
        "bos": config.get("bos_token_id"),
        "rms_norm_eps": config.get("rms_norm_eps", config.get("layer_norm_eps", 1e-6)),
        "final_norm": "rms_plus_one" if str(config.get("model_type")).startswith(("gemma", "vaultgemma")) else "rms",
        "logit_scale": _logit_scale(config),
        "logit_softcap": config.get("final_logit_softcapping"),
        "aux_layers": default_aux_layers(layers),
        "template_hash": _template_hash(directory),
        "tokenizer_hash": tokenizer_hash(directory),
        "engines": engines_for(architecture),
    }


def default_aux_layers(layers: int) -> list[int]:
    """The engines' own default, canonical ids, ascending and different."""
    return sorted({layer for layer in (2, layers // 2, layers - 3) if 0 < layer < layers})


def _eos(directory: Path, config: dict[str, Any]) -> list[int]:
    """End-of-turn ids: generation_config.json decides when it is there, as in the engines."""
    value = config.get("eos_token_id")
    path = directory / "generation_config.json"
    if path.exists():
        value = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id", value)
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _logit_scale(config: dict[str, Any]) -> float:
    """What logits are multiplied with: Cohere multiplies by `logit_scale`, Granite divides by `logits_scaling`."""
    if config.get("logits_scaling"):
        return 1.0 / float(config["logits_scaling"])
    return float(config.get("logit_scale") or 1.0)


def _template_hash(directory: Path) -> str:
    """Hash of the chat template, wherever it stands; empty when there is none."""
    path = directory / "chat_template.jinja"
    if path.exists():
        template: Any = path.read_text(encoding="utf-8")
    else:
        config = directory / "tokenizer_config.json"
        template = json.loads(config.read_text(encoding="utf-8")).get("chat_template") if config.exists() else None
    if not template:
        return ""
    text = template if isinstance(template, str) else json.dumps(template, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


def tokenizer_hash(directory: Path) -> str:
    """Hash of the vocabulary files: two targets with equal hashes give equal ids."""
    digest = hashlib.sha256()
    for name in VOCABULARIES:
        if (directory / name).exists():
            digest.update(f"{name} {hash_file(directory / name)}".encode())
    return digest.hexdigest()[:16]


def cut_head(directory: Path, output: Path) -> None:
    """Write norm, head and embedding as bfloat16 under their small names. Raises FindingError."""
    places = tensor_places(directory)
    tensors: dict[str, torch.Tensor] = {}
    for small, names in TENSORS.items():
        place = _find(places, names)
        if place is not None:
            tensors[small] = _read(directory / places[place], place)
    if "lm_head.weight" not in tensors:
        packed = [name for name in places if ".lm_head." in f".{name}" or name.startswith("output.")]
        if packed:
            raise FindingError(_quantised_head(packed[0], "packed"))
        if "embed_tokens.weight" in tensors:
            tensors["lm_head.weight"] = tensors["embed_tokens.weight"].clone()
    missing = [small for small in TENSORS if small not in tensors]
    if missing:
        raise FindingError(
            error(
                "target_tensor_missing",
                f"The target's weights have no {', '.join(missing)}.",
                path=missing[0],
                expected=list(TENSORS[missing[0]]),
                fix="Name the directory of a whole model; a new family's names belong into the target stage's table.",
            )
        )
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, output)


def tensor_places(directory: Path) -> dict[str, str]:
    """Tensor name to file name, of every safetensors file of a model. Raises FindingError."""
    index = directory / "model.safetensors.index.json"
    if index.exists():
        return dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    places: dict[str, str] = {}
    for path in sorted(directory.glob("*.safetensors")):
        try:
            with safe_open(path, framework="pt") as file:
                places.update(dict.fromkeys(file.keys(), path.name))
        except (SafetensorError, OSError) as problem:
            raise FindingError(_unreadable(path, problem)) from problem
    if not places:
        raise FindingError(
            error(
                "target_weights_missing",
                f"{directory} has no safetensors weights.",
                path=str(directory),
                fix="Convert the weights to safetensors; pickles are never loaded.",
            )
        )
    return places


def _find(places: dict[str, str], names: tuple[str, ...]) -> str | None:
    """The tensor of one of these names, with or without a wrapper's prefix."""
    for name in names:
        for place in places:
            if place == name or (place.endswith(f".{name}") and "layers." not in place and "vision" not in place):
                return place
    return None


def _read(path: Path, name: str) -> torch.Tensor:
    try:
        with safe_open(path, framework="pt") as file:
            tensor = file.get_tensor(name)
    except (SafetensorError, OSError) as problem:
        raise FindingError(_unreadable(path, problem)) from problem
    if tensor.dtype not in (torch.bfloat16, torch.float16, torch.float32):
        raise FindingError(_quantised_head(name, str(tensor.dtype).removeprefix("torch.")))
    return tensor.to(torch.bfloat16)


def _unreadable(path: Path, problem: Exception) -> Finding:
    pointer = path.exists() and path.stat().st_size < 1024 and path.read_bytes().startswith(b"version https://git-lfs")
    return error(
        "lfs_pointer" if pointer else "target_weights_unreadable",
        f"{path.name} is a Git LFS pointer, not the weights." if pointer else f"{path.name} cannot be read: {problem}.",
        path=path.name,
        fix="Fetch the file again (git lfs pull, or the hub's own download).",
    )


def _quantised_head(name: str, kind: str) -> Finding:
    return error(
        "head_quantised",
        f"{name} is stored as {kind}: training needs the target's head, norm and embedding in plain floats.",
        path=name,
        expected="bfloat16, float16 or float32",
        actual=kind,
        fix="Use a checkpoint that leaves the head unquantised (most do), or the original one, for training.",
    )


def _unsupported(architecture: str) -> Finding:
    return error(
        "target_unsupported",
        f"vLLM is not known to serve an EAGLE-3 drafter beside {architecture or 'a model without architectures'}.",
        path="config.json:architectures",
        actual=architecture,
        fix="Use another target or engine version; accept this finding where your engine does support it.",
    )


def _no_template(directory: Path) -> Finding:
    return warning(
        "chat_template_missing",
        f"{directory.name} has no chat template; chat requests to it will be refused by the engine.",
        path="tokenizer_config.json",
        fix="Use the instruction-tuned variant, or put a chat_template.jinja beside the weights.",
    )
