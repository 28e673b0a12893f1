"""Runs in speculators' environment: ``fed_speculators.py``, a JSON object on standard input, one as the last line.

Writes what the product's adapter gives speculators for a few conversations of a campaign, and reads it as the
library's own trainer does: its options, its data set, its vocabulary maps, its model. Nothing of it is patched.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from hs_connectors import FileTransfer
from speculators.models.eagle3 import Eagle3DraftModel
from speculators.train import cli
from speculators.train.config import TrainConfig
from speculators.train.data import ArrowDataset

from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.drafter.layouts import flat_tensor_name
from eagle3_backend.pipeline.parameters import TrainParameters
from eagle3_backend.stages.drafter_model import Drafter
from eagle3_backend.stages.foreign_inputs import Work, given
from eagle3_backend.stages.reference_drafter import ReferenceDrafter
from eagle3_backend.stages.speculators_library import Speculators
from eagle3_backend.stages.starting_drafter import fresh_config
from eagle3_backend.stages.store import open_store
from eagle3_backend.stages.target_head import read_target
from eagle3_backend.stages.training_data import Data, read_data
from eagle3_backend.stages.vocab import read_maps

TRAIN, HELD_OUT = 5, 2
"""Conversations of each split."""


def read_back(folder: Path, target: Path, store: Path, vocab: Path) -> dict:
    """What of the product's inputs the library sees, each as a fact that should be true or a number."""
    parameters = TrainParameters(trainer="speculators", norm_before_residual=True)
    head, maps, whole = read_target(target), read_maps(vocab), read_data(store, parameters)
    data = Data(whole.conversations[:TRAIN], whole.held_out[:HELD_OUT], parameters)
    config = fresh_config(head.config, open_store(store).stamp.layer_ids, len(maps[0]), parameters)
    work = Work(parameters, head, config, maps, data, folder)
    library = Speculators(work)
    library.write(lambda: None)
    options, model = built(library)
    ids = maps[0] + torch.arange(len(maps[0]))
    return {
        "rows": {split: equal_rows(options, split, rows) for split, rows in splits(data).items()},
        "maps": torch.equal(model.d2t, maps[0]) and torch.equal(model.t2d, maps[1]),
        "teacher": torch.equal(model.verifier_lm_head.weight, head.head[ids].float()),
        "norm": torch.equal(model.verifier_norm.weight, head.norm),
        "embedding": torch.equal(model.embed_tokens.weight, head.embedding.float()),
        "layers": model.target_layer_ids == list(config.aux_layers),
        "full_attention": model.uses_full_attn and not model.uses_sliding_window_attn,
        "norm_before_residual": model.config.norm_before_residual,
        "epochs": options.epochs == parameters.epochs,
        **started(replace(work, folder=folder / "started")),
    }


def built(library: Speculators) -> tuple[argparse.Namespace, Eagle3DraftModel]:
    """The library's own options and the model that its trainer begins with."""
    options = argparse.Namespace(**TrainConfig.resolve(library.arguments()).flatten())
    d2t, t2d, size = cli.parse_vocab_mappings(options)
    return options, cli.build_draft_model(options, Eagle3DraftModel, t2d, d2t, size)


def started(fresh: Work) -> dict[str, bool]:
    """What it begins with where a drafter with a head of its own and another form is given, stored in bfloat16."""
    config: DrafterConfig = replace(fresh.config, norm_before_residual=False, fc_norm=True, norm_output=True)
    drafter = Drafter(config, fresh.target.embedding).bfloat16()
    tensors = drafter.served_weights()
    work = replace(fresh, config=config, start=ReferenceDrafter(config, tensors, fresh.maps[0]))
    library = Speculators(work)
    library.write(lambda: None)
    _, model = built(library)
    weights = dict(model.named_parameters())
    trained = {flat_tensor_name(name) for name, weight in weights.items() if weight.requires_grad}
    begun = {flat_tensor_name(name): weight for name, weight in weights.items()}
    return {
        "start_weights": all(torch.equal(begun[name], tensor.float()) for name, tensor in tensors.items()),
        "start_embedding": torch.equal(begun["embed_tokens.weight"], fresh.target.embedding.float()),
        "start_form": model.config.fc_norm and model.config.norm_output and not model.config.norm_before_residual,
        "start_maps": torch.equal(model.d2t, fresh.maps[0]),
        "start_dtype": {weight.dtype for weight in weights.values()} == {torch.float32},
        "start_trained": trained == tensors.keys() - {"lm_head.weight"},
    }


def splits(data: Data) -> dict[str, list]:
    return {"train": data.conversations, "val": data.held_out}


def equal_rows(options: argparse.Namespace, split: str, rows: list) -> int:
    """How many conversations of a split come out of the library's reader as they went in."""
    read = ArrowDataset(
        options.total_seq_len,
        options.data_path,
        transfer=FileTransfer(Path(options.hidden_states_path)),
        on_missing="raise",
        train_ratio=options.train_data_ratio,
        split=split,
    )
    found = 0
    for row, theirs in zip(given(rows), map(read.__getitem__, range(len(read))), strict=True):
        pairs = {
            "input_ids": row.token_ids,
            "loss_mask": row.loss_mask,
            "hidden_states": row.aux,
            "verifier_last_hidden_states": row.last,
        }
        found += all(torch.equal(theirs[name], ours) for name, ours in pairs.items())
    return found


def main() -> None:
    torch.set_num_threads(1)
    request = {name: Path(value) for name, value in json.load(sys.stdin).items()}
    with contextlib.redirect_stdout(sys.stderr):
        answer = read_back(**request)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
