"""A target and a drafter small enough to serve without any engine: one token at a time, nothing cached.

The vocabulary is tiny, so that a random drafter is right often enough for steps of every length.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from eagle3_backend.drafter.config import DrafterConfig, drafter_for
from eagle3_backend.stages.drafter_model import Drafter
from eagle3_backend.stages.replay import Request, replay

VOCABULARY, DRAFT_VOCABULARY, LAYERS, DEPTH = 12, 8, 5, 3
AUX = (1, 2, 4)
KEPT = torch.tensor([0, 1, 3, 4, 6, 7, 9, 11])


def make_target(folder: Path) -> LlamaForCausalLM:
    """Random weights, saved to ``folder`` in full, and as the artifact of the target stage to ``folder/artifact``."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.4,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.model.norm.weight.uniform_(0.5, 2.0)
    model.save_pretrained(folder / "model")
    artifact = folder / "artifact"
    artifact.mkdir()
    facts = {"model": str(folder / "model"), "rms_norm_eps": config.rms_norm_eps, "final_norm": "rms"}
    (artifact / "facts.json").write_text(json.dumps(facts))
    (artifact / "config.json").write_text((folder / "model" / "config.json").read_text())
    head = {
        "norm.weight": model.model.norm.weight,
        "lm_head.weight": model.lm_head.weight,
        "embed_tokens.weight": model.model.embed_tokens.weight,
    }
    save_file({name: tensor.detach().clone() for name, tensor in head.items()}, artifact / "head.safetensors")
    return model


def make_drafter(model: LlamaForCausalLM, aux: tuple[int, ...] = AUX) -> Drafter:
    """Random weights, of the kind whose next step gets the normed state."""
    config: DrafterConfig = replace(
        drafter_for({**model.config.to_dict(), "architectures": ["LlamaForCausalLM"]}, aux, DRAFT_VOCABULARY),
        norm_output=True,
    )
    drafter = Drafter(config, model.model.embed_tokens.weight.detach().clone())
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in drafter.parameters():
            if weight.dim() == 2:
                weight.normal_(0.0, 0.5, generator=generator)
    return drafter.eval()


def prompts() -> list[list[int]]:
    draw = random.Random(9)
    return [[draw.randrange(VOCABULARY) for _ in range(length)] for length in (3, 5, 8)]


@torch.no_grad()
def serve(
    model: LlamaForCausalLM, drafter: Drafter, target_ids: torch.Tensor, prompt: list[int], answer_tokens: int = 20
) -> Request:
    """Draft, verify, advance, until there are ``answer_tokens``; the engine's own record of it."""
    ids = [*prompt, _look(model, prompt)[1]]
    accepted = []
    while len(ids) < len(prompt) + answer_tokens:
        drafts = _draft(drafter, target_ids, ids, _look(model, ids[:-1])[0])
        taken = 0
        while taken < DEPTH and _look(model, ids)[1] == drafts[taken]:
            ids.append(drafts[taken])
            taken += 1
        ids.append(_look(model, ids)[1])
        accepted.append(taken)
    return Request(str(prompt), tuple(prompt), tuple(ids[len(prompt) :]), tuple(accepted))


@torch.no_grad()
def likely_text(model: LlamaForCausalLM, drafter: Drafter, target_ids: torch.Tensor, prompt: list[int]) -> list[int]:
    """A text of which this drafter guesses about two tokens of three, whatever the target would have said."""
    draw = random.Random(str(prompt))
    ids = [*prompt, draw.randrange(VOCABULARY)]
    while len(ids) < len(prompt) + 60:
        guess = _draft(drafter, target_ids, ids, _look(model, ids[:-1])[0], depth=1)[0]
        ids.append(guess if draw.random() < 0.67 else draw.randrange(VOCABULARY))
    return ids[len(prompt) :]


@torch.no_grad()
def verified(
    model: LlamaForCausalLM, drafter: Drafter, target_ids: torch.Tensor, prompt: list[int], tokens: list[int]
) -> Request:
    """The record of an engine that runs ``drafter`` beside a target which says exactly ``tokens``."""
    streams = _look(model, [*prompt, *tokens])[0]
    every_row = Request("", prompt, tokens, [0] * len(tokens))
    lengths = replay(drafter, target_ids, streams, every_row, DEPTH).predicted
    accepted, row = [], 0
    while row < len(lengths):
        accepted.append(lengths[row])
        row += lengths[row] + 1
    return Request(str(prompt), prompt, tokens, accepted)


def _look(model: LlamaForCausalLM, ids: list[int]) -> tuple[dict[int, torch.Tensor], int]:
    """Streams by layer, the last from before the final norm, and the greedy next token."""
    final: list[torch.Tensor] = []
    hook = model.model.norm.register_forward_pre_hook(lambda _module, inputs: final.append(inputs[0]))
    states = model.model(input_ids=torch.tensor([ids]), output_hidden_states=True, use_cache=False).hidden_states
    hook.remove()
    streams = [*states[:-1], final[-1]]
    return {layer: stream[0] for layer, stream in enumerate(streams)}, int(model.lm_head(states[-1][0, -1]).argmax())


def _draft(
    drafter: Drafter, target_ids: torch.Tensor, ids: list[int], streams: dict[int, torch.Tensor], depth: int = DEPTH
) -> list[int]:
    """Drafts after ``ids``; ``streams`` are the states of all but its last token."""
    layer, attention = drafter.midlayer, drafter.midlayer.self_attn
    aux = torch.cat([streams[layer_id] for layer_id in drafter.config.aux_layers], -1)
    keys, values, drafted = [], [], []
    hidden = aux
    for position in range(len(ids) + depth - 2):
        known = position + 1 < len(ids)
        token = ids[position + 1] if known else drafted[-1]
        state = drafter.fc(drafter.normed_aux(aux[position][None])) if known else hidden
        inputs, residual = layer.inputs(drafter.embedding[token][None], state)
        place = torch.tensor([position])
        keys.append(drafter.rotary(attention.k_proj(inputs).view(1, attention.kv_heads, -1), place))
        values.append(attention.v_proj(inputs).view(1, attention.kv_heads, -1))
        query = drafter.rotary(attention.q_proj(inputs).view(1, attention.heads, -1), place)
        group = attention.heads // attention.kv_heads
        key, value = (torch.cat(part).repeat_interleave(group, 1) for part in (keys, values))
        scores = torch.einsum("qhd,khd->hqk", query, key) / attention.head_dim**0.5
        outputs = layer.outputs(residual, torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1))
        normed = drafter.norm(outputs)
        hidden = normed if drafter.config.norm_output else outputs
        if position >= len(ids) - 2:
            drafted.append(int(target_ids[(normed @ drafter.lm_head.weight.T).argmax()]))
    return drafted
