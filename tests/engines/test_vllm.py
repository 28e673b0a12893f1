from __future__ import annotations

import json

import pytest

from eagle3_backend.engines.plan import Wishes
from eagle3_backend.engines.targets import engines_for
from eagle3_backend.engines.vllm import plan_server, with_capture, with_drafter


def plan(**changes):
    values = {"device": "cpu", "dtype": "bfloat16", "context": 2048, **changes}
    return plan_server("/envs/vllm/bin/python", Wishes(**values))


def option(engine, flag):
    return engine["argv"][engine["argv"].index(flag) + 1]


def test_every_flag_and_variable_of_a_plan_has_a_reason():
    engine = with_drafter(plan(), "/drafter", 3)
    flags = [word for word in engine["argv"] if word.startswith("--")]
    assert set(engine["reasons"]) == {*flags, *engine["env"]}
    assert all(engine["reasons"].values())


def test_a_plan_is_json_and_leaves_open_what_only_the_host_knows():
    engine = json.loads(json.dumps(plan(bulk=True)))
    assert option(engine, "--port") == "{port}"
    assert "{model}" in engine["argv"]
    assert engine["env"]["OMP_NUM_THREADS"] == "{cores}"


def test_a_server_listens_on_loopback_only_and_carries_no_key():
    engine = plan()
    assert option(engine, "--host") == "127.0.0.1"
    assert not any("key" in word.lower() for word in (*engine["argv"], *engine["env"]))


def test_a_serving_engine_leaves_a_core_for_its_own_server_and_bulk_work_takes_all():
    assert plan()["env"]["OMP_NUM_THREADS"] == "{cores-1}"
    assert plan(bulk=True)["env"]["OMP_NUM_THREADS"] == "{cores}"


def test_cpu_settings_stay_off_a_gpu():
    engine = plan(device="cuda", tensor_parallel=8)
    assert "--enforce-eager" not in engine["argv"]
    assert not any(name.startswith(("OMP_", "VLLM_CPU_")) for name in engine["env"])
    assert option(engine, "--tensor-parallel-size") == "8"


def test_a_drafter_is_named_with_its_method_whatever_its_path_says():
    speculative = json.loads(option(with_drafter(plan(), "/runs/eagle-run-07", 2), "--speculative-config"))
    assert speculative == {"method": "eagle3", "model": "/runs/eagle-run-07", "num_speculative_tokens": 2}


def test_capture_takes_the_wanted_layers_and_never_answers_from_the_prefix_cache():
    engine = with_capture(plan(), [2, 15, 27, 30], "/captures")
    speculative = json.loads(option(engine, "--speculative-config"))
    assert speculative["draft_model_config"]["hf_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 15, 27, 30]
    assert speculative["num_speculative_tokens"] == 1
    assert "--no-enable-prefix-caching" in engine["argv"]


def test_captures_go_to_the_directory_of_the_stage_and_clients_may_not_choose_another():
    transfer = json.loads(option(with_capture(plan(), [2, 30], "/captures"), "--kv-transfer-config"))
    assert transfer["kv_connector_extra_config"] == {"shared_storage_path": "/captures"}


def test_only_a_cpu_engine_gets_the_connector_of_this_product():
    on_cpu = json.loads(option(with_capture(plan(), [2], "/c"), "--kv-transfer-config"))
    on_gpu = json.loads(option(with_capture(plan(device="cuda"), [2], "/c"), "--kv-transfer-config"))
    assert on_cpu["kv_connector_module_path"] == "eagle3_backend.stages.capture_connector"
    assert on_gpu["kv_connector"] == "ExampleHiddenStatesConnector"
    assert "kv_connector_module_path" not in on_gpu


@pytest.mark.parametrize("layer_ids", [[15, 2, 27], [2, 2, 27]])
def test_layers_that_the_engine_would_reorder_or_merge_are_refused(layer_ids):
    with pytest.raises(ValueError, match="ascending"):
        with_capture(plan(), layer_ids, "/captures")


def test_adding_to_a_plan_leaves_the_plain_one_as_it_was():
    engine = plan()
    before = json.dumps(engine)
    with_drafter(engine, "/drafter", 3)
    with_capture(engine, [2, 30], "/captures")
    assert json.dumps(engine) == before


def test_known_targets_are_told_from_unknown_ones():
    assert engines_for("LlamaForCausalLM") == {"vllm": True, "sglang": True}
    assert engines_for("KimiK25ForConditionalGeneration") == {"vllm": True, "sglang": True}
    assert engines_for("MambaForCausalLM") == {"vllm": False, "sglang": False}
