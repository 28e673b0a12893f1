from __future__ import annotations

import random
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from transformers import LlamaConfig, LlamaForCausalLM  # noqa: E402

from eagle3_backend.drafter.config import drafter_for  # noqa: E402
from eagle3_backend.stages.drafter_model import Drafter  # noqa: E402
from eagle3_backend.stages.replay import Request, TargetStates, replay, summary_of  # noqa: E402

pytestmark = pytest.mark.torch

VOCABULARY, DRAFT_VOCABULARY, LAYERS, DEPTH = 12, 8, 4, 3
AUX = (1, 2, LAYERS)
"""The last one is the stream before the final norm, which transformers does not give out as it is."""


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> tuple:
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        architectures=["LlamaForCausalLM"],
        initializer_range=0.4,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.model.norm.weight.uniform_(0.5, 2.0)
    folder = tmp_path_factory.mktemp("target")
    model.save_pretrained(folder)
    return folder, model, config.to_dict()


@pytest.fixture(scope="module")
def drafter(target) -> Drafter:
    config = replace(drafter_for(target[2], AUX, DRAFT_VOCABULARY), norm_output=True)
    drafter = Drafter(config, target[1].model.embed_tokens.weight.detach().clone())
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in drafter.parameters():
            if weight.dim() == 2:
                weight.normal_(0.0, 0.5, generator=generator)
    return drafter.eval()


KEPT = torch.tensor([0, 1, 3, 4, 6, 7, 9, 11])


@torch.no_grad()
def serve(target, drafter: Drafter, prompt: list[int], answer_tokens: int) -> Request:
    """What an engine does, one token at a time and without any cache: draft, verify, advance."""
    _, model, _ = target
    final: list = []
    hook = model.model.norm.register_forward_pre_hook(lambda _module, inputs: final.append(inputs[0]))

    def look(ids: list[int]) -> tuple:
        states = model.model(input_ids=torch.tensor([ids]), output_hidden_states=True, use_cache=False).hidden_states
        streams = [*states[:-1], final[-1]]
        logits = model.lm_head(states[-1][0, -1])
        return torch.cat([streams[layer][0] for layer in AUX], -1), int(logits.argmax())

    def draft(ids: list[int], aux, depth: int) -> list[int]:
        """Drafts after ``ids``; ``aux`` are the states of all but its last token."""
        layer, attention = drafter.midlayer, drafter.midlayer.self_attn
        keys, values, drafted = [], [], []
        hidden = None
        for position in range(len(ids) - 1 + depth - 1):
            known = position + 1 < len(ids)
            token = ids[position + 1] if known else drafted[-1]
            state = drafter.fc(aux[position][None]) if known else hidden
            inputs, residual = layer.inputs(drafter.embedding[token][None], state)
            place = torch.tensor([position])
            keys.append(drafter.rotary(attention.k_proj(inputs).view(1, attention.kv_heads, -1), place))
            values.append(attention.v_proj(inputs).view(1, attention.kv_heads, -1))
            query = drafter.rotary(attention.q_proj(inputs).view(1, attention.heads, -1), place)
            group = attention.heads // attention.kv_heads
            key, value = (torch.cat(part).repeat_interleave(group, 1) for part in (keys, values))
            scores = torch.einsum("qhd,khd->hqk", query, key) / attention.head_dim**0.5
            attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).flatten(1)
            hidden = drafter.norm(layer.outputs(residual, attended))
            if position >= len(ids) - 2:
                drafted.append(int(KEPT[(hidden @ drafter.lm_head.weight.T).argmax()]))
        return drafted

    ids = [*prompt, look(prompt)[1]]
    accepted = []
    while len(ids) < len(prompt) + answer_tokens:
        drafts = draft(ids, look(ids[:-1])[0], DEPTH)
        taken = 0
        while taken < DEPTH and look(ids)[1] == drafts[taken]:
            ids.append(drafts[taken])
            taken += 1
        ids.append(look(ids)[1])
        accepted.append(taken)
    hook.remove()
    return Request("one", tuple(prompt), tuple(ids[len(prompt) :]), tuple(accepted))


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    draw = random.Random(9)
    return [[draw.randrange(VOCABULARY) for _ in range(length)] for length in (3, 5, 8)]


@pytest.fixture(scope="module")
def requests(target, drafter, prompts) -> list[Request]:
    return [serve(target, drafter, prompt, 20) for prompt in prompts]


def summary(target, drafter, target_ids, requests) -> dict:
    states = TargetStates(target[0], AUX)
    entries = [
        replay(drafter, target_ids, states([*each.prompt_tokens, *each.tokens]), each, DEPTH) for each in requests
    ]
    return summary_of(entries, DEPTH)


def test_every_verify_step_of_an_engine_is_predicted(target, drafter, requests) -> None:
    steps = sum(len(request.accepted) - 1 for request in requests)
    found = summary(target, drafter, KEPT, requests)
    assert any(count > 0 for request in requests for count in request.accepted), "nothing accepted: this proves nothing"
    assert (found["steps"], found["equal"], found["exact_requests"], found["mismatches"]) == (steps, steps, 3, [])
    assert found["predicted"] == found["observed"]


def test_a_shuffled_vocabulary_map_breaks_the_replay_and_says_where(target, drafter, requests) -> None:
    found = summary(target, drafter, KEPT.roll(1), requests)
    assert found["equal_share"] < 0.95
    assert found["mismatches"][0]["first"]["predicted"] != found["mismatches"][0]["first"]["observed"]
    assert sum(found["differences"].values()) == found["steps"] - found["equal"]


def test_aux_layers_off_by_one_break_the_replay(target, drafter, requests) -> None:
    states = TargetStates(target[0], tuple(layer - 1 for layer in AUX))
    entries = [replay(drafter, KEPT, states([*each.prompt_tokens, *each.tokens]), each, DEPTH) for each in requests]
    assert summary_of(entries, DEPTH)["equal_share"] < 0.95


def test_states_are_those_before_the_final_norm(target) -> None:
    _, model, _ = target
    last = TargetStates(target[0], (LAYERS,))([1, 2, 3])
    wanted = model.model(input_ids=torch.tensor([[1, 2, 3]])).last_hidden_state[0]
    torch.testing.assert_close(model.model.norm(last), wanted)
