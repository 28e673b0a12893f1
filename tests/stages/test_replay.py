from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from eagle3_backend.stages.drafter_model import load_drafter  # noqa: E402
from eagle3_backend.stages.replay import TargetStates, replay, summary_of  # noqa: E402

pytestmark = pytest.mark.torch


def summary(served, drafter, target_ids) -> dict:
    states = TargetStates(served.folder / "model", drafter.config.aux_layers)
    entries = [
        replay(drafter, target_ids, states([*each.prompt_tokens, *each.tokens]), each, served.depth)
        for each in served.requests
    ]
    return summary_of(entries, served.depth)


def test_every_verify_step_of_an_engine_is_predicted(served) -> None:
    steps = sum(len(request.accepted) - 1 for request in served.requests)
    found = summary(served, served.drafter, served.target_ids)
    lengths = {count for request in served.requests for count in request.accepted}
    assert len(lengths) > 1, "every step accepted the same: this proves nothing"
    assert (found["steps"], found["equal"], found["exact_requests"], found["mismatches"]) == (steps, steps, 3, [])
    assert found["predicted"] == found["observed"]


def test_a_shuffled_vocabulary_map_breaks_the_replay_and_says_where(served) -> None:
    found = summary(served, served.drafter, served.target_ids.roll(1))
    assert found["equal_share"] < 0.95
    assert found["mismatches"][0]["first"]["predicted"] != found["mismatches"][0]["first"]["observed"]
    assert sum(found["differences"].values()) == found["steps"] - found["equal"]


def test_aux_layers_off_by_one_break_the_replay(served) -> None:
    config = served.drafter.config
    moved = replace(config, aux_layers=tuple(layer - 1 for layer in config.aux_layers))
    drafter = load_drafter(moved, served.drafter.embedding, served.drafter.served_weights())
    assert summary(served, drafter, served.target_ids)["equal_share"] < 0.95


def test_the_stream_after_the_last_layer_is_the_one_before_the_final_norm(served) -> None:
    layers = served.model.config.num_hidden_layers
    last = TargetStates(served.folder / "model", [layers])([1, 2, 3])[layers]
    wanted = served.model.model(input_ids=torch.tensor([[1, 2, 3]])).last_hidden_state[0]
    torch.testing.assert_close(served.model.model.norm(last), wanted)
