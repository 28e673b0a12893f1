"""What the real vLLM does with many drafter directories: run in its environment, ``python engine_lab.py REQUEST``.

An engine takes half a minute to import and a few seconds to start. Here one process imports and a fork of it starts for
each drafter, as many at once as there are cores. REQUEST is a JSON file ``{"target", "depth", "new_tokens", "prompts":
[[token ids]], "drafters": [dir]}``. As each ends, one line of JSON is printed: ``{"drafter", "loaded": hash of weights
in the engine, "answers": [{"prompt_tokens", "tokens", "accepted"}]}``, or ``{"drafter", "refused": the last lines of
the engine}``.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.update(
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL="WARNING",
    # One core each: an engine that binds its threads would share the first core with its neighbour.
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    OMP_WAIT_POLICY="PASSIVE",
    OMP_NUM_THREADS="1",
)

import torch  # reads its number of threads when it is imported


def loaded(worker: Any) -> str:
    """Hash of the drafter's norms, head and map as they stand in the engine.

    The embedding is the target's, and the matrices are packed on a CPU: what they hold is seen in the answers only.
    """
    weights = worker.model_runner.drafter.model.state_dict()
    digest = hashlib.sha256()
    for name in sorted(weights):
        if "embed_tokens" not in name:
            digest.update(name.encode() + weights[name].contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def served(request: dict[str, Any], drafter: str) -> dict[str, Any]:
    """Greedy answers to every prompt, with the accepted drafts of each verify step."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=request["target"],
        dtype="float32",
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=16,
        max_num_batched_tokens=512,
        enable_prefix_caching=False,
        per_request_spec_decode_metrics="detailed",
        speculative_config={"method": "eagle3", "model": drafter, "num_speculative_tokens": request["depth"]},
    )
    sampling = SamplingParams(temperature=0.0, max_tokens=request["new_tokens"])
    prompts = [{"prompt_token_ids": ids} for ids in request["prompts"]]
    found = []
    for output in llm.generate(prompts, sampling, use_tqdm=False):
        record = output.outputs[0].spec_decode_metrics
        accepted = record.per_step_accepted if record is not None else []
        found.append(
            {
                "prompt_tokens": list(output.prompt_token_ids),
                "tokens": list(output.outputs[0].token_ids),
                "accepted": list(accepted),
            }
        )
    return {"loaded": llm.collective_rpc(loaded)[0], "answers": found}


def begin(request: dict[str, Any], drafter: str, folder: Path) -> int:
    """Fork a process that serves one drafter and leaves result and log in ``folder``; its id."""
    child = os.fork()
    if child:
        return child
    handle = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    try:
        (folder / "result.json").write_text(json.dumps(served(request, drafter)))
        code = 0
    except BaseException as problem:
        print(f"{type(problem).__name__}: {problem}", flush=True)
        code = 1
    os._exit(code)


def told(status: int, drafter: str, folder: Path) -> dict[str, Any]:
    """The answers of one drafter, or the engine's last words."""
    if status == 0:
        return {"drafter": drafter, **json.loads((folder / "result.json").read_text())}
    return {"drafter": drafter, "refused": (folder / "log").read_text(errors="replace")[-2000:]}


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    import vllm.v1.engine.llm_engine
    import vllm.v1.worker.cpu_worker  # noqa: F401

    waiting, running = list(request["drafters"]), {}
    with tempfile.TemporaryDirectory() as root:
        while waiting or running:
            while waiting and len(running) < len(os.sched_getaffinity(0)):
                folder = Path(tempfile.mkdtemp(dir=root))
                drafter = waiting.pop(0)
                running[begin(request, drafter, folder)] = (drafter, folder)
            child, status = os.wait()
            print(json.dumps(told(status, *running.pop(child))), flush=True)


if __name__ == "__main__":
    main()
