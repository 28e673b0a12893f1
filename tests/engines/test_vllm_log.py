from __future__ import annotations

import pytest

from eagle3_backend.engines.vllm_log import StartLog

STARTED = [
    "(APIServer pid=7) INFO 11-29 17:33:22 [model.py:733] Resolved architecture: LlamaForCausalLM",
    "(EngineCore pid=9) INFO 11-29 17:33:37 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: …",
    "(Worker pid=10) INFO 11-29 17:33:44 [cpu_model_runner.py:68] Starting to load model /models/target...",
    "(Worker pid=10) INFO 11-29 17:33:46 [cpu_model_runner.py:75] Loading drafter model...",
    "(EngineCore pid=9) INFO 11-29 17:33:47 [kv_cache_utils.py:2327] CPU KV cache size: 38,784 tokens",
    "(APIServer pid=7) INFO 11-29 17:33:50 [launcher.py:47] Starting vLLM server on http://127.0.0.1:4711",
    "INFO:     Application startup complete.",
]
HARMLESS = [
    "(APIServer pid=7) WARNING 11-29 17:33:12 [system_utils.py:255] Found ulimit of 20000 and failed to automatically "
    "increase with error current limit exceeds maximum limit. This can cause fd limit errors like "
    "`OSError: [Errno 24] Too many open files`.",
    "(Worker pid=10) WARNING 11-29 17:33:44 [cpu_worker.py:114] libtcmalloc is not found in LD_PRELOAD.",
    "Triton is installed, but doesn't include CPU backend. Disabling Triton.",
]


def read(*lines):
    log = StartLog()
    for line in lines:
        log.feed(line)
    return log


def test_a_start_passes_through_its_phases_in_order():
    log = StartLog()
    phases = [log.phase] + [log.phase for line in STARTED if log.feed(line)]
    assert phases == ["imports", "config", "weights", "drafter_load", "kv_cache", "startup", "serving"]
    assert log.ready_marker


def test_warnings_that_name_errors_are_no_cause():
    log = read(*HARMLESS, *STARTED)
    assert not log.failed
    assert "OSError" not in log.finding(1).message


def test_a_taken_port_is_the_cause_even_after_the_marker_of_success():
    log = read(*STARTED, "ERROR:    [Errno 98] error while attempting to bind on address: address already in use")
    assert log.finding().code == "port_in_use"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("(EngineCore pid=9) ERROR 1 [core.py:1] torch.OutOfMemoryError: CUDA out of memory.", "oom_startup"),
        ("ValueError: No available memory for the cache blocks.", "oom_startup"),
        ("RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs", "target_unsupported"),
        ("ValueError: Tried to load weights of size torch.Size([576, 1152])to a parameter", "drafter_shape_mismatch"),
        ("KeyError: 'layers.0.mlp.down_proj.weight'", "quantization_inherited"),
        ("vllm: error: unrecognized arguments: --enforce-eagr", "engine_arguments_invalid"),
    ],
)
def test_known_failures_get_their_own_finding(line, code):
    finding = read(*STARTED[:3], line).finding(1)
    assert finding.code == code
    assert finding.actual in line
    assert "Phase: weights." in finding.message
    assert finding.fix


def test_the_first_cause_is_told_and_not_its_echoes():
    log = read(
        "(Worker pid=10) ERROR 1 [x.py:1] torch.OutOfMemoryError: CUDA out of memory.",
        "(EngineCore pid=9) ERROR 1 [y.py:1] vllm.v1.engine.exceptions.EngineDeadError: see above.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    )
    assert log.finding(1).code == "oom_startup"


def test_an_unknown_failure_tells_its_exception_phase_and_ending():
    finding = read(*STARTED[:2], "Traceback (most recent call last):", "ImportError: libfoo.so.1").finding(1)
    assert finding.code == "engine_failed"
    assert finding.actual == "ImportError: libfoo.so.1"
    assert "config" in finding.message
    assert "exit code 1" in finding.message


@pytest.mark.parametrize("code", [-9, 137])
def test_an_exit_above_128_is_read_as_a_signal(code):
    assert "SIGKILL" in read(STARTED[0]).finding(code).message


def test_progress_bars_and_empty_lines_change_nothing():
    log = read(*STARTED[:3], "", "Loading safetensors checkpoint shards:  50% Completed | 1/2")
    assert (log.phase, log.failed) == ("weights", False)
