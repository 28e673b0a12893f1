"""What a training reads: conversations with their used rows, cut into batches that follow from seed and epoch alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eagle3_backend.findings import FindingError, error
from eagle3_backend.pipeline.parameters import TrainParameters
from eagle3_backend.stages.store import open_store
from eagle3_backend.stages.training_rows import Conversation, conversation, grouped, order_of

EVALUATION_ROWS = 2048
"""Held-out rows that are measured after each epoch: whole batches until so many are reached. The stage `evaluate`
measures all of them, so the two differ for one drafter."""


@dataclass(frozen=True)
class Data:
    """Conversations with at least one used row; ``batches(epoch)`` follow from seed and epoch alone."""

    conversations: list[Conversation]
    held_out: list[Conversation]
    parameters: TrainParameters

    def batches(self, epoch: int) -> list[list[int]]:
        sizes = [len(entry.used) for entry in self.conversations]
        order = order_of(self.parameters.seed, epoch, len(sizes))
        return list(grouped(order, sizes, self.parameters.batch_rows))

    def evaluation(self) -> list[list[Conversation]]:
        """The first held-out conversations, packed, up to the limit of rows."""
        sizes = [len(entry.used) for entry in self.held_out]
        groups, total = [], 0
        for group in grouped(range(len(sizes)), sizes, self.parameters.batch_rows):
            if total < EVALUATION_ROWS:
                groups.append([self.held_out[index] for index in group])
                total += sum(sizes[index] for index in group)
        return groups


def read_data(store: Path, parameters: TrainParameters) -> Data:
    """Both splits, through the gates on their masks. Raises FindingError."""
    opened = open_store(store)
    splits = [[conversation(row, parameters.ttt_steps) for row in opened.rows(split)] for split in ("train", "holdout")]
    if not any(len(entry.used) for entry in splits[0]):
        message = (
            "No row of the training set can be used: the target wrote none of its tokens, or answers of one token."
        )
        raise FindingError(error("loss_mask_all_zero", message, path=str(store), fix="Run generate and extract again."))
    usable = [[entry for entry in split if len(entry.used)] for split in splits]
    return Data(usable[0], usable[1], parameters)


def parts_of(conversations: Sequence[Conversation], count: int) -> list[list[Conversation]]:
    """Cut a batch into ``count`` micro-batches of about as many used rows, in order; some may be empty."""
    parts: list[list[Conversation]] = [[] for _ in range(count)]
    total, before = sum(len(entry.used) for entry in conversations), 0
    for entry in conversations:
        middle = before + len(entry.used) / 2
        parts[int(count * middle / total)].append(entry)
        before += len(entry.used)
    return parts
