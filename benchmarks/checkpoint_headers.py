"""What it costs to list and check a sharded checkpoint of 100 000 tensors, and to rewrite a drafter of 5.5 GB.

Prints one JSON object. The checkpoint is sparse: its headers are real, its terabyte of weights takes no room. The
drafter is 5.5 GB of real bytes; `shutil.copyfile` copies it in turn, as the measure of what a copy costs here.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagle3_backend.drafter.checks import check
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inspection import inspect
from eagle3_backend.drafter.inventory import read_inventory
from eagle3_backend.drafter.rewrite import rewrite
from eagle3_backend.drafter.tensorfile import header_bytes, size_of

LAYERS, EXPERTS, SHARDS = 61, 410, 64
DRAFTER = {
    "embed_tokens.weight": ("bfloat16", (163840, 7168)),
    "midlayer.mlp.gate_proj.weight": ("bfloat16", (18432, 7168)),
    "midlayer.self_attn.q_proj.weight": ("bfloat16", (8192, 14336)),
    "fc.weight": ("bfloat16", (7168, 21504)),
    "lm_head.weight": ("bfloat16", (163840, 7168)),
    "d2t": ("int64", (163840,)),
}
"""Shapes of a drafter of Kimi-K2 with a trained embedding and the full vocabulary."""

CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "vocab_size": 163840,
    "draft_vocab_size": 32000,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_hidden_layers": 1,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "head_dim": 128,
    "eagle_aux_hidden_state_layer_ids": [2, 30, 58],
}

Tensors = dict[str, tuple[str, tuple[int, ...]]]


def write_target(folder: Path) -> None:
    """The headers of a mixture of experts with a trillion parameters in float8."""
    shapes = {"gate_proj": (2048, 7168), "up_proj": (2048, 7168), "down_proj": (7168, 2048)}
    tensors: Tensors = {}
    for layer in range(LAYERS):
        for expert in range(EXPERTS):
            for part, shape in shapes.items():
                tensors[f"model.layers.{layer}.mlp.experts.{expert}.{part}.weight"] = ("float8_e4m3fn", shape)
            tensors[f"model.layers.{layer}.mlp.experts.{expert}.weight_scale_inv"] = ("float32", (16, 56))
    names = list(tensors)
    places = {}
    for shard in range(SHARDS):
        file = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"
        own = names[shard::SHARDS]
        places.update(dict.fromkeys(own, file))
        write_sparse(folder / file, {name: tensors[name] for name in own})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    (folder / "config.json").write_text("{}")


def write_sparse(path: Path, tensors: Tensors) -> None:
    header = header_bytes(tensors, {"format": "pt"})
    path.write_bytes(header)
    os.truncate(path, len(header) + sum(size_of(*entry) for entry in tensors.values()))


def write_drafter(path: Path) -> None:
    """Real bytes, as a file with holes would copy faster than any drafter does."""
    block = os.urandom(1 << 24)
    left = sum(size_of(*entry) for entry in DRAFTER.values())
    with open(path, "wb") as file:
        file.write(header_bytes(DRAFTER, {"format": "pt"}))
        while left:
            left -= file.write(block[: min(left, len(block))])
        os.fsync(file.fileno())


def seconds(call: Callable[[], Any], clock: Callable[[], float]) -> float:
    started = clock()
    call()
    return round(clock() - started, 3)


def copy(source: Path, destination: Path) -> None:
    shutil.copyfile(source, destination)
    with open(destination, "rb") as file:
        os.fsync(file.fileno())


def listing(folder: Path) -> dict[str, Any]:
    write_target(folder)
    inventory = read_inventory(LocalFolder(folder))
    assert not inventory.findings
    return {
        "tensors": len(inventory.tensors),
        "weights_bytes": sum(tensor.end - tensor.start for tensor in inventory.tensors.values()),
        "headers_bytes": sum(
            min(t.start for t in inventory.tensors.values() if t.file == name) for name in inventory.files
        ),
        "inventory_cpu_seconds": min(
            seconds(lambda: read_inventory(LocalFolder(folder)), time.process_time) for _ in range(5)
        ),
        "inspection_cpu_seconds": min(
            seconds(lambda: inspect(LocalFolder(folder)), time.process_time) for _ in range(5)
        ),
        "check_cpu_seconds": min(seconds(lambda: checked(folder), time.process_time) for _ in range(5)),
        "answer_bytes": len(json.dumps(inspect(LocalFolder(folder)).to_json())),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def checked(folder: Path) -> None:
    """What `eagle3-tui check --engine vllm` does with the directory."""
    check(CONFIG, "vllm", inventory=read_inventory(LocalFolder(folder)))


def rewriting(folder: Path) -> dict[str, Any]:
    source, destination = folder / "model.safetensors", folder / "out.safetensors"
    write_drafter(source)
    inventory = read_inventory(LocalFolder(folder))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    copied, rewritten = [], []
    for _ in range(3):
        copied.append(seconds(lambda: copy(source, destination), time.perf_counter))
        destination.unlink()
        rewritten.append(seconds(lambda: rewrite(inventory, destination, {"fc.weight": "fc"}), time.perf_counter))
        destination.unlink()
    return {
        "bytes": source.stat().st_size,
        "copy_seconds": copied,
        "rewrite_seconds": rewritten,
        "peak_mib_grown": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024,
    }


def main() -> None:
    parts = {"listing": listing, "rewriting": rewriting}
    found = {}
    for name in sys.argv[1:] or parts:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = parts[name](Path(folder))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
