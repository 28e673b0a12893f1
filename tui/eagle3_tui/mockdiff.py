"""Made-up drafters and runs for the panel's mock to compare."""

from __future__ import annotations

from typing import Any

from eagle3_backend.control.commands import Attempts, Inspect, Specification
from eagle3_backend.drafter.inspection import Inspection
from eagle3_backend.drafter.summary import summarize

_LAYER: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 1,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-06,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000.0,
    "rope_scaling": None,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
_IDS = "eagle_aux_hidden_state_layer_ids"

FLAT: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    **_LAYER,
    "draft_vocab_size": 32000,
    "norm_before_residual": False,
    _IDS: [2, 18, 33],
    "eagle_config": {_IDS: [1, 17, 32], "use_aux_hidden_state": True},
    "torch_dtype": "bfloat16",
}
NESTED: dict[str, Any] = {
    "architectures": ["Eagle3DraftModel"],
    "draft_vocab_size": 32000,
    "dtype": "bfloat16",
    _IDS: [2, 18, 33],
    "norm_before_residual": True,
    "speculators_config": {
        "algorithm": "eagle3",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {"architectures": ["Qwen3ForCausalLM"], "name_or_path": "Qwen/Qwen3-8B"},
    },
    "speculators_model_type": "eagle3",
    "speculators_version": "0.9.0",
    "transformer_layer_config": {**_LAYER, "max_position_embeddings": 2048},
}
TARGET = {"architectures": ["Qwen3ForCausalLM"], "num_hidden_layers": 36, "hidden_size": 4096, "vocab_size": 151936}


_BEGAN = 1_764_415_320.0
"""Wall time at which the newest made-up attempt began."""


def answer(command: Attempts | Specification | Inspect, scene: str = "train") -> dict[str, Any]:
    """What control would say."""
    if isinstance(command, Inspect):
        config = NESTED if command.path.endswith("nested") else FLAT if command.path.endswith("flat") else TARGET
        return Inspection(command.path, config, summarize({}), None, ()).to_json()
    if isinstance(command, Specification):
        return _specification(command)
    state, ended = ("failed", _BEGAN + 9607.0) if scene == "failed" else ("running", None)
    told = [("8e07", 2, state, _BEGAN, ended), ("8e07", 1, "stopped", _BEGAN - 5400.0, _BEGAN - 180.0),
            ("51c0", 1, "done", _BEGAN - 90_000.0, _BEGAN - 73_100.0)]  # fmt: skip
    keys = ("fingerprint", "attempt", "state", "started", "ended")
    return {"attempts": [{"stage": "train", "run": f"qwen3-8b-train-{one[0]}", **dict(zip(keys, one, strict=True))}
                         for one in told]}  # fmt: skip


def _specification(command: Specification) -> dict[str, Any]:
    older = command.run.endswith("51c0")
    return {
        "run": command.run,
        "attempt": command.attempt,
        "stage": "train",
        "stage_version": 1,
        "fingerprint": command.run[-4:],
        "parameters": {
            "epochs": 6,
            "learning_rate": 1e-4 if older else 8e-5,
            "ttt_steps": 5 if older else 7,
            "step_decay": 0.8,
            "seed": 0,
            "checkpoint_seconds": 60.0 if older else 120.0,
        },
        "environment": "train",
        "payload": "c8491a435047",
        "argv": ["/data/eagle3/envs/train-8f982959cb/bin/python", "-m", "eagle3_backend.stages", "{run_directory}"],
        "env": {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5"},
        "output": f"/data/eagle3/qwen3-8b/train/{command.run[-4:]}",
        "input_fingerprints": {"target": "9b1e", "extract": "77ad", "vocab": "0c44"},
    }
