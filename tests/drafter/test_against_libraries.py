"""What the readers and writers of weights say, against the libraries whose formats these are."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from safetensors import SafetensorError, safe_open  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from eagle3_backend.drafter.folder import LocalFolder  # noqa: E402
from eagle3_backend.drafter.inventory import read_inventory  # noqa: E402
from eagle3_backend.drafter.rewrite import rewrite  # noqa: E402
from eagle3_backend.drafter.tensorfile import read_header  # noqa: E402
from eagle3_backend.findings import FindingError  # noqa: E402

pytestmark = pytest.mark.torch

DTYPES = ("bfloat16", "float16", "float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool")
DTYPES += ("float8_e4m3fn", "float8_e5m2", "uint16", "uint32", "uint64", "complex64")


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    values = {dtype: torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)) for dtype in DTYPES}
    return {**values, "scalar": torch.tensor(1.5), "empty": torch.zeros(0, 4)}


def facts(found: dict[str, torch.Tensor]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)) for name, tensor in found.items()}


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    """Equal in every bit, as codes of eight bits cannot be compared by value."""
    if facts(left) != facts(right):
        return False
    return all(
        torch.equal(left[name].view(torch.uint8), right[name].view(torch.uint8)) for name in left if left[name].ndim
    )


def test_a_file_of_safetensors_is_listed_as_it_was_saved(tmp_path, tensors) -> None:
    save_file(tensors, tmp_path / "model.safetensors")
    inventory = read_inventory(LocalFolder(tmp_path))
    assert {name: tensor[:2] for name, tensor in inventory.tensors.items()} == facts(tensors)
    assert inventory.findings == ()


def test_a_file_of_torch_is_listed_as_it_was_saved_and_rewritten_bit_by_bit(tmp_path, tensors) -> None:
    shared = torch.arange(24, dtype=torch.int64)
    tensors |= {"head": shared[:8], "tail": shared[20:], "parameter": torch.nn.Parameter(torch.ones(2, 2))}
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    inventory = read_inventory(LocalFolder(tmp_path))
    assert {name: tensor[:2] for name, tensor in inventory.tensors.items()} == facts(tensors)
    assert (inventory.findings, inventory.integers("tail")) == ((), [20, 21, 22, 23])
    rewrite(inventory, tmp_path / "out.safetensors")
    assert same(load_file(tmp_path / "out.safetensors"), {name: tensor.detach() for name, tensor in tensors.items()})


def test_a_state_dict_of_a_module_is_listed(tmp_path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3)).bfloat16()
    torch.save(module.state_dict(), tmp_path / "pytorch_model.bin")
    inventory = read_inventory(LocalFolder(tmp_path))
    assert {name: tensor[:2] for name, tensor in inventory.tensors.items()} == facts(module.state_dict())


def test_a_whole_module_is_more_than_tensors(tmp_path) -> None:
    torch.save(torch.nn.Linear(2, 3), tmp_path / "pytorch_model.bin")
    (finding,) = read_inventory(LocalFolder(tmp_path)).findings
    assert finding.code == "pickle_unsafe"


def test_the_old_format_of_torch_is_told(tmp_path, tensors) -> None:
    torch.save(tensors, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    (finding,) = read_inventory(LocalFolder(tmp_path)).findings
    assert finding.code == "pickle_legacy"


def test_rewritten_shards_load_bit_by_bit(tmp_path, tensors) -> None:
    names = sorted(tensors)
    for number, part in enumerate((names[:7], names[7:]), start=1):
        save_file({name: tensors[name] for name in part}, tmp_path / f"model-{number:05}-of-00002.safetensors")
    inventory = read_inventory(LocalFolder(tmp_path))
    (tmp_path / "out").mkdir()
    rewrite(inventory, tmp_path / "out" / "model.safetensors", {name: f"layers.0.{name}" for name in names})
    loaded = load_file(tmp_path / "out" / "model.safetensors")
    assert same(loaded, {f"layers.0.{name}": tensor for name, tensor in tensors.items()})


def damage(whole: bytes, data: int, chance: random.Random) -> bytes:
    """A header with one or two letters exchanged, put in or taken out, mostly with its length told right."""
    content = bytearray(whole)
    for _ in range(chance.choice((1, 1, 1, 2))):
        place, letter = chance.randrange(8, len(content) - data), chance.choice(b'[]{}",:0123456789FUBI -.e\\\xff')
        content[place : place + chance.choice((0, 1, 1, 1, 2))] = bytes([letter] * chance.choice((0, 1, 1, 1)))
    if chance.random() < 0.8:
        content[:8] = struct.pack("<Q", max(0, len(content) - 8 - data))
    return bytes(content)


def is_read_by_safetensors(path: Path) -> bool:
    try:
        with safe_open(path, "pt") as file:
            return file.keys() is not None
    except (SafetensorError, OSError):
        return False


def test_a_damaged_header_is_refused_exactly_when_safetensors_refuses_it(tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    saved = {
        "fc.weight": torch.zeros(2, 6).bfloat16(),
        "d2t": torch.zeros(3, dtype=torch.int64),
        "t2d": torch.zeros(8) > 0,
    }
    save_file({**saved, "empty": torch.zeros(0, 4)}, path, metadata={"format": "pt"})
    whole, chance, read = path.read_bytes(), random.Random(0), 0
    for _ in range(3000):
        path.write_bytes(damage(whole, 24 + 24 + 8, chance))
        try:
            read_header(path)
            ours = True
        except FindingError:
            ours = False
        assert ours == is_read_by_safetensors(path), path.read_bytes()
        read += ours
    assert 100 < read < 2900
