"""From stored conversations to the rows that are trained on.

Row j has start token x[j+1] and hidden state g[j]. It is used at step k exactly if tokens j+1 .. j+2+k were all written
by the target: the start token, every token that is fed in and the one that is predicted lie in one answer. Those are
the rows that a server drafts from. The teacher of step k is the target's distribution at position j+1+k.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from eagle3_backend.stages.drafter_model import Rows
from eagle3_backend.stages.store import Row


@dataclass(frozen=True)
class Conversation:
    """A stored conversation and which of its rows are used: ``used`` [M] (j, ascending), ``valid`` [K, M] bool."""

    stored: Row
    used: Tensor
    valid: Tensor

    def cut(self, steps: int) -> Conversation:
        """The same for fewer steps."""
        return replace(self, valid=self.valid[:steps])


@dataclass(frozen=True)
class Batch:
    """Rows of several conversations with their teacher.

    ``last`` [M, Ht]: the target's state from before its final norm that judges row m at step 0; step k of row m is
    judged by row m + k. ``valid`` [K, M]. ``lengths``: used rows of each conversation, in order; ``runs``: the used
    rows as ranges of rows that follow each other, none over two conversations.
    """

    rows: Rows
    last: Tensor
    valid: Tensor
    lengths: tuple[int, ...]
    runs: tuple[tuple[int, int], ...]


def used_rows(loss_mask: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Rows used at step 0 [M], and for each step which of them still are [steps, M]."""
    mask = loss_mask.bool()
    padded = torch.cat([mask, mask.new_zeros(steps + 2)])
    count = len(mask)
    here = padded[1 : 1 + count] & padded[2 : 2 + count]
    used = here.nonzero().squeeze(-1)
    valid = [here[used]]
    for step in range(1, steps):
        valid.append(valid[-1] & padded[used + 2 + step])
    return used, torch.stack(valid)


def conversation(stored: Row, steps: int) -> Conversation:
    return Conversation(stored, *used_rows(stored.loss_mask, steps))


def batch_of(conversations: Sequence[Conversation]) -> Batch:
    """Pack conversations that each have at least one used row; rows after the last used one are left out."""
    counts = [int(entry.used[-1]) + 1 for entry in conversations]
    steps = len(conversations[0].valid)
    pieces: dict[str, list[Tensor]] = {name: [] for name in ("aux", "start", "positions", "used", "tokens")}
    starts = [0, *accumulate(counts)][:-1]
    for entry, count, start in zip(conversations, counts, starts, strict=True):
        tokens = entry.stored.token_ids.long()
        pieces["aux"].append(entry.stored.aux[:count])
        pieces["start"].append(tokens[1 : count + 1])
        pieces["positions"].append(torch.arange(count))
        pieces["used"].append(entry.used + start)
        later = entry.used + 1 + torch.arange(steps)[:, None]
        pieces["tokens"].append(tokens[later.clamp(max=len(tokens) - 1)])
    rows = Rows(
        aux=torch.cat(pieces["aux"]),
        start_tokens=torch.cat(pieces["start"]),
        positions=torch.cat(pieces["positions"]),
        documents=tuple(counts),
        used=torch.cat(pieces["used"]),
        tokens=torch.cat(pieces["tokens"], 1),
    )
    return Batch(
        rows,
        last=torch.cat([entry.stored.last[entry.used + 1] for entry in conversations]),
        valid=torch.cat([entry.valid for entry in conversations], 1),
        lengths=tuple(len(entry.used) for entry in conversations),
        runs=tuple(run for entry, start in zip(conversations, starts, strict=True) for run in _runs(entry.used, start)),
    )


def _runs(used: Tensor, start: int) -> list[tuple[int, int]]:
    """Rows ``used`` [M], ascending, as ranges; ``start`` is added to them."""
    cuts = (used.diff() != 1).nonzero().squeeze(-1) + 1
    return [(int(run[0]) + start, int(run[-1]) + 1 + start) for run in used.tensor_split(cuts)]


def order_of(seed: int, epoch: int, count: int) -> list[int]:
    """The order of one epoch: depends on nothing but its arguments."""
    order = list(range(count))
    random.Random(f"{seed} {epoch}").shuffle(order)
    return order


def grouped(order: Sequence[int], sizes: Sequence[int], rows: int) -> Iterator[list[int]]:
    """Cut an order into batches of at least ``rows`` used rows, the last one smaller; ``sizes`` by conversation."""
    group: list[int] = []
    total = 0
    for index in order:
        group.append(index)
        total += sizes[index]
        if total >= rows:
            yield group
            group, total = [], 0
    if group:
        yield group


def shares(conversations: Sequence[Conversation]) -> dict[str, Any]:
    """What a set consists of: conversations, tokens, used rows, and the share of tokens that the target wrote."""
    tokens = sum(len(entry.stored.token_ids) for entry in conversations)
    written = sum(int(entry.stored.loss_mask.sum()) for entry in conversations)
    return {
        "conversations": len(conversations),
        "tokens": tokens,
        "rows": sum(len(entry.used) for entry in conversations),
        "mask_density": written / max(tokens, 1),
    }
