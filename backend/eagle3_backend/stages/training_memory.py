"""What a training will hold in memory, before its first step finds out."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.findings import Finding, error
from eagle3_backend.pipeline.parameters import TrainParameters
from eagle3_backend.stages.drafter_model import Drafter
from eagle3_backend.stages.memory import GIB, available_bytes
from eagle3_backend.stages.ranks import Ranks
from eagle3_backend.stages.target_head import CHUNK, TargetHead
from eagle3_backend.stages.training_data import Data, parts_of

VALUE_BYTES = {"float32": 4.0}
MIXED_BYTES = 3.0
"""Bytes of an activation, on average, where matrix products are 16 bit wide and the residual stream 32 bit."""


def memory_faults(
    drafter: Drafter, target: TargetHead, data: Data, parameters: TrainParameters, ranks: Ranks
) -> Iterator[Finding]:
    """An error where the largest micro-batch will not fit, with the number of parts that does."""
    free = free_bytes(ranks)
    fixed = state_bytes(drafter, target, parameters, ranks)
    count = parameters.accumulation

    def needed(accumulation: int) -> int:
        rows, used = largest_part(data, ranks.size * accumulation)
        return fixed + activation_bytes(drafter.config, rows, used, parameters)

    if needed(count) <= free:
        return
    most = max(len(batch) for batch in data.batches(0))
    enough = next((parts for parts in range(count + 1, most + 1) if needed(parts) <= free), None)
    rows, _ = largest_part(data, most)
    yield error(
        "training_memory_insufficient",
        f"The largest part of a step needs {needed(count) / GIB:.2f} GiB, and {free / GIB:.2f} GiB are free.",
        path="stages.train.accumulation",
        expected=needed(count),
        actual=free,
        fix=f"Set train.accumulation = {enough}."
        if enough
        else f"The longest conversation, {rows} rows, does not fit by itself: lower train.ttt_steps, leave long "
        "conversations out, or take a host with more memory.",
    )


def free_bytes(ranks: Ranks) -> int:
    """Memory that this rank can still have."""
    if ranks.device.type == "cuda":
        return int(torch.cuda.mem_get_info(ranks.device)[0])
    return available_bytes() // ranks.size


def largest_part(data: Data, count: int) -> tuple[int, int]:
    """Rows, and used rows among them, of the longest micro-batch in the first epoch when each batch has ``count``."""
    parts = (
        part
        for batch in data.batches(0)
        for part in parts_of([data.conversations[index] for index in batch], count)
        if part
    )
    return max(
        (sum(int(entry.used[-1]) + 1 for entry in part), sum(len(entry.used) for entry in part)) for part in parts
    )


def state_bytes(drafter: Drafter, target: TargetHead, parameters: TrainParameters, ranks: Ranks) -> int:
    """Gradients, moments and logits of a chunk; on a GPU the weights and the target's head and embedding, too."""
    trained = [weight for weight in drafter.parameters() if weight.requires_grad]
    matrices = sum(weight.numel() for weight in trained if weight.dim() == 2)
    moments = matrices * (2 if parameters.optimizer == "adamw" or parameters.train_head else 1)
    total = 4 * (sum(weight.numel() for weight in trained) + moments)
    total += 2 * 4 * CHUNK * len(target.head)
    if ranks.device.type == "cuda":
        total += 4 * sum(weight.numel() for weight in drafter.parameters())
        total += sum(tensor.numel() * tensor.element_size() for tensor in (target.head, target.embedding))
    return total


def activation_bytes(config: DrafterConfig, rows: int, used: int, parameters: TrainParameters) -> int:
    """Upper estimate of what the backward pass of ``rows`` rows needs, ``used`` of them drafting at every step.

    Values for each row: aux states, first hidden state, keys and values; for each used row and step: norms, residuals,
    query and output of attention, and the MLP's four; for each row and step its own keys, values and queries.
    """
    width, steps = config.hidden_size, parameters.ttt_steps
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    once = 2 * len(config.aux_layers) * config.target_hidden_size + 4 * width + 4 * keys
    drafting = 12 * width + 4 * config.intermediate_size + 4 * queries
    values = rows * once + steps * (used * drafting + rows * (2 * queries + 2 * keys))
    return int(values * VALUE_BYTES.get(parameters.dtype, MIXED_BYTES))
