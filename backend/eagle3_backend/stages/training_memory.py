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
from eagle3_backend.stages.unrolled import PART_ROWS, part_rows, weight_bytes
from eagle3_kernels.draft_loss import CHUNK_ROWS, LOGITS_AT_ONCE


def memory_faults(
    drafter: Drafter, target: TargetHead, data: Data, parameters: TrainParameters, ranks: Ranks
) -> Iterator[Finding]:
    """An error where the largest micro-batch will not fit, with the number of parts that does."""
    free = free_bytes(ranks)
    fixed = state_bytes(drafter, target, parameters, ranks)
    count = parameters.accumulation

    def needed(accumulation: int) -> int:
        return fixed + activation_bytes(drafter.config, *largest_part(data, ranks.size * accumulation), parameters)

    if needed(count) <= free:
        return
    most = max(len(batch) for batch in data.batches(0))
    enough = next((parts for parts in range(count + 1, most + 1) if needed(parts) <= free), None)
    rows, _, _ = largest_part(data, most)
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


def largest_part(data: Data, count: int) -> tuple[int, int, int]:
    """Rows, used rows among them, and rows of the longest conversation, of the longest micro-batch in the first epoch
    when each batch has ``count``."""
    parts = (
        part
        for batch in data.batches(0)
        for part in parts_of([data.conversations[index] for index in batch], count)
        if part
    )
    lengths = (([int(entry.used[-1]) + 1 for entry in part], sum(len(entry.used) for entry in part)) for part in parts)
    return max((sum(rows), used, max(rows)) for rows, used in lengths)


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


def activation_bytes(config: DrafterConfig, rows: int, used: int, longest: int, parameters: TrainParameters) -> int:
    """Upper estimate of what loss and gradients of ``rows`` rows need, ``used`` of them drafting at every step, the
    ``longest`` conversation having so many.

    Of all rows: the state after fc, keys and values, and the gradients of these. Of the rows of one part, at every
    step: what the products take in and give, the residual stream, and attention's weights where they are kept; and the
    logits of a chunk of them. With both: the matrices as products take them, and the largest one's gradient while it is
    made.
    """
    width, wide = config.hidden_size, config.intermediate_size
    queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
    narrow = 4 if parameters.dtype == "float32" else 2
    device, ttt_steps = "cuda" if torch.cuda.is_available() else "cpu", parameters.ttt_steps
    weights = weight_bytes(config, longest, ttt_steps, getattr(torch, parameters.dtype), device)
    part = part_rows(used, weights)
    stays = rows * (width + 2 * keys) * (narrow + 4)
    products = 2 * (5 * width + 2 * queries + 2 * keys + 2 * wide) + wide
    steps = part * ttt_steps * (products * narrow + 4 * 4 * width)
    # Those of a step twice more while its gradients are made.
    steps += part * weights * (ttt_steps + 2) // ttt_steps
    first = min(rows, PART_ROWS) * len(config.aux_layers) * config.target_hidden_size * (2 * 4 + narrow)
    inputs = len(config.aux_layers) * config.target_hidden_size
    matrices = width * (inputs + 3 * wide) + 3 * width * queries + 4 * width * keys
    largest = width * max(inputs, wide, 2 * queries)
    chunk = min(part + ttt_steps, CHUNK_ROWS["triton" if device == "cuda" else "torch"])
    logits = chunk * (ttt_steps + 1) * config.draft_vocab_size
    steps += logits * narrow + min(logits, LOGITS_AT_ONCE) * 4 * 4
    return int(stays + steps + first + (0 if narrow == 4 else matrices * narrow) + largest * (narrow + 4))
