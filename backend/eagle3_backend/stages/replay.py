"""Replays an engine's drafting in plain torch: how many drafts each of its verify steps should have accepted.

Greedy drafting is determined by the tokens: a step accepts drafts as long as they equal what the target said next. So
one pass of the target over a finished answer, and one pass of the drafter over every row, predict each step. In float32
the prediction is exact, except for the last step of a request, which the length limit cuts short. An engine that runs
another drafter than the directory at hand (ids off by one, a wrong map, a lost norm) differs in many steps, even where
its mean looks fair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from eagle3_backend.stages.drafter_model import Drafter, Rows


@dataclass(frozen=True)
class Request:
    """A finished greedy request: token ids as the engine saw them, and the accepted drafts of each verify step."""

    id: str
    prompt_tokens: Sequence[int]
    tokens: Sequence[int]
    accepted: Sequence[int]


@dataclass(frozen=True)
class Replayed:
    """Predicted and observed accepted drafts of one request, without its last step."""

    request: Request
    predicted: tuple[int, ...]

    @property
    def observed(self) -> tuple[int, ...]:
        return tuple(self.request.accepted[: len(self.predicted)])

    @property
    def equal(self) -> int:
        return sum(mine == theirs for mine, theirs in zip(self.predicted, self.observed, strict=True))


class TargetStates:
    """Hidden states of the target, float32, by transformers. ``layers`` are canonical ids: the stream entering layer i.

    Id n, the stream after the last layer, is taken before the final norm.
    """

    def __init__(self, model: Path, layers: Iterable[int]) -> None:
        self._model: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
        self._layers = sorted(set(layers))
        self._last: Tensor | None = None
        self.embedding: Tensor = self._model.get_input_embeddings().weight.detach()
        """[V, H], float32."""
        self._model.base_model.norm.register_forward_pre_hook(self._keep)

    @torch.no_grad()
    def __call__(self, tokens: Sequence[int]) -> dict[int, Tensor]:
        """[T, Ht] by layer for T tokens."""
        states = self._model.base_model(
            input_ids=torch.tensor([list(tokens)]), output_hidden_states=True, use_cache=False
        ).hidden_states
        streams = [*states[:-1], self._last]
        return {layer: streams[layer][0] for layer in self._layers}

    def _keep(self, _module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._last = inputs[0]


@torch.no_grad()
def replay(
    drafter: Drafter, target_ids: Tensor, streams: Mapping[int, Tensor], request: Request, depth: int
) -> Replayed:
    """Predict every verify step of a request but the last.

    ``drafter`` is float32 and of the served form; ``target_ids`` [DV] maps its ids; ``streams`` are the target's states
    [T, Ht] over prompt and answer, by layer. A step starts where the engine's own path stood, so that one difference
    does not shift those after it.
    """
    tokens = torch.tensor([*request.prompt_tokens, *request.tokens])
    aux = torch.cat([streams[layer] for layer in drafter.config.aux_layers], -1)
    first = len(request.prompt_tokens) - 1
    rows = _rows(tokens, aux, first, depth)
    drafts = target_ids[(drafter(rows) @ drafter.lm_head.weight.T).argmax(-1)]
    truth = tokens[
        (torch.arange(first, first + drafts.shape[1]) + 2 + torch.arange(depth)[:, None]).clamp_max(len(tokens) - 1)
    ]
    lengths = (drafts == truth).long().cumprod(0).sum(0).tolist()
    predicted = []
    row = 0
    for accepted in request.accepted[:-1]:
        predicted.append(lengths[row])
        row += accepted + 1
    return Replayed(request, tuple(predicted))


def _rows(tokens: Tensor, aux: Tensor, first: int, depth: int) -> Rows:
    """Rows of one document; those from ``first`` on, the last token of the prompt, draft."""
    count = len(tokens) - 1
    places = torch.arange(count)
    used = places[first:]
    later = (used + 1 + torch.arange(depth)[:, None]).clamp_max(count)
    return Rows(
        aux=aux[:count],
        start_tokens=tokens[1:],
        positions=places,
        documents=(count,),
        used=used,
        tokens=tokens[later],
    )


def summary_of(replayed: Iterable[Replayed], depth: int) -> dict[str, Any]:
    """Equality by step, both acceptance lengths and acceptances by position, and which requests differ where."""
    entries = list(replayed)
    pairs = [pair for entry in entries for pair in zip(entry.predicted, entry.observed, strict=True)]
    steps = len(pairs)
    return {
        "requests": len(entries),
        "steps": steps,
        "equal": sum(entry.equal for entry in entries),
        "equal_share": round(sum(entry.equal for entry in entries) / max(steps, 1), 5),
        "exact_requests": sum(entry.equal == len(entry.predicted) for entry in entries),
        "predicted": _figures([mine for mine, _ in pairs], depth),
        "observed": _figures([theirs for _, theirs in pairs], depth),
        "differences": {str(size): count for size, count in sorted(_differences(pairs).items())},
        "mismatches": [_mismatch(entry) for entry in entries if entry.equal < len(entry.predicted)][:20],
    }


def _figures(accepted: Sequence[int], depth: int) -> dict[str, Any]:
    steps = max(len(accepted), 1)
    return {
        "acceptance_length": round(1 + sum(accepted) / steps, 4),
        "by_position": [round(sum(count > place for count in accepted) / steps, 4) for place in range(depth)],
    }


def _differences(pairs: Iterable[tuple[int, int]]) -> Mapping[int, int]:
    return Counter(mine - theirs for mine, theirs in pairs if mine != theirs)


def _mismatch(entry: Replayed) -> dict[str, Any]:
    """The first step of a request that differs, and how many do."""
    places = [
        place
        for place, (mine, theirs) in enumerate(zip(entry.predicted, entry.observed, strict=True))
        if mine != theirs
    ]
    first = places[0]
    return {
        "id": entry.request.id,
        "steps": len(entry.predicted),
        "different": len(places),
        "first": {"step": first, "predicted": entry.predicted[first], "observed": entry.observed[first]},
    }
