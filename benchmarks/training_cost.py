"""Row 17: peak bytes and FLOPs of a training step at the shapes of a drafter for Kimi K2, nothing allocated.

`training_cost.py VARIANT` counts one; `results()` compares them.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from measuring import child, row, speculators_python
from peers import cpu_environment

ROWS = (8192, 32768, 131072)
REACH = 5.0
OVERHEAD = 1.05
TILE_ROWS = 128
SCORES_BY_ROW = 4096
LIBRARIES = ("speculators", "specforge")


def results() -> dict[str, dict[str, Any]]:
    here = Path(__file__)
    ours, eager, products = (child(here, variant) for variant in ("ours", "eager", "products"))
    pythons = {"speculators": speculators_python(), "specforge": cpu_environment.main("specforge")}
    peers = {"eager": eager, **{library: child(here, library, python=python) for library, python in pythons.items()}}
    ratio, reach = {}, {}
    for place, own in ours.items():
        for variant, entry in peers.items():
            name = f"{variant} {place}"
            ratio[name], reach[name] = entry[place]["peak_gib"] / own["peak_gib"], REACH
        name = f"at_most_products {place}"
        ratio[name], reach[name] = own["tflop"] / products[place]["tflop"], OVERHEAD
    what = "training step, width 7168, draft vocabulary 32000, 7 steps, head frozen: peak bytes and FLOPs, counted"
    return {"17": row(what, ours, {**peers, "products": products}, ratio, reach)}


def products(rows: int) -> dict[str, float]:
    """TFLOP of the products that the mathematics needs, attention over causal pairs only, no score computed twice."""
    from counting import pairs
    from training_inputs import KIMI, STEPS

    sizes = {name: shape[0] * shape[1] for name, shape in KIMI.weights().items() if len(shape) == 2}
    once, head = sizes.pop("fc.weight"), sizes.pop("lm_head.weight")
    # Forward, then the gradients of weights and inputs; the aux states and the frozen head need one of the two.
    by_row = 2 * (2 * once + STEPS * (3 * sum(sizes.values()) + 2 * head) + head)
    attention = STEPS * 3 * 4 * KIMI.heads * KIMI.head_dim * pairs(rows)
    return {"tflop": (rows * by_row + attention) / 1e12}


def main(variant: str) -> dict[str, dict[str, float]]:
    if variant == "products":
        return {f"T {rows}": products(rows) for rows in ROWS}
    import counting
    import training_inputs
    from torch._subclasses.fake_tensor import FakeTensorMode

    if variant not in LIBRARIES:
        kernel = importlib.import_module("eagle3_kernels.draft_loss")
        # Chunks as on a GPU, and fewer passes over a chunk: a count that is not smaller for it and takes seconds.
        kernel.CHUNK_ROWS["torch"] = kernel.CHUNK_ROWS["triton"]
        kernel.LOGITS_AT_ONCE = TILE_ROWS * training_inputs.STEPS * training_inputs.KIMI.draft_vocabulary
    kept = importlib.import_module("eagle3_kernels.attention_kept") if variant not in LIBRARIES else None
    found = {}
    for rows in ROWS:
        started = time.monotonic()
        if kept:
            kept.SCORES_AT_ONCE = SCORES_BY_ROW * rows
        with FakeTensorMode():
            step = step_of(variant, training_inputs.weights(training_inputs.KIMI), training_inputs.KIMI)
            given = training_inputs.data(training_inputs.KIMI, rows)
            found[f"T {rows}"] = counted = counting.counted(lambda step=step, given=given: step.gradients(given))
        if variant in LIBRARIES:
            # The stand-ins compute nothing, so their products are missing.
            del counted["tflop"]
        print(f"{variant}, T {rows}: {counted}, {time.monotonic() - started:.0f} s", file=sys.stderr)
    return found


def step_of(variant: str, given: Any, shapes: Any) -> Any:
    """A variant's step with the weights ``given``."""
    if variant == "ours":
        from peers import ours

        return ours.Step(shapes, given)
    if variant == "eager":
        from peers import eager

        return eager.Step(shapes, given)
    step = importlib.import_module(f"peers.{variant}_step")
    return step.Step(shapes, given, counting=True)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
