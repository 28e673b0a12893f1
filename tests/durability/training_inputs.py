"""Writes what training reads, for a tiny target of random weights; runs in an interpreter with torch.

Standard input is ``{stage: {"output": directory, "fingerprint": …, "run": …}}`` for every stage before `train`; each
becomes a whole artifact, so that the campaign finds all of them fresh.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from eagle3_backend.pipeline.artifacts import write_json, write_manifest
from eagle3_backend.pipeline.stages import STAGES
from eagle3_backend.stages.store import Stamp, StoreWriter

VOCABULARY, HIDDEN, LAYERS = 256, 64, 8
KEPT = torch.arange(1, VOCABULARY, 2)
"""The draft vocabulary: every other token, and the conversations consist of these."""
AUX = (2, 4, 5)
CONVERSATIONS = {"train": 48, "holdout": 6}
TOKENS, PROMPT = 40, 8

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}


def target(directory: Path, generator: torch.Generator) -> None:
    facts = {
        "model": str(directory / "model"),
        "revision": "r1",
        "architecture": "LlamaForCausalLM",
        "layers": LAYERS,
        "hidden_size": HIDDEN,
        "vocab_size": VOCABULARY,
        "rms_norm_eps": CONFIG["rms_norm_eps"],
        "final_norm": "rms",
        "logit_scale": None,
        "logit_softcap": None,
        "aux_layers": list(AUX),
    }
    write_json(directory / "facts.json", facts)
    write_json(directory / "config.json", CONFIG)
    rows = torch.randn(2, VOCABULARY, HIDDEN, generator=generator).bfloat16()
    weights = {"lm_head.weight": rows[0].clone(), "embed_tokens.weight": rows[1].clone()}
    save_file({**weights, "norm.weight": torch.ones(HIDDEN).bfloat16()}, directory / "head.safetensors")


def store(directory: Path, generator: torch.Generator) -> None:
    stamp = Stamp(str(directory), "r1", AUX, HIDDEN, "bfloat16", "t", "c", "none")
    writer = StoreWriter(directory, stamp, shard_bytes=1 << 20)
    for split, count in CONVERSATIONS.items():
        for index in range(count):
            tokens = KEPT[torch.randint(len(KEPT), (TOKENS,), generator=generator)].tolist()
            states = torch.randn(TOKENS - 1, len(AUX) + 1, HIDDEN, generator=generator).bfloat16()
            writer.add(split, index, tokens, [(PROMPT, TOKENS)], states)
    writer.close()


def vocab(directory: Path) -> None:
    t2d = torch.zeros(VOCABULARY, dtype=torch.bool)
    t2d[KEPT] = True
    save_file({"d2t": KEPT - torch.arange(len(KEPT)), "t2d": t2d}, directory / "vocab.safetensors")


def main() -> None:
    generator = torch.Generator().manual_seed(3)
    for name, planned in json.load(sys.stdin).items():
        directory = Path(planned["output"])
        directory.mkdir(parents=True)
        if name == "target":
            target(directory, generator)
        elif name == "extract":
            store(directory, generator)
        elif name == "vocab":
            vocab(directory)
        spec = {**planned, "stage": name, "stage_version": STAGES[name].version, "payload": "", "environment": "train"}
        write_manifest(directory, kind=str(STAGES[name].makes), spec=spec, attempt=1, summary={})


if __name__ == "__main__":
    main()
