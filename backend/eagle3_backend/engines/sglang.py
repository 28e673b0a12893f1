"""SGLang as a server: its launch plan, equal in meaning to vLLM's, and what is added for drafting and measuring."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence

from eagle3_backend.engines.plan import SERVED_NAME, Builder, Plan, Wishes
from eagle3_backend.findings import FindingError, error

ENGINE = "sglang"


def plan_server(python: str, wishes: Wishes) -> Dict[str, Any]:
    """The plain target server. Raises FindingError `engine_device_unsupported` for a CPU."""
    if wishes.device == "cpu":
        raise FindingError(
            error(
                "engine_device_unsupported",
                "SGLang cannot serve on a CPU from published packages: its kernels are not among them.",
                path="engine",
                expected="cuda",
                actual="cpu",
                fix="Use vLLM on this host.",
            )
        )
    plan = Builder(ENGINE, wishes.device, [python, "-m", "sglang.launch_server"])
    plan.api_key("file", "api-key")
    plan.flag("--config", "{config}", "holds the API key, which the command line would show to every user of the host")
    plan.flag("--model-path", wishes.model, "the target's directory")
    plan.flag("--served-model-name", SERVED_NAME, "requests name the target alike with and without a drafter")
    plan.flag("--dtype", wishes.dtype, "the stage's dtype parameter")
    plan.flag("--host", "127.0.0.1", "reached through the link only")
    plan.flag("--port", "{port}", "a free port, taken on the host at launch")
    plan.flag("--context-length", wishes.context, "the stage's context parameter, tokens")
    plan.flag(
        "--max-running-requests",
        wishes.concurrency,
        "requests in flight at most; left out, it is 48 with a drafter and more without",
    )
    plan.flag("--enable-metrics", None, "the metrics page exists with it only")
    if wishes.memory_share is not None:
        plan.flag("--mem-fraction-static", wishes.memory_share, "share of each GPU for weights and KV cache")
    if wishes.trust_remote_code:
        plan.flag("--trust-remote-code", None, "the profile allows the target's own Python code")
    plan.variable("HF_HUB_OFFLINE", "1", "the target lies on the host; nothing is fetched at launch")
    plan.variable("DO_NOT_TRACK", "1", "nothing is reported to anyone")
    _parallel(plan, wishes)
    return plan.plan()


def _parallel(plan: Builder, wishes: Wishes) -> None:
    if wishes.tensor_parallel > 1:
        plan.flag("--tp-size", wishes.tensor_parallel, "GPUs that share the target")
    if wishes.expert_parallel:
        plan.flag("--ep-size", wishes.tensor_parallel, "each GPU holds whole experts instead of a slice of every one")
    if wishes.tensor_parallel > 1 and wishes.pcie_only:
        plan.without_peer_access()


def with_drafter(
    engine: Plan, drafter: str, depth: int, aux_layers: Optional[Sequence[int]] = None, quantised: bool = False
) -> Dict[str, Any]:
    """The same server with an EAGLE-3 drafter that proposes a chain of ``depth`` tokens a step.

    SGLang counts the root of the draft: at top-k 1, ``depth`` steps verify ``depth`` + 1 tokens. ``aux_layers`` are not
    told by SGLang's log, so nothing is expected of it. ``quantised`` says that the drafter's own weights are.
    """
    plan = Builder.of(engine)
    plan.flag(
        "--speculative-algorithm",
        "EAGLE3",
        "EAGLE takes the same drafter, ignores its head and accepts nothing (sgl-project/sglang#21272)",
    )
    plan.flag("--speculative-draft-model-path", drafter, "the drafter in the flat layout, the only one it reads")
    _chain(plan, depth)
    if not quantised:
        plan.flag(
            "--speculative-draft-model-quantization",
            "unquant",
            "the drafter is not quantised; left out, it would be built with the target's --quantization",
        )
    plan.expect(method="eagle3", depth=depth)
    return plan.plan()


def with_ngram(engine: Plan, depth: int) -> Dict[str, Any]:
    """The same server, drafting ``depth`` tokens by looking the last ones up in what was said before: no drafter."""
    plan = Builder.of(engine)
    plan.flag("--speculative-algorithm", "NGRAM", "drafts without a drafter: what one has to beat")
    plan.flag("--speculative-num-draft-tokens", depth + 1, "the drafted tokens and the root, which SGLang counts too")
    plan.flag("--speculative-ngram-max-bfs-breadth", 1, "a chain, as vLLM drafts it, and not a tree")
    plan.expect(method="ngram")
    return plan.plan()


def with_own_head(engine: Plan, depth: int) -> Dict[str, Any]:
    """The same server, drafting with the multi-token head that the target brings itself (`targets.has_own_head`)."""
    plan = Builder.of(engine)
    plan.flag("--speculative-algorithm", "NEXTN", "the target's own head: what a drafter has to beat")
    _chain(plan, depth)
    # SGLang resolves the name to the algorithm behind it before it tells its arguments.
    plan.expect(method="eagle", depth=depth)
    return plan.plan()


def _chain(plan: Builder, depth: int) -> None:
    plan.flag("--speculative-num-steps", depth, "drafted tokens a step")
    plan.flag("--speculative-eagle-topk", 1, "a chain, as vLLM drafts it, and not a tree")
    plan.flag("--speculative-num-draft-tokens", depth + 1, "the drafted tokens and the root, which SGLang counts too")


def with_profiler(engine: Plan, directory: str, steps: int, delay: int) -> Dict[str, Any]:
    """The same server: it can always be profiled, and the request says how (`profile_request`)."""
    plan = Builder.of(engine)
    plan.variable("SGLANG_TORCH_PROFILER_DIR", directory, "where traces go that name no directory of their own")
    return plan.plan()


def profile_request(directory: str, steps: int, delay: int) -> Dict[str, Any]:
    """Body of ``/start_profile``: it stops by itself after ``delay`` + ``steps`` passes."""
    return {
        "output_dir": directory,
        "num_steps": delay + steps,
        "activities": ["CPU", "GPU"],
        "with_stack": False,
        "record_shapes": False,
    }


def with_measurement(engine: Plan, *, drafting: bool) -> Dict[str, Any]:
    """The same server, made comparable: nothing of an earlier request is reused. Each response tells its drafts anyway,
    with a drafter and without."""
    plan = Builder.of(engine)
    plan.flag("--disable-radix-cache", None, "a prompt asked twice costs the same twice")
    return plan.plan()


def with_capture(engine: Plan, layer_ids: Sequence[int], directory: str) -> Dict[str, Any]:
    """Always raises FindingError: hidden states are captured through vLLM."""
    raise FindingError(
        error(
            "engine_capture_unsupported",
            "Hidden states are captured through vLLM only.",
            path="engine",
            expected="vllm",
            actual=ENGINE,
            fix="Let generate and extract use the vllm environment; SGLang can still serve the drafter.",
        )
    )
