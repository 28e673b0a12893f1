"""The parameters of every stage, as plain frozen dataclasses.

The laptop validates values with pydantic over these classes; a host does `Parameters(**spec["parameters"])`. The form
in the panel, `--set` flags, the JSON schema and the reference documentation come from the text under each field. A
field whose metadata say `affects_output` is false does not enter the fingerprint, and one that is `later` does not at
its default. A directory on the host enters it by the text of its path and nothing more: what lies in it is not looked
at before the stage runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Tuple


def _quiet(default: Any) -> Any:
    """A field that changes how work is done, not what comes out of it."""
    return field(default=default, metadata={"affects_output": False})


def _later(default: Any) -> Any:
    """A field that artifacts were made without: at its default they still are what it says, and keep their names."""
    return field(default=default, metadata={"later": True})


_PYDANTIC = {"extra": "forbid", "use_attribute_docstrings": True}

NATIVE = "native"
"""The trainer that is part of this package; the others are libraries of other people."""

AT_LEAST: Dict[str, float] = {
    "accumulation": 1,
    "batch_rows": 1,
    "bootstrap": 1,
    "concurrencies": 1,
    "concurrency": 1,
    "context": 2,
    "depth": 1,
    "depths": 1,
    "draft_vocab_size": 1,
    "epochs": 1,
    "holdout": 1,
    "limit": 0,
    "long_context": 0,
    "max_new_tokens": 1,
    "processes": 0,
    "raw_prompts": 0,
    "requests": 1,
    "steps": 1,
    "temperature": 0,
    "tensor_parallel": 1,
    "tried": 1,
    "ttt_steps": 1,
    "warmup": 0,
    "weight_decay": 0,
}
"""Smallest value of a field (of each value, where it holds several), by its name: one name means one thing in every
stage."""

ABOVE_ZERO = ("checkpoint_seconds", "clip", "learning_rate", "save_seconds", "step_decay", "terminate_seconds")
"""Fields that must be larger than 0."""

ONE_OF: Dict[str, Tuple[str, ...]] = {
    "dtype": ("bfloat16", "float16", "float32"),
    "engine": ("vllm", "sglang"),
    "keep": ("best", "last"),
    "layout": ("flat", "nested"),
    "loss": ("kl", "lk_hybrid"),
    "optimizer": ("adamw", "muon"),
    "schedule": ("constant", "cosine", "linear"),
    "trainer": (NATIVE, "speculators", "specforge"),
}
"""The values that a field may have."""


@dataclass(frozen=True)
class StageParameters:
    """What every stage knows: how long it may take to leave."""

    __pydantic_config__ = _PYDANTIC

    save_seconds: float = _quiet(60.0)
    """Time after a stop request in which the stage saves and leaves, seconds, > 0."""
    terminate_seconds: float = _quiet(15.0)
    """Time between the group's SIGTERM and its SIGKILL, seconds, > 0."""


@dataclass(frozen=True)
class EngineParameters(StageParameters):
    """How an engine spreads a target over GPUs; the output stays the same."""

    tensor_parallel: int = _quiet(1)
    """GPUs that share each layer, >= 1."""
    expert_parallel: bool = _quiet(False)
    """Spread the experts of a mixture of experts over those GPUs instead of cutting each one."""


@dataclass(frozen=True)
class SetupParameters(StageParameters):
    """Environments of the campaign; filled from the profile's `[environments]`."""

    environments: Dict[str, Dict[str, str]] = field(default_factory=dict)
    """Environment name to {"set": requirement set} or {"python": path of an interpreter to adopt}."""


@dataclass(frozen=True)
class TargetParameters(StageParameters):
    """Which model is served; `model` and `revision` are filled from the profile's `[target]`."""

    model: str = ""
    """A path on the host, a hub id, or `demo:smollm2-135m`."""
    revision: str = ""
    """Revision of a hub id; resolved to a commit by the stage. Empty: the hub's default branch."""
    trust_remote_code: bool = False
    """Let the target's own Python code run on the host. Off unless the operator asks for it."""


@dataclass(frozen=True)
class PromptsParameters(StageParameters):
    """Which prompts are answered, and which are kept apart."""

    files: Tuple[str, ...] = _quiet(())
    """Prompt files (ShareGPT, OpenAI messages, plain JSONL), relative to the profile; they enter by content. Or data
    sets that the host reads: `hub:owner/name[@revision][:split[:column]]`."""
    published: Tuple[str, ...] = _quiet(())
    """Prompt files that training never sees, for `bench`, relative to the profile; or shipped sets by name; or data
    sets, as above."""
    limit: int = 0
    """Use at most this many training prompts, in seeded order; 0 takes all."""
    holdout: int = 48
    """Conversations kept out of training for the in-domain figure, >= 1."""
    seed: int = 17
    """Seed of the order and of the hold-out split."""
    max_characters: int = 6000
    """Prompts longer than this are dropped and counted, characters."""


@dataclass(frozen=True)
class GenerateParameters(EngineParameters):
    """How the target answers."""

    capture: bool = True
    """Dump hidden states in the same pass, where the engine can."""
    adopt: bool = False
    """Take the answers that prompt files bring; conversations without an answer to each turn are still generated."""
    max_new_tokens: int = 96
    """Longest answer, tokens."""
    temperature: float = 0.0
    """Sampling temperature; 0 is greedy."""
    keep_cut: bool = False
    """Keep answers that were cut off by `max_new_tokens` (their mask has no end-of-turn token)."""
    context: int = 2048
    """Longest prompt plus answer, tokens."""
    dtype: str = "bfloat16"
    """Dtype of the target while it generates."""
    concurrency: int = _quiet(32)
    """Requests in flight."""


@dataclass(frozen=True)
class ExtractParameters(EngineParameters):
    """Which hidden states are stored."""

    aux_layers: Tuple[int, ...] = ()
    """Canonical aux layer ids (the stream entering layer i), ascending. Empty: 2, n//2, n-3 for n layers."""
    adopt: str = ""
    """Directory on the host with `hs_*.safetensors` of these layers and the last one; rows that it lacks are made."""
    shard_bytes: int = _quiet(256 * 1024 * 1024)
    """Size at which a shard is closed, bytes."""
    free_floor_bytes: int = _quiet(1024 * 1024 * 1024)
    """Stop before the file system has less than this left, bytes."""
    concurrency: int = _quiet(16)
    """Requests in flight when states are made by prefill."""


@dataclass(frozen=True)
class VocabParameters(StageParameters):
    """The reduced vocabulary of the drafter."""

    draft_vocab_size: int = 16384
    """Entries of the draft vocabulary; at most the target's."""
    adopt: str = ""
    """Directory on the host with a drafter, flat or nested, whose draft vocabulary is taken whatever the counts say."""


@dataclass(frozen=True)
class TrainParameters(StageParameters):
    """How the drafter is trained."""

    trainer: str = _later(NATIVE)
    """`native`, or another library as it is, in the profile's environment of that name: `speculators`, `specforge`."""
    start_from: str = ""
    """Directory on the host with a drafter, flat or nested, to train on from. Empty: a fresh one, the best linear."""
    keep: str = "last"
    """Which weights become the artifact: `last`, or `best` on held-out rows; the last checkpoint is kept with both."""
    epochs: int = 3
    """Passes over the training rows, >= 1."""
    learning_rate: float = 3e-3
    """Peak learning rate; with `muon` the norms take ten times of it."""
    warmup: float = 0.03
    """Share of all steps in which the learning rate rises before it follows `schedule`. In [0, 1)."""
    schedule: str = "cosine"
    """How the learning rate goes on after the rise: `cosine` or `linear` down to zero, or `constant`."""
    optimizer: str = "muon"
    """`muon` (matrices of the layer; AdamW for the rest) or `adamw` for all; AdamW wants a lower `learning_rate`."""
    weight_decay: float = 0.05
    """Decoupled weight decay of the matrices, >= 0."""
    clip: float = 1.0
    """Largest gradient norm."""
    batch_rows: int = 2048
    """Supervised rows in an optimizer step, at least; whole conversations are packed up to it."""
    accumulation: int = _quiet(1)
    """Parts that a step's rows are cut into, one after the other in memory; the result is the same to rounding."""
    processes: int = _quiet(0)
    """Processes that share each step on one host; 0: one for each GPU, one without a GPU. The result is the same."""
    loss: str = "kl"
    """`kl` (soft labels) or `lk_hybrid` (soft labels, then overlap of the two distributions)."""
    ttt_steps: int = 3
    """Training-time-test steps, >= 1."""
    step_decay: float = 0.5
    """Weight of TTT step k is step_decay ** k, in (0, 1]: it is unrolled in that share of the optimizer steps."""
    train_head: bool = False
    """Train the head too. Off: it stays the target's own rows, which saves a third of the head's work."""
    dtype: str = "bfloat16"
    """Dtype of the matrix products; weights and moments are float32. `bfloat16` or `float32`."""
    seed: int = 0
    """Seed of initialisation and order."""
    checkpoint_seconds: float = _quiet(60.0)
    """Time between checkpoints, seconds."""
    heads: int = 0
    """Attention heads of the drafter; 0: as the target."""
    kv_heads: int = 0
    """Key and value heads of the drafter; 0: as the target."""
    head_dim: int = 0
    """Size of a head; 0: as the target."""
    intermediate_size: int = 0
    """Width of the drafter's MLP; 0: as the target."""
    norm_before_residual: bool = False
    """Norm the hidden state before the layer's residual. vLLM alone serves such a drafter right."""
    norm_before_fc: bool = False
    """One norm over all aux states before fc."""
    fc_norm: bool = False
    """One norm for each aux state before fc (EAGLE-3.1)."""
    norm_output: bool = False
    """Hand the next draft step the state after the final norm (EAGLE-3.1)."""


@dataclass(frozen=True)
class EvaluateParameters(StageParameters):
    """Acceptance in plain torch on the hold-out store."""

    depth: int = 3
    """Draft depth k, tokens."""
    bootstrap: int = 2000
    """Resamples over conversations for the interval."""


@dataclass(frozen=True)
class ExportParameters(StageParameters):
    """The drafter directories that engines read."""

    adopt: str = ""
    """Directory on the host with a finished drafter, flat or nested, which is then checked instead of trained."""
    verifier: str = ""
    """Name or path written as the nested config's verifier. Empty: the target's path on the host."""
    depth: int = 3
    """Draft depth written as the nested config's proposal, tokens."""
    dtype: str = "bfloat16"
    """Dtype of the written weights."""


@dataclass(frozen=True)
class ServeParameters(EngineParameters):
    """A running endpoint."""

    engine: str = "vllm"
    """Engine that serves, in the profile's environment of that name: `vllm`, or `sglang`, which needs a GPU."""
    layout: str = "flat"
    """Drafter directory to serve: `flat` or `nested`."""
    depth: int = 3
    """Draft depth k, tokens."""
    context: int = 2048
    """Longest prompt plus answer, tokens."""
    dtype: str = "bfloat16"
    """Dtype of the target."""
    options: Dict[str, Any] = field(default_factory=dict)
    """The engine's own options on top of the plan: a flag to its value, true (a bare flag) or false (left out)."""


@dataclass(frozen=True)
class BenchParameters(EngineParameters):
    """With and without the drafter, on prompts that training never saw."""

    engine: str = "vllm"
    """Engine that is measured, in the profile's environment of that name: `vllm`, or `sglang`, which needs a GPU."""
    layout: str = "flat"
    """Drafter directory to measure: `flat` or `nested`."""
    depth: int = 3
    """Draft depth k, tokens; shallower depths follow from the counters by position."""
    depths: Tuple[int, ...] = ()
    """More depths whose speed is measured instead of estimated, an engine start each."""
    concurrencies: Tuple[int, ...] = ()
    """Requests in flight at which speed is measured, besides 1."""
    against: Tuple[str, ...] = ()
    """What the drafter has to beat on the same prompts, an engine start each: `ngram`, `mtp` (a head that the target
    brings itself), or directories on the host with other drafters. The target alone is always measured."""
    max_new_tokens: int = 64
    """Length of each answer, tokens."""
    in_domain: int = 48
    """Hold-out prompts, at most."""
    published: int = 120
    """Published prompts, at most, taken evenly from the files."""
    long_context: int = _later(0)
    """Questions about long documents, at most, for an acceptance figure of their own: there are 24 of some 1k to 6k
    tokens, taken evenly by length. Those that do not fit into `context` with their answer are left out and told."""
    speed_prompts: int = 12
    """Prompts that are run with and without the drafter, for the speed ratio: one at a time, and in each round as many
    as are in flight, where that is measured too; at least four rounds."""
    lossless_prompts: int = 24
    """Prompts whose greedy texts are compared with and without the drafter."""
    dtype: str = "float32"
    """Dtype of the target; greedy texts are comparable in float32 only."""
    context: int = 2048
    """Longest prompt plus answer, tokens."""
    concurrency: int = 16
    """Requests in flight where acceptance, not speed, is measured."""
    raw_prompts: int = 12
    """Prompts that are asked again as raw text, without the chat template: a drafter of chats has to be worse there."""
    bootstrap: int = 2000
    """Resamples over prompts for each 95 % interval."""
    seed: int = 17
    """Seed of the prompt choice and of the bootstrap."""


@dataclass(frozen=True)
class DiagnoseParameters(StageParameters):
    """Whether the engine runs the drafter that was trained, verify step by verify step."""

    requests: int = 120
    """Requests of the bench that are replayed, at most, both prompt sets in turn, >= 1."""
    tried: int = 24
    """Requests on which drafters with one mistake are replayed, at most, >= 1."""


@dataclass(frozen=True)
class TraceParameters(EngineParameters):
    """Where a decode step's time goes, with the drafter and without it."""

    engine: str = "vllm"
    """Engine that is profiled, in the profile's environment of that name: `vllm`, or `sglang`, which needs a GPU."""
    layout: str = "flat"
    """Drafter directory to profile: `flat` or `nested`."""
    depth: int = 3
    """Draft depth k, tokens."""
    concurrency: int = 8
    """Requests in flight, all begun at once: steps with as many are profiled."""
    max_new_tokens: int = 96
    """Length of each answer, tokens; `steps` verify steps have to fit in."""
    steps: int = 20
    """Engine steps that are profiled, >= 1: some tens tell the shares, and a trace grows with each."""
    control: bool = True
    """Profile the target without the drafter, too: what speculation can win is not known without it."""
    dtype: str = "bfloat16"
    """Dtype of the target."""
    context: int = 2048
    """Longest prompt plus answer, tokens."""
