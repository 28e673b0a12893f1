"""Row 1: attention of the last of seven TTT steps, forward and backward, against full scores in EAGLE's manner.

`attention.py VARIANT` measures one variant; `results()` compares them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from measuring import child, interleaved, measured, medians, row

HEADS, SIZE, STEPS, ROWS = 9, 64, 6, 2048
ERROR_ROWS = 512


def results() -> dict[str, dict[str, Any]]:
    runs = interleaved(Path(__file__), ("ours", "full_scores"))
    ours, peer = (medians(runs[variant]) for variant in ("ours", "full_scores"))
    errors = child(Path(__file__), "errors")
    ours["error"], peer["error"] = errors["ours"], errors["full_scores"]
    ratio = {
        "time": peer["cpu_seconds"] / ours["cpu_seconds"],
        "memory": peer["peak_mib"] / ours["peak_mib"],
        "at_most_error": ours["error"] / peer["error"],
    }
    what = f"TTT attention forward + backward, T {ROWS}, {STEPS} extra steps, {HEADS} heads of {SIZE}, bf16"
    return {"1": row(what, ours, peer, ratio, {"time": 5.0, "memory": 4.0, "at_most_error": 1.0}, runs)}


def full_scores(query, key, value, own_keys, own_values):
    """All scores at once, the own keys' as further columns, softmax in float32."""
    import torch

    rows, scale = query.shape[-2], query.shape[-1] ** -0.5
    scores = (query @ key.transpose(-1, -2)) * scale
    scores = scores + scores.new_full((rows, rows), float("-inf")).triu(1)
    for own in own_keys:
        scores = torch.cat((scores, (query * own).sum(-1, keepdim=True) * scale), -1)
    wide = torch.float64 if scores.dtype == torch.float64 else torch.float32
    weights = torch.softmax(scores, -1, dtype=wide).to(query.dtype)
    output = weights[..., :rows] @ value
    for step, own in enumerate(own_values):
        output = output + weights[..., rows + step, None] * own
    return output


def inputs(rows: int) -> list:
    """Query, key, value, own keys, own values and the gradient of the output."""
    import torch

    generator = torch.Generator().manual_seed(0)
    shape = (1, HEADS, rows, SIZE)
    return [torch.randn(shape, generator=generator).bfloat16().requires_grad_() for _ in range(4 + 2 * STEPS)]


def gradients(attention, tensors: list, direction) -> list:
    import torch

    query, key, value, *own = tensors
    output = attention(query, key, value, own[:STEPS], own[STEPS:])
    return [output.detach(), *torch.autograd.grad(output, tensors, direction.detach().to(output.dtype))]


def main(variant: str) -> dict[str, float]:
    import torch

    from eagle3_kernels import ttt_attention

    torch.set_num_threads(1)
    attentions = {"ours": ttt_attention, "full_scores": full_scores}
    if variant != "errors":
        *tensors, direction = inputs(ROWS)
        return measured(lambda: gradients(attentions[variant], tensors, direction))
    *tensors, direction = inputs(ERROR_ROWS)
    exact = gradients(full_scores, [tensor.detach().double().requires_grad_() for tensor in tensors], direction)
    # The worst relative error among the output and all gradients.
    return {
        name: max(
            float((mine.double() - true).norm() / true.norm())
            for mine, true in zip(gradients(attention, tensors, direction), exact, strict=True)
        )
        for name, attention in attentions.items()
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
