from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from transformers import LlamaConfig  # noqa: E402
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb  # noqa: E402

from eagle3_backend.drafter.config import drafter_for  # noqa: E402
from eagle3_backend.stages.drafter_model import Drafter, Rotary, load_drafter  # noqa: E402
from eagle3_backend.stages.store import open_store  # noqa: E402
from eagle3_backend.stages.training_rows import batch_of, conversation  # noqa: E402

pytestmark = pytest.mark.torch

STEPS = 4


FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


@pytest.fixture(params=[(), *((flag,) for flag in FLAGS), FLAGS], ids=lambda flags: "+".join(flags) or "plain")
def drafter(request, tiny) -> Drafter:
    config = replace(drafter_for(tiny.CONFIG, tiny.AUX, 32), **dict.fromkeys(request.param, True))
    generator = torch.Generator().manual_seed(1)
    drafter = Drafter(config, torch.randn(tiny.VOCABULARY, tiny.WIDTH, generator=generator)).double()
    with torch.no_grad():
        for weight in drafter.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    return drafter


@pytest.fixture
def entries(tiny, tmp_path):
    store = open_store(tiny.write_store(tmp_path / "store", tmp_path))
    return [conversation(row, STEPS) for row in store.rows("train")[9:14]]


def rollout(drafter: Drafter, entry, j: int) -> list:
    """Draft from row j one token after the other, as a server does: a cache of keys that grows by one each step."""
    layer, attention, row = drafter.midlayer, drafter.midlayer.self_attn, entry.stored
    keys, values, outputs = [], [], []

    def step(token, hidden, position):
        inputs, residual = layer.inputs(drafter.embedding[token][None], hidden)
        place = torch.tensor([position])
        keys.append(drafter.rotary(attention.k_proj(inputs).view(1, attention.kv_heads, -1), place))
        values.append(attention.v_proj(inputs).view(1, attention.kv_heads, -1))
        query = drafter.rotary(attention.q_proj(inputs).view(1, attention.heads, -1), place)
        group = attention.heads // attention.kv_heads
        key, value = (torch.cat(part).repeat_interleave(group, 1) for part in (keys, values))
        scores = torch.einsum("qhd,khd->hqk", query, key) / attention.head_dim**0.5
        hidden = layer.outputs(residual, torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1))
        outputs.append(drafter.norm(hidden)[0])
        return outputs[-1][None] if drafter.config.norm_output else hidden

    for earlier in range(j + 1):
        fused = drafter.fc(drafter.normed_aux(row.aux[earlier].double()[None]))
        hidden = step(int(row.token_ids[earlier + 1]), fused, earlier)
    for k in range(1, STEPS):
        hidden = step(int(row.token_ids[j + 1 + k]), hidden, j + k)
    return outputs[j:]


def test_every_step_equals_a_draft_that_is_rolled_out_token_by_token(drafter: Drafter, entries) -> None:
    entries = entries[:2]
    batch = batch_of(entries)
    unrolled = drafter(batch.rows)
    start = 0
    for entry in entries:
        for position, j in enumerate(entry.used.tolist()):
            for step, wanted in enumerate(rollout(drafter, entry, j) if bool(entry.valid[-1, position]) else []):
                torch.testing.assert_close(unrolled[step, start + position], wanted, rtol=1e-9, atol=1e-9)
        start += len(entry.used)


def test_conversations_of_a_batch_do_not_see_each_other(drafter: Drafter, entries) -> None:
    together = drafter(batch_of(entries).rows)
    alone = torch.cat([drafter(batch_of([entry]).rows) for entry in entries], 1)
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)


def test_served_weights_take_the_aux_states_as_they_come(drafter: Drafter, entries, tiny) -> None:
    scale = torch.linspace(0.5, 20.0, 3 * tiny.WIDTH, dtype=torch.float64)
    drafter.aux_scale.copy_(scale)
    served = load_drafter(drafter.config, drafter.embedding, drafter.served_weights()).double()
    rows = batch_of(entries).rows
    torch.testing.assert_close(served(rows), drafter(rows), rtol=1e-3, atol=1e-6)


def test_weights_have_the_names_and_shapes_of_the_flat_layout(drafter: Drafter, drafters) -> None:
    shapes = {name: tuple(weight.shape) for name, weight in drafter.served_weights().items()}
    assert shapes == drafters.shapes(drafter.config)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


@pytest.mark.parametrize("scaling", [None, {**LLAMA3, "original_max_position_embeddings": 32}, YARN])
def test_rotary_embedding_is_that_of_transformers(tiny, scaling) -> None:
    config = drafter_for({**tiny.CONFIG, "rope_scaling": scaling}, tiny.AUX, 32)
    parameters = {"rope_theta": 10000.0, **(scaling or {"rope_type": "default"})}
    theirs = LlamaRotaryEmbedding(
        LlamaConfig(
            hidden_size=tiny.WIDTH,
            num_attention_heads=4,
            head_dim=8,
            max_position_embeddings=128,
            rope_parameters=parameters,
        )
    )
    states, positions = torch.randn(11, 4, 8), torch.arange(20, 31)
    cos, sin = theirs(states, positions[None])
    wanted, _ = apply_rotary_pos_emb(states.transpose(0, 1)[None], states.transpose(0, 1)[None], cos, sin)
    torch.testing.assert_close(Rotary(config)(states, positions), wanted[0].transpose(0, 1), rtol=1e-5, atol=1e-5)
