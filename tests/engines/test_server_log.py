from __future__ import annotations

import pytest

from eagle3_backend.engines.server_log import Probe, ServerLog

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
    log = ServerLog()
    for line in lines:
        log.feed(line)
    return log


def test_a_start_passes_through_its_phases_in_order():
    log = ServerLog()
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
        ("ValueError: Free memory on device cuda:0 (3.1/79.1 GiB) on startup is less than desired", "oom_startup"),
        ("RuntimeError: Engine: spec decode is not supported.", "engine_too_old"),
        ("safetensors_rust.SafetensorError: Error while deserializing header", "weights_unreadable"),
        ("OSError: [Errno 28] No space left on device", "disk_full"),
        ("  Value error, draft_tensor_parallel_size=2 cannot be other value than 1 or target", "draft_tp_invalid"),
        ("vllm: error: unrecognized arguments: --enforce-eagr", "engine_arguments_invalid"),
    ],
)
def test_known_failures_get_their_own_finding(line, code):
    finding = read(*STARTED[:3], line).finding(1)
    assert finding.code == code
    assert str(finding.actual) in line
    assert "Phase: weights." in finding.message
    assert finding.fix


def test_the_first_cause_is_told_and_not_its_echoes():
    log = read(
        "(Worker pid=10) ERROR 1 [x.py:1] torch.OutOfMemoryError: CUDA out of memory.",
        "(EngineCore pid=9) ERROR 1 [y.py:1] vllm.v1.engine.exceptions.EngineDeadError: see above.",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    )
    assert log.finding(1).code == "oom_startup"


def test_a_request_that_ends_the_sampler_is_named_before_its_echo():
    log = read(
        *STARTED,
        "(EngineCore pid=9) ERROR 11-30 05:08:26 [core.py:1512] EngineCore encountered a fatal error.",
        "(EngineCore pid=9) ERROR 11-30 05:08:26 [core.py:1512] Traceback (most recent call last):",
        "(EngineCore pid=9) ERROR 11-30 05:08:26 [core.py:1512]     max_top_k = k.max()",
        "(EngineCore pid=9) ERROR 11-30 05:08:26 [core.py:1512] RuntimeError: max(): Expected reduction dim to be "
        "specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument.",
        "(APIServer pid=8) ERROR 11-30 05:08:26 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: see",
    )
    finding = log.finding(1)
    assert finding.code == "sampling_unsupported" and "top_k" in finding.fix


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


def read_sglang(text):
    log = ServerLog("sglang")
    log.feed_bytes(text.encode())
    log.close()
    return log


SGLANG = """[2026-02-03 14:00:01] server_args=ServerArgs(model_path='m')
[2026-02-03 14:00:11 TP0] Load weight begin. avail mem=139.00 GB
[2026-02-03 14:00:31 TP0] Load weight end. elapsed=20.0 s, type=LlamaForCausalLM, avail mem=21.40 GB, mem usage=1 GB.
[2026-02-03 14:01:02 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 412800
[2026-02-03 14:01:10 TP0] Capture target verify CUDA graph begin. backend=full, avail mem=3.00 GB
[2026-02-03 14:01:11 TP0] Load weight begin. avail mem=2.00 GB
[2026-02-03 14:01:20 TP0] Capture draft decode CUDA graph begin. backend=full, avail mem=1.62 GB
INFO:     Application startup complete.
INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)
[2026-02-03 14:01:30] The server is fired up and ready to roll!
"""


def test_an_sglang_start_passes_through_its_phases():
    log = ServerLog("sglang")
    phases = log.feed_bytes(SGLANG.encode())
    assert phases == [
        "config", "weights", "kv_cache", "graphs", "drafter_load", "draft_cuda_graph", "startup", "serving",
    ]  # fmt: skip
    assert log.ready_marker


def test_uvicorns_word_of_success_is_not_sglangs():
    log = read_sglang("INFO:     Application startup complete.\n")
    assert not log.ready_marker


@pytest.mark.parametrize(
    ("phase", "word"), [(2, "--tp-size"), (5, "--mem-fraction-static"), (7, "--mem-fraction-static")]
)
def test_the_advice_against_full_memory_fits_the_phase_and_the_engine(phase, word):
    log = read_sglang("\n".join(SGLANG.splitlines()[:phase]) + "\ntorch.OutOfMemoryError: CUDA out of memory.")
    assert log.finding().code == "oom_startup"
    assert word in log.finding().fix


def test_full_memory_while_serving_is_not_called_a_failed_start():
    log = read_sglang(SGLANG + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 MiB\n")
    assert log.finding().code == "oom_serving"


def test_a_drafter_with_a_short_position_table_is_told_with_both_numbers():
    finding = read_sglang(
        "ValueError: Warning: Target model's context_length (32768) is greater than the derived context_length (2048). "
    ).finding()
    assert (finding.code, finding.expected, finding.actual) == ("max_position_too_short", 32768, 2048)


def test_a_prompt_that_quotes_a_failure_is_no_failure():
    log = read(*STARTED, "(APIServer pid=7) INFO 11-29 17:33:50 [logger.py:1] prompt: 'CUDA out of memory'")
    assert not log.failed
    bad = "1 validation error for ChatCompletionRequest"
    assert not read(*STARTED, f"(APIServer pid=7) ERROR 11-29 17:33:50 [x.py:1] {bad}").failed


def test_a_key_error_is_the_drafters_only_while_the_drafter_loads():
    line = "(Worker pid=1) ERROR 1 [x.py:1] KeyError: 'layers.0.mlp.down_proj.weight'"
    assert read(*STARTED[:4], line).finding().code == "quantization_inherited"
    assert read(*STARTED[:3], line).finding().code == "engine_failed"


def test_a_heading_gives_way_to_its_details():
    heading = "pydantic_core._pydantic_core.ValidationError: 1 validation error for SpeculativeConfig"
    log = read(heading, "metod", "  Unexpected keyword argument [type=unexpected_keyword_argument]")
    assert not log.failed
    assert log.finding(1).code == "engine_arguments_invalid"
    assert "metod Unexpected keyword" in log.finding(1).message
    better = read(heading, "  Value error, draft_tensor_parallel_size=2 cannot be other value than 1")
    assert better.finding(1).code == "draft_tp_invalid"


class TestDiagnosis:
    def test_a_marker_alone_is_not_ready(self):
        assert read(*STARTED).diagnose().state == "starting"

    def test_the_right_model_behind_the_marker_is(self):
        diagnosis = read(*STARTED).diagnose(probe=Probe(200, "target"), served_model="target")
        assert (diagnosis.state, diagnosis.ready, diagnosis.findings) == ("ready", True, ())

    def test_a_foreign_server_on_the_port_is_told(self):
        diagnosis = read(*STARTED).diagnose(probe=Probe(200, "other"), served_model="target", port=8000)
        assert (diagnosis.state, diagnosis.ready) == ("starting", False)
        assert [(finding.code, finding.actual) for finding in diagnosis.findings] == [("port_in_use", 8000)]

    def test_slow_is_told_from_hung_by_the_budget_of_the_phase(self):
        log = read(*STARTED[:3])
        assert log.diagnose(silence=300).state == "starting"
        assert log.diagnose(silence=700).state == "hung"

    def test_large_weights_may_take_their_time_and_an_idle_server_all_of_it(self):
        log = read(*STARTED[:3])
        assert log.diagnose(silence=2000, weights_bytes=600_000_000_000).state == "starting"
        assert log.diagnose(silence=4000, weights_bytes=600_000_000_000).state == "hung"
        assert read(*STARTED).diagnose(silence=90000).state == "starting"

    def test_busy_gpus_behind_silence_are_a_collective(self):
        finding = read(*STARTED[:3]).diagnose(silence=1900, gpus=[100, 99]).findings[0]
        assert (finding.code, finding.severity.value) == ("startup_hang", "warning")
        assert "31 minutes" in finding.message
        assert "NCCL_P2P_DISABLE" in finding.fix

    def test_a_log_that_ends_in_an_echo_or_an_exception_has_failed(self):
        assert (
            read("RuntimeError: Engine core initialization failed. See root cause above.").diagnose().state == "failed"
        )
        assert read("ImportError: libcuda.so.1").diagnose().state == "failed"

    def test_an_exception_that_a_later_phase_outlives_is_no_failure(self):
        assert read(STARTED[0], "ImportError: optional thing", *STARTED[1:3]).diagnose().state == "starting"

    def test_an_exit_by_sigbus_is_named(self):
        assert read(STARTED[0]).diagnose(exit_code=-7).findings[0].code == "exit_sigbus"
