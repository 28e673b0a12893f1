"""A checkpoint of a hundred thousand tensors costs its headers and no more."""

from __future__ import annotations

import pytest

from eagle3_backend.drafter import checks
from eagle3_backend.drafter.inventory import Inventory, read_inventory

LAYERS, EXPERTS, SHARDS = 4, 60, 8


@pytest.fixture
def sharded(tmp_path, weights, drafters):
    """A drafter whose file went into the shards of a mixture of experts."""
    experts = [f"layers.{layer}.mlp.experts.{expert}.w" for layer in range(LAYERS) for expert in range(EXPERTS)]
    tensors = {**dict.fromkeys(experts, ("bfloat16", (64, 64))), **drafters.checkpoint().tensors}
    places = {}
    for number in range(SHARDS):
        file = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        own = {name: tensors[name] for name in list(tensors)[number::SHARDS]}
        weights.safetensors(tmp_path / file, own)
        places.update(dict.fromkeys(own, file))
    weights.index(tmp_path, places)
    return weights.counting(tmp_path)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_check_reads_headers_and_maps_alone(sharded, drafters, engine) -> None:
    inventory = read_inventory(sharded)
    checks.check(drafters.checkpoint().config, engine, target=drafters.TARGET, inventory=inventory)
    maps = {tensor[2:] for name, tensor in inventory.tensors.items() if name in ("d2t", "t2d")}
    for file, offset, length in sharded.ranges:
        if file in inventory.files:
            base = min(tensor.start for tensor in inventory.tensors.values() if tensor.file == file)
            assert offset + length <= base or (file, offset, offset + length) in maps


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_is_wrong_a_hundred_thousand_times_is_told_a_hundred_times(drafters, engine) -> None:
    checkpoint = drafters.checkpoint()
    names = [f"model.layers.{number}.mlp.gate.weight" for number in range(1, 100_000)]
    manifest = {name: ["uint8", [4, 4]] for name in [*checkpoint.tensors, *names]}
    found = checks.check(checkpoint.config, engine, target=drafters.TARGET, inventory=Inventory.from_manifest(manifest))
    codes = [finding.code for finding in found]
    assert max(map(codes.count, codes)) == checks.MAX_TOLD
    assert "findings_left_off" in codes
