from __future__ import annotations

import json
import shlex

import pytest

from eagle3_backend.engines import launch
from eagle3_backend.engines.plan import OPERATORS, Wishes, explained, options_of, overridden, shell_line
from eagle3_backend.engines.preflight import Launch, check
from eagle3_backend.engines.targets import has_own_head
from eagle3_backend.findings import FindingError


def plan(engine="sglang", **changes):
    wishes = Wishes(**{"device": "cuda", "dtype": "bfloat16", "context": 2048, **changes})
    return launch.plan_server(engine, "/envs/python", wishes)


def options(engine):
    return options_of(engine["argv"])


def drafted(engine="sglang", depth=3, **changes):
    return launch.with_drafter(plan(engine, **changes), "/drafter", depth, aux_layers=[2, 15, 27])


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_flag_and_variable_of_a_plan_has_a_reason(engine):
    whole = launch.with_measurement(
        drafted(
            engine,
            tensor_parallel=8,
            expert_parallel=True,
            pcie_only=True,
            memory_share=0.8,
            trust_remote_code=True,
        ),
        drafting=True,
    )
    whole = launch.with_profiler(whole, "/traces", 20)
    flags = [word for word in whole["argv"] if word.startswith("--")]
    assert set(whole["reasons"]) == {*flags, *whole["env"]}
    assert all(whole["reasons"].values())
    assert [row[0] for row in explained(whole)] == [*whole["env"], *flags]


@pytest.mark.parametrize("depth", [1, 3, 7])
def test_both_engines_draft_the_same_chain(depth):
    vllm, sglang = options(drafted("vllm", depth)), options(drafted("sglang", depth))
    assert vllm["--speculative-config"]["num_speculative_tokens"] == depth
    assert sglang["--speculative-num-steps"] == depth
    assert sglang["--speculative-eagle-topk"] == 1
    assert sglang["--speculative-num-draft-tokens"] == depth + 1
    assert sglang["--speculative-algorithm"] == "EAGLE3"
    assert drafted("vllm", depth)["expects"]["depth"] == drafted("sglang", depth)["expects"]["depth"] == depth


@pytest.mark.parametrize(
    ("wish", "vllm", "sglang"),
    [
        ({"context": 4096}, ("--max-model-len", 4096), ("--context-length", 4096)),
        ({"concurrency": 7}, ("--max-num-seqs", 7), ("--max-running-requests", 7)),
        ({"tensor_parallel": 8}, ("--tensor-parallel-size", 8), ("--tp-size", 8)),
        ({"tensor_parallel": 8, "expert_parallel": True}, ("--enable-expert-parallel", True), ("--ep-size", 8)),
        ({"memory_share": 0.8}, ("--gpu-memory-utilization", "0.8"), ("--mem-fraction-static", "0.8")),
        ({"trust_remote_code": True}, ("--trust-remote-code", True), ("--trust-remote-code", True)),
    ],
)
def test_a_wish_means_the_same_on_both_engines(wish, vllm, sglang):
    for engine, (flag, value) in (("vllm", vllm), ("sglang", sglang)):
        assert options(plan(engine, **wish))[flag] == value


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_gpus_without_nvlink_get_no_peer_access(engine):
    pcie = plan(engine, tensor_parallel=2, pcie_only=True)
    assert pcie["env"]["NCCL_P2P_DISABLE"] == "1"
    assert "--disable-custom-all-reduce" in pcie["argv"]
    one = plan(engine, tensor_parallel=1, pcie_only=True)
    assert "NCCL_P2P_DISABLE" not in one["env"]


def test_sglang_is_not_planned_for_a_cpu_and_captures_nothing():
    with pytest.raises(FindingError) as raised:
        plan(device="cpu")
    assert raised.value.findings[0].code == "engine_device_unsupported"
    with pytest.raises(FindingError) as raised:
        launch.with_capture(plan(), [2, 30], "/captures")
    assert raised.value.findings[0].code == "engine_capture_unsupported"


def test_the_key_comes_in_a_file_and_listens_on_loopback():
    engine = plan()
    assert options(engine)["--host"] == "127.0.0.1"
    assert options(engine)["--config"] == "{config}"
    assert engine["api_key"] == {"file": "api-key"}
    assert "--api-key" not in engine["argv"]


def test_a_plain_drafter_is_kept_from_the_targets_quantisation_and_a_quantised_one_is_not():
    flag = "--speculative-draft-model-quantization"
    assert options(drafted())[flag] == "unquant"
    assert flag not in options(launch.with_drafter(plan(), "/drafter", 3, quantised=True))


def test_either_engine_profiles_so_many_steps_into_a_directory_and_no_stacks():
    vllm = launch.with_profiler(drafted("vllm"), "/traces", 20)
    config = options_of(vllm["argv"])["--profiler-config"]
    assert (config["torch_profiler_dir"], config["max_iterations"]) == ("/traces", 20)
    assert not config["torch_profiler_with_stack"]
    assert launch.profile_request("vllm", "/traces", 20) == {}
    asked = launch.profile_request("sglang", "/traces", 20)
    assert (asked["output_dir"], asked["num_steps"], asked["with_stack"]) == ("/traces", 24, False)


def test_adding_to_a_plan_leaves_the_plain_one_as_it_was():
    engine = plan()
    before = json.dumps(engine)
    launch.with_measurement(launch.with_drafter(engine, "/drafter", 3), drafting=True)
    assert json.dumps(engine) == before


def test_a_plan_is_copied_as_a_line_that_a_shell_reads_back():
    engine = drafted("vllm")
    words = shlex.split(shell_line(engine, {"{port}": "8000", "{model}": "/models/a b"}))
    assert words[: len(engine["env"])] == [f"{name}={value}" for name, value in engine["env"].items()]
    assert "/models/a b" in words
    assert words[words.index("--port") + 1] == "8000"


def test_options_are_read_from_any_spelling_of_a_command():
    assert options_of(["serve", "m", "--a=1", "--b", "--c", "x", "y", "--d", '{"k":3}', "--e", "-1", "--f", "[x"]) == {
        "--a": 1,
        "--b": True,
        "--c": ["x", "y"],
        "--d": {"k": 3},
        "--e": -1,
        "--f": "[x",
    }


class TestWithoutADrafter:
    def test_lookup_drafts_the_same_chain_on_both_engines(self):
        vllm, sglang = (options(launch.with_ngram(plan(engine), 3)) for engine in ("vllm", "sglang"))
        assert vllm["--speculative-config"]["method"] == "ngram"
        assert vllm["--speculative-config"]["num_speculative_tokens"] == 3
        assert sglang["--speculative-algorithm"] == "NGRAM"
        assert (sglang["--speculative-num-draft-tokens"], sglang["--speculative-ngram-max-bfs-breadth"]) == (4, 1)

    def test_the_targets_own_head_drafts_the_same_chain_on_both_engines(self):
        vllm, sglang = (options(launch.with_own_head(plan(engine), 2)) for engine in ("vllm", "sglang"))
        assert vllm["--speculative-config"] == {"method": "mtp", "num_speculative_tokens": 2}
        assert (sglang["--speculative-algorithm"], sglang["--speculative-num-steps"]) == ("NEXTN", 2)
        assert sglang["--speculative-num-draft-tokens"] == 3

    @pytest.mark.parametrize("engine", ["vllm", "sglang"])
    def test_both_pass_the_preflight(self, engine):
        for made in (launch.with_ngram(plan(engine), 3), launch.with_own_head(plan(engine), 3)):
            assert check(Launch.of(made)) == []

    def test_a_target_says_whether_it_brings_a_head(self):
        assert has_own_head({"num_nextn_predict_layers": 1})
        assert has_own_head({"text_config": {"mtp_num_hidden_layers": 1}})
        assert not has_own_head({"num_nextn_predict_layers": 0, "num_hidden_layers": 4})


class TestOperatorsOwnValues:
    def test_a_value_is_replaced_where_it_stands_added_or_taken_out(self):
        engine = drafted("vllm", trust_remote_code=True)
        changed = overridden(
            engine,
            {
                "--max-num-seqs": 8,
                "--trust-remote-code": None,
                "--enforce-eager": True,
                "--served-model-name": ["a", "b"],
            },
        )
        before, after = options(engine), options(changed)
        assert (after["--max-num-seqs"], after["--enforce-eager"]) == (8, True)
        assert after["--served-model-name"] == ["a", "b"]
        assert "--trust-remote-code" not in after
        assert [*before][:2] == [*after][:2]
        assert changed["reasons"]["--max-num-seqs"] == OPERATORS
        assert "--trust-remote-code" not in changed["reasons"]
        assert options(engine) == before

    def test_a_key_of_the_speculative_config_and_a_variable_are_changed_alone(self):
        changed = overridden(drafted("vllm"), {"--speculative-config.kv_cache_dtype": "auto", "HF_HUB_OFFLINE": None})
        assert options(changed)["--speculative-config"]["kv_cache_dtype"] == "auto"
        assert options(changed)["--speculative-config"]["num_speculative_tokens"] == 3
        assert "HF_HUB_OFFLINE" not in changed["env"]
        back = overridden(changed, {"--speculative-config.kv_cache_dtype": None})
        assert options(back) == options(drafted("vllm"))
        assert overridden(changed, {"NCCL_DEBUG": "INFO"})["env"]["NCCL_DEBUG"] == "INFO"
