"""Row 5: a whole training step at the shapes of a drafter for SmolLM2-135M: loss, gradients, clipping, AdamW.

`training_step.py VARIANT ROWS` measures one; `results()` compares them. Weights, data, optimizer and the products'
dtype are the same for all, and so is the gradient, whose norm is printed beside the figures.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from measuring import child, measured, medians, row, speculators_python, spread
from peers import cpu_environment

VARIANTS = ("ours", "eager", "speculators", "specforge")
ROWS = (1024, 2048)
ROUNDS = 1
"""Runs of each. One, not five: the eight take some minutes of CPU time, half of it before the measured step."""
WARM_ROWS = 320


def results() -> dict[str, dict[str, Any]]:
    figures: dict[str, Any] = {}
    ratio = {}
    for rows in ROWS:
        runs = _interleaved(rows)
        found = {variant: medians(entry) for variant, entry in runs.items()}
        figures[f"T {rows}"] = {"figures": found, "runs": runs, "rounds": ROUNDS}
        for peer in VARIANTS[1:]:
            ratio[f"{peer} time T {rows}"] = found[peer]["cpu_seconds"] / found["ours"]["cpu_seconds"]
            ratio[f"{peer} memory T {rows}"] = found[peer]["peak_mib"] / found["ours"]["peak_mib"]
    reach = {"eager time T 2048": 2.2, "eager memory T 2048": 4.0}
    # Of the two libraries the faster one counts.
    reach |= {f"{peer} time T 2048": 2.0 for peer in ("speculators", "specforge")}
    own = {place: entry["figures"].pop("ours") for place, entry in figures.items()}
    peers = {place: entry.pop("figures") for place, entry in figures.items()}
    what = "whole training step, SmolLM2-135M shapes, draft vocabulary 16384, 7 steps, bf16, head frozen, AdamW"
    return {"5": row(what, own, peers, ratio, reach, figures)}


def _interleaved(rows: int) -> dict[str, dict[str, dict[str, float]]]:
    """Median, minimum and maximum of each figure of each variant, run A B C A B C."""
    python = {"speculators": speculators_python(), "specforge": cpu_environment.main("specforge")}
    found: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    for _ in range(ROUNDS):
        for variant in VARIANTS:
            run = child(Path(__file__), variant, str(rows), python=python.get(variant, sys.executable))
            print(variant, rows, run, file=sys.stderr)
            found[variant].append(run)
    return {variant: {name: spread([run[name] for run in runs]) for name in runs[0]} for variant, runs in found.items()}


def main(variant: str, rows: int) -> dict[str, float]:
    import torch
    import training_inputs

    torch.set_num_threads(1)
    step = step_of(variant)
    trained = [weight for weight in step.model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    # The call that warms up is a short one and does not move the weights.
    rates, sizes, norms = iter((0.0, 1e-4)), iter((WARM_ROWS, rows)), []
    batches = {size: training_inputs.data(training_inputs.SMOL, size) for size in (WARM_ROWS, rows)}

    def call() -> None:
        optimizer.param_groups[0]["lr"] = next(rates)
        step.gradients(batches[next(sizes)])
        norms.append(float(torch.nn.utils.clip_grad_norm_(trained, 1.0)))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return {**measured(call), "gradient_norm": norms[-1]}


def step_of(variant: str) -> Any:
    from training_inputs import SMOL, weights

    if variant == "speculators":
        from peers import speculators_step

        return speculators_step.Step(SMOL, weights(SMOL))
    if variant == "specforge":
        from peers import specforge_step

        return specforge_step.Step(SMOL, weights(SMOL))
    from peers import eager, ours

    return {"ours": ours.Step, "eager": eager.Step}[variant](SMOL, weights(SMOL))


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
