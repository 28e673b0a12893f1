"""Launches that would fail, hang or accept nothing. The cases of public threads are in tests/cases."""

from __future__ import annotations

import json

import pytest

from eagle3_backend.drafter.config import Packaging, drafter_for
from eagle3_backend.drafter.layouts import flat_config
from eagle3_backend.engines import launch as plans
from eagle3_backend.engines.memory import GIB, forecast
from eagle3_backend.engines.plan import Wishes
from eagle3_backend.engines.preflight import Launch, check
from eagle3_backend.engines.preflight.launch import Host

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
}
DRAFTER = flat_config(drafter_for(TARGET, (2, 16, 29), 32000), Packaging())
SPECULATIVE = {"method": "eagle3", "model": "/d", "num_speculative_tokens": 3}
TREE = {
    "--speculative-algorithm": "EAGLE3",
    "--speculative-draft-model-path": "/d",
    "--speculative-num-steps": 3,
    "--speculative-eagle-topk": 1,
    "--speculative-num-draft-tokens": 4,
}


def vllm(options=None, speculative=None, **facts):
    config = {"--speculative-config": {**SPECULATIVE, **(speculative or {})}}
    return Launch("vllm", {**config, **(options or {})}, **{"drafter": DRAFTER, "target": TARGET, **facts})


def sglang(options=None, **facts):
    values = {name: value for name, value in {**TREE, **(options or {})}.items() if value is not ...}
    return Launch("sglang", values, **{"drafter": DRAFTER, "target": TARGET, **facts})


def codes(launch):
    return {finding.code: finding.severity.value for finding in check(launch)}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("tensor_parallel", [1, 8])
def test_the_products_own_plans_pass(engine, tensor_parallel):
    wishes = Wishes("cuda", "bfloat16", 32768, tensor_parallel=tensor_parallel, pcie_only=True)
    plan = plans.with_drafter(plans.plan_server(engine, "python", wishes), "/d", 3)
    host = Host.of({"gpus": [{"memory_mib": 97887, "memory_used": 0}] * 8, "nvlink": False, "iommu_groups": 9})
    assert check(Launch.of(plan, drafter=DRAFTER, target=TARGET, host=host)) == []


@pytest.mark.parametrize(
    ("change", "code", "severity"),
    [
        ({"method": "eagle"}, "spec_algorithm_mismatch", "error"),
        ({"num_speculative_tokens": None}, "num_speculative_tokens_missing", "error"),
        ({"num_speculative_tokens": 0}, "option_value_invalid", "error"),
        ({"method": None, "model": "/data/EAGLE3/x"}, "spec_method_missing", "warning"),
        ({"method": None, "model": "/data/drafter"}, "spec_method_missing", "error"),
        ({"kv_cache_dtype": "fp8_e4m3"}, "draft_kv_fp8", "warning"),
        ({"draft_tensor_parallel_size": 2}, "draft_tp_invalid", "error"),
    ],
)
def test_vllms_speculative_config(change, code, severity):
    assert codes(vllm(speculative=change)) == {code: severity}


def test_a_drafter_cache_of_its_own_is_free_from_the_targets():
    assert codes(vllm({"--kv-cache-dtype": "fp8"})) == {"draft_kv_fp8": "warning"}
    assert codes(vllm({"--kv-cache-dtype": "fp8"}, {"kv_cache_dtype": "auto"})) == {}


def test_flags_of_their_own_write_the_speculative_config_but_not_twice():
    single = {"--spec-method": "eagle3", "--spec-model": "/d", "--spec-tokens": 3}
    assert codes(Launch("vllm", single, drafter=DRAFTER, target=TARGET)) == {}
    assert codes(Launch("vllm", {**single, "--spec-method": "eagle"}, drafter=DRAFTER, target=TARGET)) == {
        "spec_algorithm_mismatch": "error"
    }
    assert codes(vllm({"--spec-tokens": 3})) == {"option_given_twice": "error"}


def test_a_speculative_config_is_read_from_text_and_must_be_an_object():
    assert codes(vllm({"--speculative-config": json.dumps(SPECULATIVE)})) == {}
    assert codes(vllm({"--speculative-config": "{'method': 'eagle3'}"})) == {"option_value_invalid": "error"}


@pytest.mark.parametrize(
    ("change", "code", "severity"),
    [
        ({"--speculative-algorithm": "EAGLE"}, "spec_algorithm_mismatch", "error"),
        ({"--speculative-algorithm": ...}, "spec_algorithm_mismatch", "error"),
        ({"--speculative-draft-model-path": ...}, "drafter_path_missing", "error"),
        ({"--speculative-num-steps": ...}, "sglang_spec_args_incomplete", "error"),
        ({"--speculative-eagle-topk": ...}, "sglang_spec_args_incomplete", "error"),
        ({"--speculative-num-draft-tokens": 3}, "num_draft_tokens_mismatch", "warning"),
        ({"--quantization": "fp8"}, "quantization_inherited", "error"),
        ({"--kv-cache-dtype": "fp8_e5m2"}, "draft_kv_fp8", "warning"),
        (
            {
                "--speculative-eagle-topk": 4,
                "--speculative-num-draft-tokens": 16,
                "--page-size": 64,
                "--attention-backend": "fa4",
            },
            "option_value_invalid",
            "error",
        ),
    ],
)
def test_sglangs_flags(change, code, severity):
    assert codes(sglang(change)) == {code: severity}


@pytest.mark.parametrize(
    "change",
    [
        {"--speculative-num-draft-tokens": ...},
        {f"--speculative-{name}": ... for name in ("num-steps", "eagle-topk", "num-draft-tokens")},
        {"--quantization": "fp8", "--speculative-draft-model-quantization": "unquant"},
    ],
)
def test_what_sglang_completes_by_itself_is_no_fault(change):
    assert codes(sglang(change)) == {}


def test_a_target_that_no_class_drafts_for_is_told_by_the_engine():
    target = {**TARGET, "architectures": ["MambaForCausalLM"]}
    assert codes(vllm(target=target)) == {"target_unsupported": "error"}
    assert codes(vllm(target=target, version="0.31.0"))["target_unsupported"] == "warning"


def test_code_of_the_targets_own_must_be_allowed_unless_engines_know_the_model():
    own = {**TARGET, "model_type": "kimi_k2", "auto_map": {"AutoConfig": "x.Y"}}
    assert codes(vllm(target=own)) == {"trust_remote_code_missing": "error"}
    assert codes(vllm({"--trust-remote-code": True}, target=own)) == {}
    assert codes(vllm(target={**own, "model_type": "deepseek_v3"})) == {}


def test_a_context_past_the_targets_is_refused_and_an_override_told():
    found = codes(vllm({"--max-model-len": 200000}))
    assert found["context_too_long"] == "error"
    found = codes(vllm({"--max-model-len": 200000}, env={"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}))
    assert (found["context_too_long"], found["context_override_set"]) == ("warning", "warning")


class TestCapture:
    def capture(self, ids, **options):
        config = {
            "method": "extract_hidden_states",
            "num_speculative_tokens": 1,
            "draft_model_config": {"hf_config": {"eagle_aux_hidden_state_layer_ids": ids}},
        }
        transfer = {"kv_connector_extra_config": {"shared_storage_path": "/hs"}}
        values = {
            "--speculative-config": config,
            "--kv-transfer-config": transfer,
            "--no-enable-prefix-caching": True,
        }
        return Launch("vllm", {**values, **options}, target=TARGET)

    def test_the_products_own_capture_passes(self):
        plan = plans.plan_server("vllm", "python", Wishes("cuda", "bfloat16", 2048))
        assert check(Launch.of(plans.with_capture(plan, [2, 16, 29, 32], "/hs"), target=TARGET)) == []

    @pytest.mark.parametrize(
        ("ids", "code"),
        [
            ([2, 16, 29, 31], "last_hidden_layer_offset"),
            ([2, 2, 16, 32], "aux_layers_duplicate"),
            ([2, 16, 29, 33], "aux_layers_out_of_range"),
            ([], "aux_layers_missing"),
        ],
    )
    def test_ids_are_judged(self, ids, code):
        assert code in codes(self.capture(ids))

    def test_missing_files_are_told(self):
        options = {"--no-enable-prefix-caching": None, "--kv-transfer-config": {}}
        assert codes(self.capture([2, 32], **options)) == {
            "capture_directory_missing": "warning",
            "capture_prefix_cache": "warning",
        }


class TestHost:
    def gpus(self, count=2, free=97000, **facts):
        gpu = {"name": "RTX PRO 6000", "memory_total": 96 * GIB, "memory_free": free << 20}
        return Host.of({"gpus": [gpu] * count, **facts})

    def test_a_taken_port_names_its_owner(self):
        (finding,) = check(vllm({"--port": 8000}, host=Host(ports={8000: "vllm of ann (pid 7)"})))
        assert (finding.code, finding.actual) == ("port_in_use", 8000)
        assert "ann" in finding.message

    @pytest.mark.parametrize("cmdline", ["quiet iommu=pt", "amd_iommu=off"])
    def test_peer_access_is_safe_where_nothing_translates(self, cmdline):
        host = self.gpus(nvlink=False, iommu_groups=42, kernel_cmdline=cmdline)
        assert codes(vllm({"--tensor-parallel-size": 2}, host=host)) == {}

    @pytest.mark.parametrize("facts", [{"nvlink": True}, {"topology": {"0-1": "NV12"}}])
    def test_nvlink_needs_no_setting(self, facts):
        assert codes(vllm({"--tensor-parallel-size": 2}, host=self.gpus(iommu_groups=42, **facts))) == {}

    def test_pcie_behind_an_iommu_needs_one_on_either_engine(self):
        host = self.gpus(topology={"0-1": "NODE"}, iommu_groups=42)
        assert codes(vllm({"--tensor-parallel-size": 2}, host=host)) == {"p2p_allreduce_risk": "warning"}
        assert codes(sglang({"--tp-size": 2}, host=host)) == {"p2p_allreduce_risk": "warning"}
        assert codes(sglang({"--tp-size": 2}, host=host, env={"NCCL_P2P_DISABLE": "1"})) == {}

    def test_more_parts_than_gpus_or_heads_are_refused(self):
        assert codes(vllm({"--tensor-parallel-size": 4}, host=self.gpus(2)))["gpus_missing"] == "error"
        assert codes(vllm({"--tensor-parallel-size": 3}))["tensor_parallel_invalid"] == "error"

    def test_memory_that_others_hold_is_told_from_memory_that_is_not_there(self):
        assert codes(vllm(host=self.gpus(1))) == {}
        assert codes(vllm(host=self.gpus(1, free=40000))) == {"gpu_memory_taken": "error"}
        large = {**TARGET, "num_hidden_layers": 320}
        assert codes(vllm(host=self.gpus(1), target=large, drafter=None)) == {"gpu_memory_insufficient": "error"}

    def test_little_shared_memory_is_told_where_processes_share_it(self):
        host = self.gpus(2, nvlink=True, shm_free_bytes=64 << 20)
        assert codes(vllm({"--tensor-parallel-size": 2}, host=host)) == {"shared_memory_small": "warning"}
        assert codes(vllm(host=host)) == {}

    def test_a_cpu_drafts_with_a_new_vllm_only(self):
        assert codes(vllm(device="cpu")) == {}
        assert codes(vllm(device="cpu", version="0.18.1"))["engine_too_old"] == "error"
        assert codes(sglang(device="cpu"))["engine_device_unsupported"] == "error"


class TestMemory:
    def test_weights_and_cache_are_those_that_are_published(self):
        found = forecast(TARGET, None, 1, 0)
        assert found.weights == pytest.approx(16.06e9, rel=0.01)
        assert found.cache_per_token == 131072

    def test_latent_attention_keeps_one_vector_whatever_the_parallelism(self):
        target = {
            "hidden_size": 7168,
            "num_hidden_layers": 61,
            "num_attention_heads": 128,
            "kv_lora_rank": 512,
            "q_lora_rank": 1536,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "intermediate_size": 18432,
            "moe_intermediate_size": 2048,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "first_k_dense_replace": 3,
            "vocab_size": 129280,
            "quantization_config": {"quant_method": "fp8"},
        }
        one, eight = forecast(target, None, 1, 0), forecast(target, None, 8, 0)
        assert one.weights == pytest.approx(671e9, rel=0.02)
        assert one.cache_per_token == eight.cache_per_token == 61 * 576 * 2
        assert eight.weights == one.weights // 8
