from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_backend.engines.server_log import ServerLog
from eagle3_backend.engines.taken import check_taken

EXPECTS = {"method": "eagle3", "depth": 3, "aux_layers": [2, 15, 27]}


def facts_of(text, engine="vllm"):
    log = ServerLog(engine)
    log.feed_bytes(text.encode())
    log.close()
    return log.facts


def vllm(method="eagle3", depth=3, aux="Using auxiliary layers from speculative config: (2, 15, 27)"):
    return facts_of(
        "(APIServer pid=1) INFO 11-29 19:48:27 [model.py:733] Resolved architecture: LlamaForCausalLM\n"
        "(APIServer pid=1) INFO 11-29 19:48:27 [model.py:733] Resolved architecture: LlamaForCausalLMEagle3\n"
        "(EngineCore pid=2) INFO 11-29 19:48:38 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
        f"speculative_config=SpeculativeConfig(method='{method}', model='/d', num_spec_tokens={depth}), tokenizer='t'\n"
        f"(EngineCore pid=2) INFO 11-29 19:48:43 [gpu_model_runner.py:5243] {aux}\n"
        "(EngineCore pid=2) INFO 11-29 19:48:43 [kv_cache_utils.py:2327] CPU KV cache size: 45,056 tokens\n"
    )


def test_the_log_tells_what_was_taken():
    facts = vllm()
    assert facts["architectures"] == ["LlamaForCausalLM", "LlamaForCausalLMEagle3"]
    assert (facts["method"], facts["depth"], facts["aux_layers"]) == ("eagle3", 3, [2, 15, 27])
    assert facts["cache_tokens"] == 45056
    assert check_taken(EXPECTS, facts) == []


@pytest.mark.parametrize(
    ("facts", "path"),
    [
        (vllm(method="eagle"), "method"),
        (vllm(depth=2), "depth"),
        (vllm(aux="Using Eagle3 auxiliary layers from model: (2, 15, 28)"), "aux_layers"),
        ({"depth": 3, "aux_layers": [2, 15, 27]}, "method"),
    ],
)
def test_anything_else_is_an_error(facts, path):
    (finding,) = check_taken(EXPECTS, facts)
    assert (finding.code, finding.path, finding.severity.value) == ("plan_not_taken", path, "error")


def test_silence_about_aux_layers_is_a_warning():
    (finding,) = check_taken(EXPECTS, vllm(aux="nothing"))
    assert (finding.code, finding.severity.value) == ("aux_layers_not_told", "warning")


@pytest.mark.parametrize(
    "told",
    [
        "{'model_path': 'm', 'speculative_algorithm': 'EAGLE3', 'speculative_num_steps': 3}",
        "ServerArgs(model_path='m', speculative_algorithm='EAGLE3', speculative_num_steps=3)",
    ],
)
def test_sglang_tells_method_and_depth_in_either_form(told):
    facts = facts_of(f"[2026-02-03 14:00:01] server_args={told}\n", "sglang")
    assert check_taken({"method": "eagle3", "depth": 3}, facts) == []


def test_a_start_of_vllm_on_a_cpu_is_read_as_recorded():
    log = ServerLog()
    phases = log.feed_bytes((Path(__file__).parent / "vllm-0.32.0-start.log").read_bytes())
    assert phases == ["config", "weights", "drafter_load", "kv_cache", "startup", "serving"]
    assert (log.failed, log.ready_marker) == (False, True)
    assert log.diagnose().findings == ()
    assert log.facts["own_head"] is True
    assert check_taken(EXPECTS, log.facts) == []
