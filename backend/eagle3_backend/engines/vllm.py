"""vLLM as a server: its launch plan, and what is added for drafting, for capture and for measuring."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

from eagle3_backend.engines.plan import SERVED_NAME, Builder, Plan, Wishes, compact

ENGINE = "vllm"
LOOKUP, LOOKUP_MIN = 4, 2
"""Tokens that are looked up: as many as these at first, down to these."""


def plan_server(python: str, wishes: Wishes) -> Dict[str, Any]:
    """The plain target server."""
    plan = Builder(ENGINE, wishes.device, [python, "-m", "vllm.entrypoints.cli.main", "serve", wishes.model])
    plan.api_key("variable", "VLLM_API_KEY")
    plan.flag("--served-model-name", SERVED_NAME, "requests name the target alike with and without a drafter")
    plan.flag("--dtype", wishes.dtype, "the stage's dtype parameter")
    plan.flag("--host", "127.0.0.1", "reached through the link only")
    plan.flag("--port", "{port}", "a free port, taken on the host at launch")
    plan.flag("--max-model-len", wishes.context, "the stage's context parameter, tokens")
    plan.flag("--max-num-seqs", wishes.concurrency, "requests in flight at most")
    if wishes.memory_share is not None:
        plan.flag("--gpu-memory-utilization", wishes.memory_share, "share of each GPU for weights and KV cache")
    if wishes.trust_remote_code:
        plan.flag("--trust-remote-code", None, "the profile allows the target's own Python code")
    plan.variable("HF_HUB_OFFLINE", "1", "the target lies on the host; nothing is fetched at launch")
    plan.variable("VLLM_NO_USAGE_STATS", "1", "nothing is reported to anyone")
    plan.variable("DO_NOT_TRACK", "1", "nothing is reported to anyone")
    _parallel(plan, wishes)
    if wishes.device == "cpu":
        _on_cpu(plan, wishes.bulk)
    return plan.plan()


def _parallel(plan: Builder, wishes: Wishes) -> None:
    if wishes.tensor_parallel > 1:
        plan.flag("--tensor-parallel-size", wishes.tensor_parallel, "GPUs that share the target")
    if wishes.expert_parallel:
        plan.flag("--enable-expert-parallel", None, "each GPU holds whole experts instead of a slice of every one")
    if wishes.tensor_parallel > 1 and wishes.pcie_only:
        plan.without_peer_access()


def _on_cpu(plan: Builder, bulk: bool) -> None:
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


def with_capture(engine: Plan, layer_ids: Sequence[int], directory: str) -> Dict[str, Any]:
    """The same server, writing hidden states of ``layer_ids`` (canonical, ascending) below ``directory``.

    Id i is the stream that enters layer i; id n (the number of layers) is the stream before the final norm.
    """
    if list(layer_ids) != sorted(set(layer_ids)):
        raise ValueError(f"layer ids must be ascending and different, got {list(layer_ids)}")
    plan = Builder.of(engine)
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
    plan.flag("--speculative-config", compact(speculative), "the engine's own way to give hidden states out")
    plan.flag("--kv-transfer-config", compact(transfer), "the connector that writes them, one file a request")
    plan.flag("--no-enable-prefix-caching", None, "tokens found in the cache would be missing in the file")
    return plan.plan()


def with_drafter(
    engine: Plan, drafter: str, depth: int, aux_layers: Optional[Sequence[int]] = None, quantised: bool = False
) -> Dict[str, Any]:
    """The same server with an EAGLE-3 drafter that proposes ``depth`` tokens a step.

    ``aux_layers`` are the canonical ids that the drafter was trained on: the engine's log has to name them.
    ``quantised`` says that the drafter's own weights are; vLLM always goes by the drafter's own config.
    """
    plan = Builder.of(engine)
    speculative = {"method": "eagle3", "model": drafter, "num_speculative_tokens": depth}
    plan.flag(
        "--speculative-config",
        compact(speculative),
        "the method is written out: left out, it is guessed from the drafter's path",
    )
    plan.expect(method="eagle3", depth=depth)
    if aux_layers is not None:
        plan.expect(aux_layers=list(aux_layers))
    return plan.plan()


def with_ngram(engine: Plan, depth: int) -> Dict[str, Any]:
    """The same server, drafting ``depth`` tokens by looking the last ones up in what was said before: no drafter."""
    plan = Builder.of(engine)
    speculative = {
        "method": "ngram",
        "num_speculative_tokens": depth,
        "prompt_lookup_max": LOOKUP,
        "prompt_lookup_min": LOOKUP_MIN,
    }
    plan.flag("--speculative-config", compact(speculative), "drafts without a drafter: what one has to beat")
    plan.expect(method="ngram", depth=depth)
    return plan.plan()


def with_own_head(engine: Plan, depth: int) -> Dict[str, Any]:
    """The same server, drafting with the multi-token head that the target brings itself (`targets.has_own_head`)."""
    plan = Builder.of(engine)
    speculative = {"method": "mtp", "num_speculative_tokens": depth}
    plan.flag("--speculative-config", compact(speculative), "the target's own head: what a drafter has to beat")
    plan.expect(method="mtp", depth=depth)
    return plan.plan()


def with_profiler(engine: Plan, directory: str, steps: int, delay: int) -> Dict[str, Any]:
    """The same server, able to profile ``steps`` engine steps into ``directory``, ``delay`` steps after it is asked to.

    Only with the flag do ``/start_profile`` and ``/stop_profile`` exist.
    """
    plan = Builder.of(engine)
    config = {
        "profiler": "torch",
        "torch_profiler_dir": directory,
        "torch_profiler_with_stack": False,
        "ignore_frontend": True,
        "delay_iterations": delay,
        "max_iterations": steps,
    }
    plan.flag("--profiler-config", compact(config), "the engine's own profiler, a few steps of the model alone")
    plan.variable("VLLM_CUSTOM_SCOPES_FOR_PROFILING", "1", "sampler and drafter are marked in the trace")
    return plan.plan()


def profile_request(directory: str, steps: int, delay: int) -> Dict[str, Any]:
    """Body of ``/start_profile``: everything was said at launch."""
    return {}


def with_measurement(engine: Plan, *, drafting: bool) -> Dict[str, Any]:
    """The same server, made comparable: nothing of an earlier request is reused, and each answer tells its drafts."""
    plan = Builder.of(engine)
    plan.flag("--no-enable-prefix-caching", None, "a prompt asked twice costs the same twice")
    if drafting:
        plan.flag("--per-request-spec-decode-metrics", "detailed", "accepted tokens of every step of every request")
    return plan.plan()
