"""Runs in speculators' environment: ``beside_speculators.py STEP``, a JSON object on standard input, the answer as the
last line of standard output.

``write`` makes a small target, drafters for it by the product's writers, and others that speculators saves itself.
``compare`` loads one directory of each pair with speculators and one with the product, and tells what differs.

speculators runs as it is installed, without a patch. Of its attentions "eager" is chosen, which adds a mask of numbers
and so needs no compiler. Logits are taken from the head, as its forward returns drafted tokens only.
"""

from __future__ import annotations

import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from speculators.config import SpeculatorsConfig, VerifierConfig
from speculators.model import SpeculatorModel
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import LlamaConfig

from eagle3_backend.drafter.config import DrafterConfig, Packaging, drafter_for
from eagle3_backend.drafter.layouts import nested_config, nested_tensor_name
from eagle3_backend.drafter.reading import read_config
from eagle3_backend.stages.drafter_model import Drafter, Rows
from eagle3_backend.stages.export import write
from eagle3_backend.stages.reference_drafter import of_directory
from eagle3_backend.stages.store import open_store

STEPS = 3
DOCUMENTS = (29, 18)
AUX = (2, 4, 5)
DRAFT_VOCABULARY = 256
TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 50000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
EMBEDDING, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


def write_all(folder: Path, ours: dict[str, dict], theirs: dict[str, dict]) -> None:
    """``target``, ``ours/<name>`` and ``theirs/<name>`` under ``folder``.

    ``ours`` is what each drafter has otherwise than the target's default one, ``theirs`` the flags for speculators.
    """
    target = folder / "target"
    target.mkdir(parents=True)
    (target / "config.json").write_text(json.dumps(TARGET), encoding="utf-8")
    width, size = TARGET["hidden_size"], TARGET["vocab_size"]
    weights = {EMBEDDING: normal(1, size, width), HEAD: normal(2, size, width), NORM: 1 + 0.3 * normal(3, width)}
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    base = drafter_for(TARGET, AUX, DRAFT_VOCABULARY).to_json()
    for name, changes in ours.items():
        embedding = changes.pop("embedding", False)
        config = DrafterConfig.from_json({**base, **changes})
        write_ours(folder / "ours" / name, config, target, embedding=embedding)
    for name, flags in theirs.items():
        save_theirs(folder / "theirs" / name, flags, target)


def write_ours(directory: Path, config: DrafterConfig, target: Path, *, embedding: bool) -> None:
    """A nested drafter as the export stage writes it, in float32, with random weights."""
    drafter = Drafter(config, torch.zeros(config.vocab_size, config.hidden_size))
    tensors = {name: random_like(name, weight) for name, weight in drafter.served_weights().items()}
    if embedding:
        tensors["embed_tokens.weight"] = normal(4, config.vocab_size, config.hidden_size)
    if config.draft_vocab_size != config.vocab_size:
        tensors["d2t"], tensors["t2d"] = maps()
    packaging = Packaging("float32", str(target), tuple(TARGET["architectures"]), STEPS)
    nested = {nested_tensor_name(name): tensor for name, tensor in tensors.items()}
    write(directory, nested_config(config, packaging), nested)


def save_theirs(directory: Path, flags: dict, target: Path) -> None:
    """A drafter that speculators builds and saves, with random weights."""
    layer = LlamaConfig(**{**TARGET, "num_hidden_layers": 1})
    layer._attn_implementation = "eager"
    config = Eagle3SpeculatorConfig(
        architectures=["Eagle3DraftModel"],
        transformer_layer_config=layer,
        draft_vocab_size=DRAFT_VOCABULARY,
        eagle_aux_hidden_state_layer_ids=list(AUX),
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=STEPS)],
            default_proposal_method="greedy",
            verifier=VerifierConfig.from_pretrained(str(target)),
        ),
        **flags,
    )
    model = Eagle3DraftModel(config)
    d2t, t2d = maps()
    model.load_vocab_mappings(t2d, d2t)
    model.load_verifier_weights()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if not name.startswith(("verifier_", "embed_tokens")):
                weight.copy_(random_like(name, weight))
    model.save_pretrained(directory)


def compare(theirs: Path, ours: Path, store: str | None) -> dict:
    """What speculators made of ``theirs`` and the product of ``ours``, and how far their logits are apart.

    ``float32`` and ``float64`` hold the largest difference at each step in that arithmetic; ``scale`` is the largest
    logit.
    """
    model, loading = load_theirs(theirs)
    verifier = Path(model.config.speculators_config.verifier.name_or_path)
    target = json.loads((verifier / "config.json").read_text(encoding="utf-8"))
    reference = of_directory(ours, target)
    drafter = reference.model(embedding_of(verifier))
    rows = random_rows(reference.config) if store is None else stored_rows(store)
    valid = valid_rows(rows)
    differences = {}
    for dtype in (torch.float32, torch.float64):
        inputs = replace(rows, aux=rows.aux.to(dtype))
        with torch.no_grad():
            left, right = logits_of(model.to(dtype), inputs), drafter.to(dtype).lm_head(drafter(inputs))
        assert left.dtype == right.dtype == dtype
        apart = (left - right).abs().amax(-1).masked_fill(~valid, 0)
        differences[str(dtype).removeprefix("torch.")] = apart.amax(-1).tolist()
    packaging = read_config(json.loads((ours / "config.json").read_text(encoding="utf-8")), target).packaging
    return {
        **loading,
        **differences,
        "scale": right.abs().max().item(),
        "logits": int(valid.sum()) * right.shape[-1],
        "config": {"theirs": facts_of_theirs(model.config), "ours": facts_of_ours(reference.config)},
        "packaging": {
            "theirs": packaging_of_theirs(model.config),
            "ours": [packaging.verifier, list(packaging.verifier_architectures), packaging.speculative_tokens],
        },
    }


def load_theirs(directory: Path) -> tuple[Eagle3DraftModel, dict]:
    """Loaded by speculators' own classes, in float32, and the weights that file and model do not share.

    The library tolerates some absent weights; here only those of the target may be absent. An absent embedding is to
    become the target's where the library finds NaN in it, but transformers 5 leaves absent weights in memory as it is
    (vllm-project/speculators#962, mended there for other drafters). torch fills such memory with NaN where all it does
    is to be deterministic, which is asked for in that case alone.
    """
    config = Eagle3SpeculatorConfig.from_pretrained(directory)
    config.transformer_layer_config._attn_implementation = "eager"
    stored = load_file(directory / "model.safetensors")
    torch.use_deterministic_algorithms("embed_tokens.weight" not in stored)
    model = SpeculatorModel.from_pretrained(directory, config=config, dtype=torch.float32).eval()
    torch.use_deterministic_algorithms(False)
    state = model.state_dict()
    expected = {name for name in state if not name.startswith("verifier_")} - {"embed_tokens.weight"}
    shared = set(stored) & set(state)
    changed = [name for name in shared if not torch.equal(state[name], stored[name].to(state[name].dtype))]
    return model, {
        "class": type(model).__name__,
        "missing": sorted(expected - set(stored)),
        "unexpected": sorted(set(stored) - set(state)),
        "changed": sorted(changed),
    }


def logits_of(model: Eagle3DraftModel, rows: Rows) -> torch.Tensor:
    """Logits [K, N, DV] of their training-time forward, whose documents lie packed behind each other."""
    heard: list[torch.Tensor] = []
    hook = model.lm_head.register_forward_hook(lambda _module, _inputs, output: heard.append(output[0]))
    lengths = torch.tensor(rows.documents)
    model(
        hidden_states=rows.aux[None],
        input_ids=rows.start_tokens[None],
        document_ids=torch.arange(len(lengths)).repeat_interleave(lengths)[None],
        position_ids=1 + rows.positions[None],
        ttt_steps=STEPS,
    )
    hook.remove()
    return torch.stack(heard)


def valid_rows(rows: Rows) -> torch.Tensor:
    """[K, N]: where the token that a step takes in lies in the row's own conversation."""
    length = torch.tensor(rows.documents).repeat_interleave(torch.tensor(rows.documents))
    return torch.stack([rows.positions + step < length for step in range(STEPS)])


def random_rows(config: DrafterConfig) -> Rows:
    """Rows of `DOCUMENTS` with random tokens and states, whose streams differ in size as those of a target do."""
    generator = torch.Generator().manual_seed(5)
    streams = torch.logspace(-1, 1, len(config.aux_layers)).repeat_interleave(config.target_hidden_size)
    parts = [
        (
            torch.randint(config.vocab_size, (rows + 1,), generator=generator),
            torch.randn(rows, len(streams), generator=generator) * streams,
        )
        for rows in DOCUMENTS
    ]
    return packed(parts)


def stored_rows(store: str) -> Rows:
    """The first two conversations of a campaign's hold-out."""
    entries = list(open_store(Path(store)).rows("holdout"))[:2]
    return packed([(entry.token_ids[:200], entry.aux[:200][:-1]) for entry in entries])


def packed(parts: list[tuple[torch.Tensor, torch.Tensor]]) -> Rows:
    """Conversations' tokens [T] and aux states [T-1, A*Ht] as rows, all of them used."""
    documents = tuple(len(aux) for _, aux in parts)
    tokens = [
        torch.cat([torch.nn.functional.pad(ids[1 + step :], (0, step)) for ids, _ in parts]) for step in range(STEPS)
    ]
    positions = torch.cat([torch.arange(length) for length in documents])
    aux = torch.cat([states for _, states in parts])
    return Rows(aux, tokens[0], positions, documents, torch.arange(len(positions)), torch.stack(tokens))


def embedding_of(verifier: Path) -> torch.Tensor:
    with safe_open(verifier / "model.safetensors", "pt") as file:
        return file.get_tensor(EMBEDDING).float()


def facts_of_theirs(config: Eagle3SpeculatorConfig) -> dict:
    """What a config object of speculators says, by the names of `DrafterConfig`."""
    layer = config.transformer_layer_config
    rope = dict(layer.rope_parameters)
    return {
        "hidden_size": layer.hidden_size,
        "target_hidden_size": config.target_hidden_size or layer.hidden_size,
        "intermediate_size": layer.intermediate_size,
        "heads": layer.num_attention_heads,
        "kv_heads": layer.num_key_value_heads,
        "head_dim": layer.head_dim,
        "vocab_size": layer.vocab_size,
        "draft_vocab_size": config.draft_vocab_size,
        "aux_layers": config.eagle_aux_hidden_state_layer_ids,
        "rms_norm_eps": layer.rms_norm_eps,
        "max_position_embeddings": layer.max_position_embeddings,
        "rope": {"theta": rope.pop("rope_theta"), "kind": rope.pop("rope_type"), "members": rope},
        "draft_class": layer.model_type,
        "layers": layer.num_hidden_layers,
        "norm_before_residual": config.norm_before_residual,
        "norm_before_fc": config.norm_before_fc,
        "fc_norm": config.fc_norm,
        "norm_output": config.norm_output,
        "attention_bias": layer.attention_bias,
        "mlp_bias": layer.mlp_bias,
        "tie_word_embeddings": layer.tie_word_embeddings,
        "hidden_act": layer.hidden_act,
        "bos_token_id": layer.bos_token_id,
        "eos_token_id": layer.eos_token_id,
        "pad_token_id": layer.pad_token_id,
    }


def facts_of_ours(config: DrafterConfig) -> dict:
    """The same of the product's; fields that speculators has no place for are left out."""
    elsewhere = ("mla", "unnamed_aux_count", "aux_input", "windows", "target_head", "quantization")
    return {name: value for name, value in config.to_json().items() if name not in elsewhere}


def packaging_of_theirs(config: Eagle3SpeculatorConfig) -> list:
    inner = config.speculators_config
    return [inner.verifier.name_or_path, inner.verifier.architectures, inner.proposal_methods[0].speculative_tokens]


def maps() -> tuple[torch.Tensor, torch.Tensor]:
    """``d2t`` and ``t2d`` of every second target token."""
    draft = torch.arange(DRAFT_VOCABULARY)
    t2d = torch.zeros(TARGET["vocab_size"], dtype=torch.bool)
    t2d[2 * draft] = True
    return draft.clone(), t2d


def random_like(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Weights that keep states in size; the same for a name in every drafter of the same shapes."""
    value = normal(sum(name.encode()), *weight.shape)
    return 1 + 0.3 * value if value.ndim == 1 else value / value.shape[-1] ** 0.5


def normal(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def main() -> None:
    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        answer: list[dict] = []
        if sys.argv[1] == "write":
            write_all(Path(request["folder"]), request["ours"], request["theirs"])
        else:
            store = request.get("store")
            answer = [compare(Path(theirs), Path(ours), store) for theirs, ours in request["pairs"]]
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
