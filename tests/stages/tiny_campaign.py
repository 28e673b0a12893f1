"""The inputs of training made up in a second: a tiny target whose next token follows from its state, and its states."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from eagle3_backend.stages.store import Stamp, StoreWriter

VOCABULARY, WIDTH, LAYERS, AUX = 48, 16, 8, (2, 4, 5)
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": WIDTH,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_hidden_layers": LAYERS,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128,
    "rope_theta": 10000.0,
    "eos_token_id": 2,
}
ADDED = {"<end>": 2, "<think>": 47, "<unused>": 46}


def write_target(directory: Path, **facts: object) -> Path:
    """A target in small. Its head tells tokens apart; its embedding is the head."""
    directory.mkdir(parents=True, exist_ok=True)
    head = torch.randn(VOCABULARY, WIDTH, generator=torch.Generator().manual_seed(3)).bfloat16()
    tensors = {"norm.weight": torch.ones(WIDTH).bfloat16(), "lm_head.weight": head, "embed_tokens.weight": head.clone()}
    save_file(tensors, directory / "head.safetensors")
    values = {"model": str(directory), "layers": LAYERS, "hidden_size": WIDTH, "vocab_size": VOCABULARY, "eos": [2]}
    values |= {
        "rms_norm_eps": 1e-5,
        "final_norm": "rms",
        "logit_scale": 1.0,
        "logit_softcap": None,
        "tokenizer_hash": "k",
    }
    (directory / "facts.json").write_text(json.dumps({**values, **facts}))
    (directory / "config.json").write_text(json.dumps(CONFIG))
    added = [{"content": text, "id": token} for text, token in ADDED.items()]
    (directory / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    (directory / "chat_template.jinja").write_text("{{ messages }}<end><think>")
    return directory


def conversations(seed: int, count: int) -> list[tuple[list[int], list[list[int]]]]:
    """(token ids, spans): a prompt, then an answer that counts upwards; the second half of them has two answers."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for number in range(count):
        ids, spans = [], []
        for _ in range(1 if number < count // 2 else 2):
            start, length = (int(torch.randint(low, high, (), generator=generator)) for low, high in ((5, 40), (4, 14)))
            ids += [1, 3]
            spans.append([len(ids), len(ids) + length])
            ids += [5 + (start + step) % 40 for step in range(length - 1)] + [2]
        rows.append((ids, spans))
    return rows


def states(ids: list[int], seed: int) -> torch.Tensor:
    """[T-1, 4, H]: the last stream is the head's row of the next token, the aux streams are noisy versions of it."""
    generator = torch.Generator().manual_seed(seed)
    head = torch.randn(VOCABULARY, WIDTH, generator=torch.Generator().manual_seed(3))
    last = head[torch.tensor(ids[1:])] * 3
    aux = last[:, None] + 0.3 * torch.randn(len(last), 3, WIDTH, generator=generator)
    return torch.cat([aux * torch.tensor([1.0, 5.0, 20.0])[:, None], last[:, None]], 1).bfloat16()


def write_store(directory: Path, target: Path, train: int = 24, holdout: int = 4, mask: bool = True) -> Path:
    """A store of made-up conversations; without ``mask`` the target wrote nothing."""
    directory.mkdir(parents=True)
    stamp = Stamp(str(target), "r", AUX, WIDTH, "bfloat16", "k", "t", "none")
    writer = StoreWriter(directory, stamp, 1 << 20)
    for seed, (split, count) in enumerate((("train", train), ("holdout", holdout))):
        for index, (ids, spans) in enumerate(conversations(seed, count)):
            writer.add(split, index, ids, spans if mask else [], states(ids, 100 * seed + index))
    writer.close()
    return directory


def write_conversations(directory: Path) -> Path:
    """The jsonl files that belong to the store."""
    directory.mkdir(parents=True)
    for seed, (split, count) in enumerate((("train", 24), ("holdout", 4))):
        lines = [json.dumps({"input_ids": ids, "loss_mask": spans}) + "\n" for ids, spans in conversations(seed, count)]
        (directory / f"{split}.jsonl").write_text("".join(lines))
    return directory
