"""Curves, gauges and log lines of the mock, each a function of the step or of the time."""

from __future__ import annotations

import math
import time
from functools import lru_cache

from eagle3_backend.control.snapshot import Gpu, Machine
from eagle3_backend.runs.series import downsample

GIB = 2**30
KEPT_COLUMNS = 300

Series = dict[str, tuple[tuple[float, float], ...]]


def _wave(step: float, period: float, size: float) -> float:
    return size * (math.sin(step / period) + 0.6 * math.sin(step / period * 2.7 + 1.3))


@lru_cache(maxsize=4096)
def loss_at(step: float) -> float:
    return 1.62 + 7.4 * math.exp(-step / 2600) + _wave(step, 90, 0.02 + 0.2 * math.exp(-step / 4000))


@lru_cache(maxsize=4096)
def length_at(step: float) -> float:
    return 1.0 + 1.78 * (1 - math.exp(-step / 4200)) + _wave(step, 130, 0.015)


@lru_cache(maxsize=4096)
def speed_at(step: float) -> float:
    """Tokens per second; not a number while the made-up link was lost."""
    return math.nan if 9_000 < step < 10_500 else 41_200 + _wave(step, 170, 2_400)


@lru_cache(maxsize=4096)
def norm_at(step: float) -> float:
    spike = 1.6 if abs(step - 13_000) < 60 else 0.0
    return 0.3 + 2.0 * math.exp(-step / 1500) + abs(_wave(step, 60, 0.09)) + spike


def loss_of_step(at: float, depth: int) -> float:
    return loss_at(at) + 0.3 * depth


def accepted_at(at: float, depth: int) -> float:
    return (length_at(at) - 1) / 2.5 * 0.8**depth


def series_until(step: int) -> Series:
    """All measurements of the made-up training, one every 50 steps."""
    return _series_until(step - step % 50)


@lru_cache(maxsize=2)
def _series_until(step: int) -> Series:
    steps = [float(at) for at in range(50, step + 1, 50)]
    made = {"train/loss": loss_at, "train/accept_len": length_at, "train/tokens_per_second": speed_at,
            "train/gradient_norm": norm_at}  # fmt: skip
    found = {name: tuple((at, value(at)) for at in steps) for name, value in made.items()}
    for depth in range(3):
        found[f"train/loss_{depth}"] = tuple((at, loss_of_step(at, depth)) for at in steps)
        found[f"train/accept_{depth}"] = tuple((at, accepted_at(at, depth)) for at in steps)
    # A day of steps is no more than control would hold of it.
    return {name: tuple(downsample(points, KEPT_COLUMNS)) for name, points in found.items()} if steps else {}


def gauges_until(elapsed: float) -> Series:
    """Ten minutes of GPU utilisation."""
    times = [elapsed + 10.0 * at for at in range(61)]
    return {
        f"gpu percent/{index}": tuple((at, 96.0 + (index * 7 + int(at)) % 4 if index < 6 else 2.0) for at in times)
        for index in range(8)
    }


def flood_line(number: int) -> str:
    return f"line {number:>9} step={number // 100} loss={loss_at(number // 100):.3f}"


@lru_cache(maxsize=8192)
def training_line(step: int, wall: float) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(wall))
    if step % 300 == 0:
        return f"{at} ckpt saved step_{step} (2.1 GiB) in 3.{step // 300 % 9}s"
    if step % 950 == 0:
        return f"{at} WARN grad norm 2.4 clipped to 1.0 at step {step}"
    return (
        f"{at} step={step} loss={loss_at(step):.3f} acc_len={length_at(step):.2f} lr=8.1e-05 "
        f"tok/s={41_200 + _wave(step, 170, 2_400):.0f}"
    )


def machine_at(elapsed: float, cpu_only: bool) -> Machine:
    sway = math.sin(elapsed / 7)
    gpus = tuple(
        Gpu(
            index, "NVIDIA H200", 96.0 + (index * 7 + int(elapsed)) % 4 if index < 6 else 2.0 * (7 - index),
            (71 if index < 6 else 11 * (7 - index)) * GIB, 141 * GIB, 66.0 + index % 3 * 2 if index < 6 else 37.0,
            650.0 + 6 * sway + index if index < 6 else 80.0 + index,
            uuid=f"GPU-{index}",
        )
        for index in range(0 if cpu_only else 8)
    )  # fmt: skip
    return Machine(
        cpu_percent=round(43.0 + 9 * sway, 1), cpu_count=2 if cpu_only else 96, load=1.2, memory_used=10 * GIB,
        memory_total=24 * GIB, disk_free=120 * GIB, disk_total=400 * GIB, gpus=gpus,
    )  # fmt: skip
