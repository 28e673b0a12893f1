"""Rows 2 and 3: head and soft-label loss of seven TTT steps, against what libraries do and against its products alone.

`head_loss.py VARIANT` measures one variant; `results()` compares them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from measuring import MIB, interleaved, measured, medians, row

WIDTH, VOCABULARY, STEPS, ROWS = 576, 16384, 7, 2048
VARIANTS = ("ours", "products", "naive", "compiled")
ROW_LOGITS = STEPS * VOCABULARY * 2
"""Bytes of one row's logits at all steps, bf16: what a row must not cost. What is made is held to its exact size in the
tests; this looks at the process, whose allocator keeps a piece or two of what it freed."""


def results() -> dict[str, dict[str, Any]]:
    runs = interleaved(Path(__file__), VARIANTS)
    half = interleaved(Path(__file__), ("half",), rounds=3)["half"]
    ours, products, naive, compiled = (medians(runs[variant]) for variant in VARIANTS)
    growth = (ours["peak_mib"] - half["peak_mib"]["median"]) * MIB / (ROWS // 2)
    what = f"head + soft-label loss, T {ROWS}, draft vocabulary {VOCABULARY}, {STEPS} steps, width {WIDTH}, bf16"
    memory = {
        "naive": naive["peak_mib"] / ours["peak_mib"],
        "compiled": compiled["peak_mib"] / ours["peak_mib"],
        "at_most_growth": growth / ROW_LOGITS,
    }
    speed = {
        "at_most_products": ours["cpu_seconds"] / products["cpu_seconds"],
        "at_most_compiled": ours["cpu_seconds"] / compiled["cpu_seconds"],
    }
    peers = {"naive": naive, "compiled": compiled}
    return {
        "2": row(f"{what}: peak memory", ours, peers, memory, {"naive": 8, "compiled": 5, "at_most_growth": 0.5}),
        "3": row(
            f"{what}: time",
            ours,
            {**peers, "products": products},
            speed,
            {"at_most_products": 1.35, "at_most_compiled": 1.0},
            runs,
        ),
    }


class Inputs:
    """States of all steps, the drafter's head, a sharper teacher, and weights of the rows."""

    def __init__(self, rows: int) -> None:
        import torch

        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Any:
            return torch.randn(shape, generator=generator)

        self.head = (normal(VOCABULARY, WIDTH) / WIDTH**0.5).bfloat16().requires_grad_()
        self.teacher_head = (normal(VOCABULARY, WIDTH) * 2.5 / WIDTH**0.5).bfloat16()
        self.hidden = normal(STEPS, rows, WIDTH).bfloat16().requires_grad_()
        self.teacher = normal(rows, WIDTH).bfloat16()
        self.weights = torch.rand(STEPS, rows, generator=generator) / rows
        for step in range(STEPS):
            self.weights[step, rows - step :] = 0.0


def ours(given: Inputs) -> None:
    import torch

    from eagle3_kernels import Teacher, draft_loss

    total = draft_loss(given.hidden, given.head, Teacher(given.teacher, given.teacher_head), given.weights).total
    torch.autograd.grad(total, (given.hidden, given.head))


def products(given: Inputs) -> None:
    """The matrix products that no implementation can do without, whole matrices at once per step."""
    import torch

    with torch.no_grad():
        given.teacher @ given.teacher_head.T
        for step in range(STEPS):
            logits = given.hidden[step] @ given.head.T
            logits @ given.head
            logits.T @ given.hidden[step]


def by_step(given: Inputs, row_loss) -> None:
    """One step after the other, all of a step's logits at once, gradients by autograd: SpecForge's way and EAGLE's."""
    import torch

    with torch.no_grad():
        goal = torch.softmax((given.teacher @ given.teacher_head.T).float(), -1)
    total = torch.zeros(())
    for step in range(STEPS):
        shifted = torch.nn.functional.pad(goal[step:], (0, 0, 0, step))
        total = total + row_loss(given.hidden[step] @ given.head.T, shifted, given.weights[step])
    torch.autograd.grad(total, (given.hidden, given.head))


def soft_loss(logits, goal, weights):
    import torch

    return -(weights[:, None] * goal * torch.log_softmax(logits.float(), -1)).sum()


def main(variant: str) -> dict[str, float]:
    import torch

    torch.set_num_threads(1)
    given = Inputs(ROWS // 2 if variant == "half" else ROWS)
    if variant == "compiled":
        compiled = torch.compile(soft_loss, dynamic=False)
        return measured(lambda: by_step(given, compiled))
    calls = {"ours": ours, "half": ours, "products": products, "naive": lambda given: by_step(given, soft_loss)}
    return measured(lambda: calls[variant](given))


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
