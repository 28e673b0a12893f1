"""The machine's own speed on one core: a large bf16 matrix product and a copy that no cache holds."""

from __future__ import annotations

import json
import time

import torch

SIZE = 2048
BYTES = 1 << 28


def main() -> dict[str, object]:
    torch.set_num_threads(1)
    left, right = torch.randn(SIZE, SIZE).bfloat16(), torch.randn(SIZE, SIZE).bfloat16()
    source, target = torch.ones(BYTES, dtype=torch.uint8), torch.ones(BYTES, dtype=torch.uint8)
    product = min(_seconds(lambda: left @ right) for _ in range(3))
    copy = min(_seconds(lambda: target.copy_(source)) for _ in range(3))
    return {
        "torch": torch.__version__,
        "bf16_gflops": round(2 * SIZE**3 / product / 1e9, 1),
        "copy_gb_per_second": round(BYTES / copy / 1e9, 2),
    }


def _seconds(call) -> float:
    started = time.thread_time()
    call()
    return time.thread_time() - started


if __name__ == "__main__":
    print(json.dumps(main()))
