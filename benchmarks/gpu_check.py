"""Kernels on a GPU, where there is one: their errors, rows 1 to 3 there, and the share of the GPU's rate they reach.

`gpu_check.py` takes a few minutes and prints one JSON object; without a GPU it says so and ends well.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import attention
import head_loss
import torch
from measuring import MIB

from eagle3_kernels import Teacher, draft_loss, draft_loss_reference, kernel_path, ttt_attention

REPEATS = 7
PRODUCT = 8192
"""Side of the large bf16 product whose rate is the measure."""
BOUND = 1e-5
"""Largest relative error of float32 results."""


def main(device: torch.device) -> dict[str, Any]:
    found: dict[str, Any] = {"path": vars(kernel_path(device)), "errors": errors(device)}
    rate = 2 * PRODUCT**3 / product_seconds(device)
    found["product_tflops"] = rate / 1e12
    found["rows"] = {"1": attention_row(device), **loss_rows(device, rate)}
    found["met"] = found["errors"]["met"] and all(entry["met"] for entry in found["rows"].values())
    return found


def errors(device: torch.device) -> dict[str, Any]:
    """The loss in float32 and attention in bf16 (no flash kernel takes more) against float64, with the naive ones'."""
    generator = torch.Generator().manual_seed(4)
    hidden, head, states, target = (
        torch.randn(shape, generator=generator).to(device)
        for shape in ((3, 300, 64), (1000, 64), (300, 64), (1000, 64))
    )
    weights = torch.rand(3, 300, generator=generator).to(device) / 300
    for step in range(3):
        weights[step, 300 - step :] = 0.0
    given = [hidden.requires_grad_(), head.requires_grad_()]
    exact = [entry.detach().double().requires_grad_() for entry in given]
    worst: dict[str, float] = {}
    for kind in ("kl", "lk_hybrid"):
        mine = draft_loss(*given, Teacher(states, target), weights, kind=kind).total
        true = draft_loss_reference(
            *exact, Teacher(states.double(), target.double()), weights.double(), kind=kind
        ).total
        pairs = zip(torch.autograd.grad(mine, given), torch.autograd.grad(true, exact), strict=True)
        worst[kind] = max(distance(mine, true), *(distance(*pair) for pair in pairs))
    *tensors, direction = on(device, attention.inputs(attention.ERROR_ROWS))
    wanted = attention.gradients(
        attention.full_scores, [entry.detach().double().requires_grad_() for entry in tensors], direction
    )
    for name, variant in (("attention", ttt_attention), ("full_scores", attention.full_scores)):
        results = attention.gradients(variant, tensors, direction)
        worst[name] = max(distance(*pair) for pair in zip(results, wanted, strict=True))
    met = max(worst["kl"], worst["lk_hybrid"]) <= BOUND and worst["attention"] <= worst["full_scores"]
    return {**worst, "met": met}


def attention_row(device: torch.device) -> dict[str, Any]:
    *tensors, direction = on(device, attention.inputs(attention.ROWS))
    ours = measured(device, lambda: attention.gradients(ttt_attention, tensors, direction))
    peer = measured(device, lambda: attention.gradients(attention.full_scores, tensors, direction))
    ratio = {"time": peer["seconds"] / ours["seconds"], "memory": peer["peak_mib"] / ours["peak_mib"]}
    return {"ours": ours, "peer": peer, "ratio": ratio, "met": ratio["time"] >= 5 and ratio["memory"] >= 4}


def loss_rows(device: torch.device, rate: float) -> dict[str, Any]:
    given = head_loss.Inputs(head_loss.ROWS)
    for name in ("head", "teacher_head", "hidden", "teacher", "weights"):
        setattr(given, name, on(device, [getattr(given, name)])[0])
    compiled = torch.compile(head_loss.soft_loss, dynamic=False)
    ours = measured(device, lambda: head_loss.ours(given))
    naive = measured(device, lambda: head_loss.by_step(given, head_loss.soft_loss))
    peer = measured(device, lambda: head_loss.by_step(given, compiled))
    products = measured(device, lambda: head_loss.products(given))
    memory = {"naive": naive["peak_mib"] / ours["peak_mib"], "compiled": peer["peak_mib"] / ours["peak_mib"]}
    speed = {"products": ours["seconds"] / products["seconds"], "compiled": ours["seconds"] / peer["seconds"]}
    work = 2 * head_loss.ROWS * head_loss.WIDTH * head_loss.VOCABULARY * (3 * head_loss.STEPS + 1)
    return {
        "2": {"ours": ours, "ratio": memory, "met": memory["naive"] >= 8 and memory["compiled"] >= 5},
        "3": {
            "ours": ours,
            "ratio": speed,
            "share_of_product_rate": work / ours["seconds"] / rate,
            "met": speed["products"] <= 1.35 and speed["compiled"] <= 1.0,
        },
    }


def product_seconds(device: torch.device) -> float:
    left, right = (torch.randn(PRODUCT, PRODUCT, device=device).bfloat16() for _ in range(2))
    return measured(device, lambda: left @ right)["seconds"]


def measured(device: torch.device, call: Callable[[], Any]) -> dict[str, float]:
    """Median seconds of a call that the device is waited for, and its peak memory (MiB) over what it found."""
    call()
    gc.collect()
    torch.cuda.synchronize(device)
    base = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated(device) - base
    return {"seconds": statistics.median(seconds), "peak_mib": max(peak, 1) / MIB}


def on(device: torch.device, tensors: list) -> list:
    return [entry.detach().to(device).requires_grad_(entry.requires_grad) for entry in tensors]


def distance(mine: torch.Tensor, true: torch.Tensor) -> float:
    return float((mine.detach().double() - true.detach()).norm() / true.detach().norm())


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print(json.dumps({"skipped": "no GPU"}))
        sys.exit(0)
    result = main(torch.device("cuda"))
    print(json.dumps(result, indent=1))
    sys.exit(0 if result["met"] else 1)
