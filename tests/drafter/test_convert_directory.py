"""Conversion of whole directories: the same bytes under other names, all or nothing, and a source that is only read."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from eagle3_backend.drafter.config import DrafterConfig, Packaging
from eagle3_backend.drafter.convert_directory import convert_directory
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inventory import Inventory, read_inventory
from eagle3_backend.drafter.layouts import flat_config, nested_config
from eagle3_backend.drafter.rope import Rope
from eagle3_backend.findings import FindingError

H, V, DV, HEADS, KV, SPAN, INNER = 8, 32, 12, 2, 1, 4, 16
KEPT = sorted(random.Random(1).sample(range(V), DV))
DRAFTER = DrafterConfig(
    hidden_size=H,
    target_hidden_size=H,
    intermediate_size=INNER,
    heads=HEADS,
    kv_heads=KV,
    head_dim=SPAN,
    vocab_size=V,
    draft_vocab_size=DV,
    aux_layers=(2, 4, 5),
    rms_norm_eps=1e-5,
    max_position_embeddings=64,
    rope=Rope(10000.0),
)
PACKAGING = Packaging("bfloat16", "org/target", ("LlamaForCausalLM",), 3)
TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": H,
    "num_attention_heads": HEADS,
    "num_hidden_layers": 8,
    "vocab_size": V,
    "max_position_embeddings": 64,
}
SHAPES = {
    "fc.weight": (H, 3 * H),
    "midlayer.hidden_norm.weight": (H,),
    "midlayer.input_layernorm.weight": (H,),
    "midlayer.self_attn.q_proj.weight": (HEADS * SPAN, 2 * H),
    "midlayer.self_attn.k_proj.weight": (KV * SPAN, 2 * H),
    "midlayer.self_attn.v_proj.weight": (KV * SPAN, 2 * H),
    "midlayer.self_attn.o_proj.weight": (H, HEADS * SPAN),
    "midlayer.post_attention_layernorm.weight": (H,),
    "midlayer.mlp.gate_proj.weight": (INNER, H),
    "midlayer.mlp.up_proj.weight": (INNER, H),
    "midlayer.mlp.down_proj.weight": (H, INNER),
    "norm.weight": (H,),
    "lm_head.weight": (DV, H),
}
EMBEDDING = "embed_tokens.weight"


def values(seed: str, shape: tuple) -> tuple[str, tuple, bytes]:
    """A bf16 tensor of reproducible bytes."""
    count = 2
    for size in shape:
        count *= size
    return "BF16", shape, random.Random(seed).randbytes(count)


def weights(layout: str = "flat", **others) -> dict:
    """All tensors of the drafter by name; ``others`` come on top (None: leave out)."""
    tensors = {name: values(name, shape) for name, shape in SHAPES.items()}
    tensors["d2t"] = ("I64", (DV,), struct.pack(f"<{DV}q", *(kept - draft for draft, kept in enumerate(KEPT))))
    tensors["t2d"] = ("BOOL", (V,), bytes(token in KEPT for token in range(V)))
    tensors = {name: tensor for name, tensor in {**tensors, **others}.items() if tensor is not None}
    if layout == "nested":
        return {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    return tensors


def save(path: Path, tensors: dict) -> None:
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def content(inventory: Inventory) -> dict[str, tuple]:
    """Dtype, shape and bytes of every tensor."""
    return {
        name: (tensor.dtype, tensor.shape, inventory.folder.read(tensor.file, tensor.start, tensor.end - tensor.start))
        for name, tensor in inventory.tensors.items()
    }


def tensors_in(directory: Path) -> dict[str, tuple]:
    inventory = read_inventory(LocalFolder(directory))
    assert inventory.findings == ()
    return content(inventory)


def written(tensors: dict) -> dict[str, tuple]:
    names = {"BF16": "bfloat16", "I64": "int64", "BOOL": "bool"}
    return {name: (names[dtype], shape, data) for name, (dtype, shape, data) in tensors.items()}


@pytest.fixture
def drafter(tmp_path):
    """Write a drafter's directory in a layout, with these tensors."""

    def make(layout: str = "flat", tensors: dict | None = None, config: DrafterConfig = DRAFTER) -> Path:
        directory = tmp_path / "source"
        directory.mkdir()
        settings = flat_config(config, PACKAGING, (1, 3, 4)) if layout == "flat" else nested_config(config, PACKAGING)
        (directory / "config.json").write_text(json.dumps(settings))
        save(directory / "model.safetensors", tensors or weights(layout))
        return directory

    return make


@pytest.fixture
def target(tmp_path) -> Path:
    directory = tmp_path / "target"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(TARGET))
    save(directory / "model.safetensors", {"model.embed_tokens.weight": values("embedding", (V, H))})
    return directory


def snapshot(directory: Path) -> dict[str, tuple]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


def refused(*arguments, **rest) -> list[str]:
    with pytest.raises(FindingError) as raised:
        convert_directory(*arguments, **rest)
    return [finding.code for finding in raised.value.findings if finding.severity.value == "error"]


@pytest.mark.parametrize(("layout", "other"), [("flat", "nested"), ("nested", "flat")])
def test_a_drafter_keeps_every_byte_there_and_back(drafter, target, tmp_path, layout, other) -> None:
    source, there, back = drafter(layout), tmp_path / "there", tmp_path / "back"
    (source / "README.md").write_text("a drafter")
    before = snapshot(source)
    conversion = convert_directory(source, there, other, target=target)
    assert [finding.code for finding in conversion.findings if finding.severity.value != "info"] == []
    assert tensors_in(there) == written(weights(other))
    assert (there / "README.md").read_text() == "a drafter"
    convert_directory(there, back, layout, target=target)
    assert tensors_in(back) == written(weights(layout))
    assert json.loads((back / "config.json").read_text()) == json.loads((source / "config.json").read_text())
    assert snapshot(source) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "source", "target", "there"]


def test_a_config_alone_gives_a_config_alone(drafter, target, tmp_path) -> None:
    convert_directory(drafter() / "config.json", tmp_path / "out", "nested", target=target / "config.json")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["config.json"]


def test_older_names_of_tensors_become_those_of_the_layout(drafter, tmp_path) -> None:
    norms = {f"aux_norm_{name}.weight": values(name, (H,)) for name in ("low", "mid", "high")}
    old = {f"model.{name}": tensor for name, tensor in weights().items() if name.startswith("midlayer.")}
    rest = {name: tensor for name, tensor in weights().items() if not name.startswith("midlayer.")}
    source = drafter(tensors={**rest, **old, **norms}, config=replace(DRAFTER, fc_norm=True))
    convert_directory(source, tmp_path / "out", "nested")
    names = {f"fc_norm.{index}.weight" for index in range(3)}
    assert set(tensors_in(tmp_path / "out")) == {*weights("nested"), *names}


def test_a_missing_t2d_is_made_from_d2t(drafter, tmp_path) -> None:
    conversion = convert_directory(drafter(tensors=weights(t2d=None)), tmp_path / "out", "nested")
    assert "t2d_rebuilt" in {finding.code for finding in conversion.findings}
    assert tensors_in(tmp_path / "out") == written(weights("nested"))


def test_zeros_as_maps_of_the_whole_vocabulary_are_left_out(drafter, tmp_path) -> None:
    """vLLM stops at them, and they say nothing."""
    maps = {"d2t": ("I64", (V,), bytes(8 * V)), "t2d": ("BOOL", (V,), b"\1" * V)}
    head = {"lm_head.weight": values("lm_head.weight", (V, H))}
    source = drafter(tensors=weights(**maps, **head), config=replace(DRAFTER, draft_vocab_size=V))
    conversion = convert_directory(source, tmp_path / "out", "nested")
    assert "idle_maps_left_out" in {finding.code for finding in conversion.findings}
    assert tensors_in(tmp_path / "out") == written(weights("nested", d2t=None, t2d=None, **head))


class TestEmbedding:
    """Kept by default, dropped or added on request."""

    def test_it_is_kept(self, drafter, tmp_path) -> None:
        source = drafter(tensors=weights(**{EMBEDDING: values("trained", (V, H))}))
        convert_directory(source, tmp_path / "out", "nested")
        assert EMBEDDING in tensors_in(tmp_path / "out")

    @pytest.mark.parametrize(("seed", "told"), [("trained", True), ("embedding", False)])
    def test_one_that_is_not_the_targets_is_dropped_with_a_warning(self, drafter, target, tmp_path, seed, told) -> None:
        source = drafter(tensors=weights(**{EMBEDDING: values(seed, (V, H))}))
        conversion = convert_directory(source, tmp_path / "out", "nested", target=target, embedding="drop")
        assert ("embedding_dropped" in {finding.code for finding in conversion.findings}) is told
        assert tensors_in(tmp_path / "out") == written(weights("nested"))

    def test_one_that_the_drafter_needs_is_not_dropped(self, drafter, tmp_path) -> None:
        narrow = replace(DRAFTER, target_hidden_size=2 * H)
        tensors = weights(**{EMBEDDING: values("own", (V, H)), "fc.weight": values("fc", (H, 6 * H))})
        source = drafter(tensors=tensors, config=narrow)
        assert refused(source, tmp_path / "out", "nested", embedding="drop") == ["embed_tokens_missing"]
        convert_directory(source, tmp_path / "out", "nested")

    def test_it_is_added_from_the_target(self, drafter, target, tmp_path) -> None:
        convert_directory(drafter(), tmp_path / "out", "nested", target=target, embedding="add")
        assert tensors_in(tmp_path / "out")[EMBEDDING] == written({"": values("embedding", (V, H))})[""]

    def test_it_cannot_be_added_without_the_targets_weights(self, drafter, target, tmp_path) -> None:
        source, config = drafter(), target / "config.json"
        assert refused(source, tmp_path / "out", "nested", target=config, embedding="add") == ["target_weights_missing"]
        save(target / "model.safetensors", {"model.embed_tokens.weight": values("embedding", (V, 2 * H))})
        assert "tensor_shape" in refused(source, tmp_path / "out", "nested", target=target, embedding="add")


class TestRefusal:
    """Nothing is written, and the reason is told; `accepted` goes on."""

    @pytest.mark.parametrize(
        ("changes", "code"),
        [
            ({"lm_head.weight": None}, "lm_head_missing"),
            ({"d2t": None}, "d2t_missing"),
            ({"d2t": ("I64", (DV,), struct.pack(f"<{DV}q", *KEPT))}, "d2t_absolute_ids"),
            ({"fc.weight": values("fc", (H, 2 * H))}, "fc_input_mismatch"),
            ({"midlayer.mlp.up_proj.weight": None}, "tensor_missing"),
        ],
    )
    def test_weights_that_do_not_fit_the_config(self, drafter, tmp_path, changes, code) -> None:
        source = drafter(tensors=weights(**changes))
        assert code in refused(source, tmp_path / "out", "nested")
        assert [path.name for path in tmp_path.iterdir()] == ["source"]

    def test_a_fault_that_is_accepted(self, drafter, tmp_path) -> None:
        source = drafter(tensors=weights(**{"lm_head.weight": None}))
        conversion = convert_directory(source, tmp_path / "out", "nested", accepted=["lm_head_missing"])
        assert "lm_head_missing" in {finding.code for finding in conversion.findings}
        assert "lm_head.weight" not in tensors_in(tmp_path / "out")

    def test_an_engine_that_cannot_serve_it(self, drafter, target, tmp_path) -> None:
        source = drafter("nested", config=replace(DRAFTER, aux_layers=(2, 4, 8)))
        assert refused(source, tmp_path / "out", "flat", target=target) == ["aux_layers_inexpressible"]
        convert_directory(source, tmp_path / "out", "flat", target=target, engines=("vllm",))

    def test_a_directory_without_weights(self, drafter, tmp_path) -> None:
        source = drafter()
        (source / "model.safetensors").unlink()
        assert "weights_missing" in refused(source, tmp_path / "out", "nested")

    def test_weights_that_are_cut_off(self, drafter, tmp_path) -> None:
        source = drafter()
        data = (source / "model.safetensors").read_bytes()
        (source / "model.safetensors").write_bytes(data[:-10])
        assert "shard_truncated" in refused(source, tmp_path / "out", "nested")

    def test_a_destination_that_is_there(self, drafter, tmp_path) -> None:
        (tmp_path / "out").mkdir()
        assert refused(drafter(), tmp_path / "out", "nested") == ["destination_exists"]

    def test_a_destination_within_the_source(self, drafter) -> None:
        source = drafter()
        assert refused(source, source / "nested", "nested") == ["destination_in_source"]

    def test_a_write_that_fails_leaves_nothing(self, drafter, tmp_path, monkeypatch) -> None:
        def full(*arguments):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("eagle3_backend.drafter.convert_directory.rewrite", full)
        assert refused(drafter(), tmp_path / "out", "nested") == ["file_unwritable"]
        assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_weights_in_shards_become_one_file(drafter, tmp_path) -> None:
    source = drafter()
    tensors = list(weights().items())
    (source / "model.safetensors").unlink()
    parts = {f"model-0000{part + 1}-of-00002.safetensors": dict(tensors[part::2]) for part in range(2)}
    for name, held in parts.items():
        save(source / name, held)
    index = {"weight_map": {tensor: name for name, held in parts.items() for tensor in held}}
    (source / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, **index}))
    convert_directory(source, tmp_path / "out", "nested")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]
    assert tensors_in(tmp_path / "out") == written(weights("nested"))


def test_what_is_no_file_of_the_directory_is_left_out_and_told(drafter, tmp_path) -> None:
    source = drafter()
    (source / "checkpoints").mkdir()
    (source / "secret").symlink_to("/etc/hostname")
    (source / "pytorch_model.bin").write_bytes(b"")
    conversion = convert_directory(source, tmp_path / "out", "nested")
    left = [finding.actual for finding in conversion.findings if finding.code == "files_left_out"]
    assert left == [["checkpoints", "pytorch_model.bin", "secret"]]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["config.json", "model.safetensors"]


def test_a_disk_that_fills_while_other_files_are_copied_leaves_nothing(drafter, tmp_path, monkeypatch) -> None:
    source = drafter()
    (source / "notes.txt").write_text("notes")

    def full(read, written) -> None:
        written.write(read.read(2))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(FindingError) as problem:
        convert_directory(source, tmp_path / "out", "nested")
    assert problem.value.findings[-1].code == "file_unwritable"
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
