"""What another library trains from: the parts of our inputs that every one of them asks for, in their terms."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from eagle3_backend.drafter.aux_layers import for_sglang
from eagle3_backend.drafter.config import DrafterConfig, Packaging
from eagle3_backend.drafter.layouts import flat_config, nested_config, nested_tensor_name
from eagle3_backend.drafter.target import Target
from eagle3_backend.findings import Finding, error, warning
from eagle3_backend.pipeline.parameters import TrainParameters
from eagle3_backend.stages.reference_drafter import ReferenceDrafter
from eagle3_backend.stages.starting_drafter import EMBEDDING
from eagle3_backend.stages.target_head import TargetHead
from eagle3_backend.stages.training_data import Data
from eagle3_backend.stages.training_rows import Conversation


@dataclass(frozen=True)
class Given:
    """One conversation without its last token, which was never an input: as many tokens as states.

    Shapes: [T], [T] bool, [T, A * H], [T, H]; ``last`` is from before the target's final norm.
    """

    token_ids: Tensor
    loss_mask: Tensor
    aux: Tensor
    last: Tensor


@dataclass(frozen=True)
class Work:
    """One training by a library: from what, and where it may write.

    ``config`` is the form that the drafter shall have, ``maps`` are d2t and t2d. ``gpus`` is 0 on a CPU. ``start`` is
    the drafter that the training goes on from, of that form; None for a fresh one.
    """

    parameters: TrainParameters
    target: TargetHead
    config: DrafterConfig
    maps: tuple[Tensor, Tensor]
    data: Data
    folder: Path
    gpus: int = 0
    start: ReferenceDrafter | None = None

    @property
    def inputs(self) -> Path:
        """The library's copy of our data, removed after the training."""
        return self.folder / "inputs"

    @property
    def begun(self) -> Path:
        """The drafter to start from, in the layout that the library reads."""
        return self.inputs / "start"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def processes(self) -> int:
        """One for each GPU, or as many as were asked for; one on a CPU, where the libraries know no more."""
        return self.parameters.processes or self.gpus if self.gpus else 1

    @property
    def reduced(self) -> bool:
        """Whether the drafter has a vocabulary of its own."""
        return self.config.draft_vocab_size != self.config.vocab_size

    @property
    def longest(self) -> int:
        """Tokens of the longest conversation as it is given."""
        return max(len(row.stored.token_ids) - 1 for row in (*self.data.conversations, *self.data.held_out))


def given(rows: Sequence[Conversation]) -> Iterator[Given]:
    """The conversations as libraries take them."""
    for row in rows:
        stored = row.stored
        yield Given(stored.token_ids[:-1].long(), stored.loss_mask[:-1].bool(), stored.aux[:-1], stored.last[:-1])


def write_target(work: Work, directory: Path) -> None:
    """A target in small: sizes, embedding, head and final norm, which is all that the libraries read of one.

    It is written as a Llama of the target's width, whatever the target is, with the factor that its own norm class
    applies: the libraries take another class's form of it, and some load one index of safetensors only.
    """
    directory.mkdir(parents=True, exist_ok=True)
    packaging = Packaging(dtype="bfloat16", verifier=str(directory), speculative_tokens=1)
    layer = nested_config(work.config, packaging)["transformer_layer_config"]
    config = {**layer, "architectures": ["LlamaForCausalLM"], "num_hidden_layers": work.target.facts["layers"]}
    _write_json(directory / "config.json", config)
    head = work.target.head
    tensors = {
        "model.embed_tokens.weight": work.target.embedding.contiguous(),
        "lm_head.weight": head.clone() if head.data_ptr() == work.target.embedding.data_ptr() else head.contiguous(),
        "model.norm.weight": work.target.norm.to(head.dtype),
    }
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, "model.safetensors")}
    _write_json(directory / "model.safetensors.index.json", index)


def write_nested_start(work: Work) -> None:
    """The drafter to start from in the nested layout, for a library that builds its model in the config's dtype."""
    packaging = Packaging("float32", str(work.inputs / "target"), ("LlamaForCausalLM",), speculative_tokens=1)
    tensors = {nested_tensor_name(name): tensor for name, tensor in _start_tensors(work, work.reduced).items()}
    _write_start(work.begun, nested_config(work.config, packaging), tensors)


def write_flat_start(work: Work, config: Mapping[str, Any]) -> None:
    """The drafter to start from in the flat layout, for a library that has both maps whatever the vocabulary."""
    _write_start(work.begun, config, _start_tensors(work, maps=True))


def _start_tensors(work: Work, maps: bool) -> dict[str, Tensor]:
    """Weights by flat name. The embedding is the target's and in it always: where a file lacks it, speculators 0.9.0
    goes on with whatever was in memory."""
    assert work.start is not None
    embedding = {EMBEDDING: work.target.embedding}
    return {**work.start.tensors, **embedding, **(dict(zip(("d2t", "t2d"), work.maps, strict=True)) if maps else {})}


def _write_start(directory: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    directory.mkdir(parents=True)
    kept = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(kept, directory / "model.safetensors", metadata={"format": "pt"})
    _write_json(directory / "config.json", config)


def draft_layer(work: Work) -> dict[str, Any]:
    """The decoder of the drafter as a config of its own, in the spelling of the nested layout."""
    layer: dict[str, Any] = nested_config(
        work.config, Packaging(dtype="bfloat16", verifier=str(work.inputs), speculative_tokens=1)
    )["transformer_layer_config"]
    return layer


def draft_flat(work: Work) -> dict[str, Any]:
    """The whole drafter's config in the flat layout."""
    facts = Target.of(work.target.config)
    engine_ids = for_sglang(work.config.aux_layers, facts.architecture, facts.layers)
    return flat_config(work.config, Packaging(dtype="bfloat16"), engine_ids)


def not_followed(library: str, differences: Mapping[str, str]) -> list[Finding]:
    """One warning for the parameters that a library has no place for: what it does instead, by name."""
    if not differences:
        return []
    listed = "; ".join(f"{name}: {what}" for name, what in differences.items())
    message = f"{library} does not follow every parameter of this training. {listed}."
    return [warning("trainer_parameter_unused", message, path="stages.train", actual=sorted(differences))]


def not_possible(library: str, name: str, why: str, fix: str) -> Finding:
    """A parameter without which the result would be another drafter than was asked for."""
    message = f"{library} cannot train with this {name}: {why}."
    return error("trainer_parameter_unsupported", message, path=f"stages.train.{name}", fix=fix)


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")
