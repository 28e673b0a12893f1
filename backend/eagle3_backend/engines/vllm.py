"""vLLM as a server: the launch plan with a reason for every value, and what is added for drafting and for capture.

A plan is plain JSON: ``{"engine", "device", "argv", "env", "reasons"}``. It is made on the laptop before the host is
touched, so some values stay open and are filled in on the host: ``{model}``, ``{port}``, ``{cores}``, ``{cores-1}``
(one at least) and the API key.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping, Optional, Sequence

SERVED_NAME = "target"
"""The model name that requests use, with and without a drafter."""

READY_MARKER = "Application startup complete."
"""Necessary for a started server, never sufficient: a failed bind is logged after it."""


class _Plan:
    """Collects flags and variables with the reason for each."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], reasons: Mapping[str, str]) -> None:
        self.argv: List[str] = list(argv)
        self.env: Dict[str, str] = dict(env)
        self.reasons: Dict[str, str] = dict(reasons)

    def flag(self, name: str, value: Optional[object], reason: str) -> None:
        """Add ``name value``, or the bare flag for None."""
        self.argv += [name] if value is None else [name, str(value)]
        self.reasons[name] = reason

    def variable(self, name: str, value: str, reason: str) -> None:
        self.env[name] = value
        self.reasons[name] = reason


def plan_server(
    python: str,
    *,
    device: str,
    dtype: str,
    context: int,
    model: str = "{model}",
    concurrency: int = 32,
    tensor_parallel: int = 1,
    expert_parallel: bool = False,
    pcie_only: bool = False,
    trust_remote_code: bool = False,
    bulk: bool = False,
) -> Dict[str, Any]:
    """The plain target server.

    ``device`` is ``cpu`` or ``cuda``; ``context`` the longest prompt plus answer, tokens; ``concurrency`` the most
    requests in flight. ``pcie_only`` says that the GPUs have no NVLink. ``bulk`` is for offline work (generate,
    extract), where throughput alone counts.
    """
    plan = _Plan([python, "-m", "vllm.entrypoints.cli.main", "serve", model], {}, {})
    plan.flag("--served-model-name", SERVED_NAME, "requests name the target alike with and without a drafter")
    plan.flag("--dtype", dtype, "the stage's dtype parameter")
    plan.flag("--host", "127.0.0.1", "reached through the link only")
    plan.flag("--port", "{port}", "a free port, taken on the host at launch")
    plan.flag("--max-model-len", context, "the stage's context parameter, tokens")
    plan.flag("--max-num-seqs", concurrency, "requests in flight at most")
    if tensor_parallel > 1:
        plan.flag("--tensor-parallel-size", tensor_parallel, "GPUs that share the target")
    if tensor_parallel > 1 and pcie_only:
        plan.flag("--disable-custom-all-reduce", None, "its peer access can hang over PCIe (vllm-project/vllm#51513)")
    if expert_parallel:
        plan.flag("--enable-expert-parallel", None, "each GPU holds whole experts instead of a slice of every one")
    if trust_remote_code:
        plan.flag("--trust-remote-code", None, "the profile allows the target's own Python code")
    plan.variable("HF_HUB_OFFLINE", "1", "the target lies on the host; nothing is fetched at launch")
    plan.variable("VLLM_NO_USAGE_STATS", "1", "nothing is reported to anyone")
    plan.variable("DO_NOT_TRACK", "1", "nothing is reported to anyone")
    if device == "cpu":
        plan.flag("--enforce-eager", None, "compilation takes over a minute of every start on a CPU")
        plan.variable("VLLM_CPU_KVCACHE_SPACE", "1", "GiB of KV cache: some 46,000 tokens of the demo target")
        # With a worker process of its own, the engine core polls for its answers and so takes a core from it: on two
        # busy cores that more than doubled the CPU time of a token, and every start by a quarter.
        plan.variable("VLLM_ENABLE_V1_MULTIPROCESSING", "0", "core and worker in one process: neither polls the other")
        plan.variable("OMP_WAIT_POLICY", "PASSIVE", "threads that wait for each other sleep, on shared cores too")
        if bulk:
            plan.variable("OMP_NUM_THREADS", "{cores}", "bulk work computes on every core")
        else:
            plan.variable("OMP_NUM_THREADS", "{cores-1}", "a core stays free for the server's own process")
    return _as_json(plan, device)


def with_capture(engine: Mapping[str, Any], layer_ids: Sequence[int], directory: str) -> Dict[str, Any]:
    """The same server, writing hidden states of ``layer_ids`` (canonical, ascending) below ``directory``.

    Id i is the stream that enters layer i; id n (the number of layers) is the stream before the final norm.
    """
    if list(layer_ids) != sorted(set(layer_ids)):
        raise ValueError(f"layer ids must be ascending and different, got {list(layer_ids)}")
    plan = _Plan(engine["argv"], engine["env"], engine["reasons"])
    speculative = {
        "method": "extract_hidden_states",
        "num_speculative_tokens": 1,
        "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": list(layer_ids)}},
    }
    transfer: Dict[str, Any] = {
        "kv_connector": "ExampleHiddenStatesConnector",
        "kv_role": "kv_producer",
        "kv_connector_extra_config": {"shared_storage_path": directory},
    }
    if engine["device"] == "cpu":
        transfer["kv_connector"] = "CaptureConnector"
        transfer["kv_connector_module_path"] = "eagle3_backend.stages.capture_connector"
    plan.flag("--speculative-config", _compact(speculative), "the engine's own way to give hidden states out")
    plan.flag("--kv-transfer-config", _compact(transfer), "the connector that writes them, one file a request")
    plan.flag("--no-enable-prefix-caching", None, "tokens found in the cache would be missing in the file")
    return _as_json(plan, engine["device"])


def with_drafter(engine: Mapping[str, Any], drafter: str, depth: int) -> Dict[str, Any]:
    """The same server with an EAGLE-3 drafter that proposes ``depth`` tokens a step."""
    plan = _Plan(engine["argv"], engine["env"], engine["reasons"])
    speculative = {"method": "eagle3", "model": drafter, "num_speculative_tokens": depth}
    plan.flag(
        "--speculative-config",
        _compact(speculative),
        "the method is written out: left out, it is guessed from the drafter's path",
    )
    return _as_json(plan, engine["device"])


def with_measurement(engine: Mapping[str, Any], *, drafting: bool) -> Dict[str, Any]:
    """The same server, made comparable: nothing of an earlier request is reused, and each answer tells its drafts."""
    plan = _Plan(engine["argv"], engine["env"], engine["reasons"])
    plan.flag("--no-enable-prefix-caching", None, "a prompt asked twice costs the same twice")
    if drafting:
        plan.flag("--per-request-spec-decode-metrics", "detailed", "accepted tokens of every step of every request")
    return _as_json(plan, engine["device"])


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _as_json(plan: _Plan, device: str) -> Dict[str, Any]:
    return {"engine": "vllm", "device": device, "argv": plan.argv, "env": plan.env, "reasons": plan.reasons}
