"""From a plan to specs: environments, devices, engines, GPUs, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.control.chain import Ground, build_chain, demote, stages_to_run
from eagle3_backend.control.snapshot import Gpu, Machine
from eagle3_backend.findings import FindingError, Severity, error, warning
from eagle3_backend.pipeline.environments import python_of
from eagle3_backend.pipeline.plan import plan_campaign
from eagle3_backend.pipeline.stages import STAGES, needed

BUILT = {"train": {"set": "train-cpu"}, "vllm": {"set": "vllm-cpu"}}
ADOPTED = {"train": {"python": "/opt/train/bin/python"}, "vllm": {"python": "/opt/vllm/bin/python"}}
GPUS = tuple(Gpu(index, "H200", 0.0, 0, 1, 30.0, 70.0, f"GPU-{index}") for index in range(4))


def parameters_with(environments, **stages):
    parameters = {name: stage.parameters() for name, stage in STAGES.items()}
    parameters["setup"] = replace(parameters["setup"], environments=environments)
    return {name: replace(values, **stages.get(name, {})) for name, values in parameters.items()}


def chain(environments, gpus=(), accepted=(), through="bench", pcie_only=False, busy=(), **stages):
    parameters = parameters_with(environments, **stages)
    plan = plan_campaign("demo", "/w", parameters, {})
    ground = Ground("/agent/python", "hash", Machine(gpus=gpus), pcie_only, frozenset(busy))
    works = dict.fromkeys(STAGES, 1.0)
    spec = build_chain([plan.stages[name] for name in needed(through)], plan, parameters, ground, accepted, works)
    return {entry["stage"]: entry for entry in (spec, *spec["then"])}


def codes(act):
    with pytest.raises(FindingError) as problem:
        act()
    return [finding.code for finding in problem.value.findings]


def test_each_stage_runs_with_the_interpreter_of_its_environment():
    specs = chain(BUILT)
    assert specs["setup"]["argv"][0] == "/agent/python"
    assert specs["vocab"]["argv"][0] == python_of("train", BUILT["train"], "/w")
    assert specs["generate"]["argv"][0] == python_of("vllm", BUILT["vllm"], "/w")
    assert chain(ADOPTED)["generate"]["argv"][0] == "/opt/vllm/bin/python"


def test_the_first_spec_carries_the_others_in_pipeline_order():
    assert list(chain(BUILT)) == list(needed("bench"))
    assert all("then" not in entry for entry in list(chain(BUILT).values())[1:])


def test_only_stages_with_an_engine_get_its_plan_for_their_own_shape():
    specs = chain(BUILT, generate={"dtype": "float16", "context": 512, "concurrency": 5}, bench={"context": 777})
    assert specs["train"]["engine"] is None
    argv = specs["generate"]["engine"]["argv"]
    assert argv[argv.index("--dtype") + 1] == "float16" and argv[argv.index("--max-num-seqs") + 1] == "5"
    extract = specs["extract"]["engine"]["argv"]
    assert extract[extract.index("--max-model-len") + 1] == "512" and extract[extract.index("--dtype") + 1] == "float16"
    busy = chain(BUILT, bench={"concurrencies": (4, 64)})["bench"]["engine"]["argv"]
    assert busy[busy.index("--max-num-seqs") + 1] == "64"
    bench = specs["bench"]["engine"]["argv"]
    assert bench[bench.index("--max-model-len") + 1] == "777" and "{port}" in bench


def test_how_gpus_share_a_target_and_whose_code_may_run_reach_the_engine():
    spread = {"tensor_parallel": 4, "expert_parallel": True}
    trusting = {"target": {"trust_remote_code": True}}
    argv = chain(ADOPTED, GPUS, pcie_only=True, bench=spread, **trusting)["bench"]["engine"]["argv"]
    assert {"--enable-expert-parallel", "--disable-custom-all-reduce", "--trust-remote-code"} <= set(argv)
    plain = chain(ADOPTED, GPUS)["bench"]["engine"]["argv"]
    assert not {"--enable-expert-parallel", "--disable-custom-all-reduce", "--trust-remote-code"} & set(plain)


def test_serve_and_bench_run_the_engine_that_is_chosen_in_its_own_environment():
    environments = {**ADOPTED, "sglang": {"python": "/opt/sglang/bin/python"}}
    specs = chain(environments, GPUS, bench={"engine": "sglang", "context": 777})
    assert (specs["bench"]["environment"], specs["generate"]["environment"]) == ("sglang", "vllm")
    assert specs["bench"]["argv"][0] == "/opt/sglang/bin/python"
    plan = specs["bench"]["engine"]
    assert plan["engine"] == "sglang" and plan["argv"][plan["argv"].index("--context-length") + 1] == "777"
    assert specs["generate"]["engine"]["engine"] == "vllm"
    assert chain(environments, GPUS)["bench"]["fingerprint"] != specs["bench"]["fingerprint"]


def test_a_chosen_engine_without_an_environment_or_without_a_gpu_is_refused():
    assert codes(lambda: chain(ADOPTED, GPUS, bench={"engine": "sglang"})) == ["environment_missing"]
    built = {**BUILT, "sglang": {"python": "/opt/sglang/bin/python"}}
    assert codes(lambda: chain(built, bench={"engine": "sglang"})) == ["engine_device_unsupported"]


def test_another_librarys_trainer_runs_in_its_own_environment():
    adopted = {**ADOPTED, "speculators": {"python": "/opt/speculators/bin/python"}}
    spec = chain(adopted, train={"trainer": "speculators"})["train"]
    assert (spec["environment"], spec["argv"][0]) == ("speculators", "/opt/speculators/bin/python")
    assert chain(adopted, train={"trainer": "speculators"})["export"]["environment"] == "train"
    assert chain(adopted)["train"]["environment"] == "train"


def test_another_librarys_trainer_without_an_environment_or_without_a_gpu_is_refused():
    chosen = {"trainer": "specforge"}
    assert codes(lambda: chain(ADOPTED, GPUS, train=chosen)) == ["environment_missing"]
    built = {**BUILT, "specforge": {"set": "specforge-cuda"}}
    assert codes(lambda: chain(built, train=chosen)) == ["trainer_needs_gpu"]
    assert chain(built, GPUS, train=chosen)["train"]["environment"] == "specforge"


def test_an_adopted_environment_computes_where_the_host_does():
    assert chain(ADOPTED)["generate"]["engine"]["device"] == "cpu"
    assert chain(ADOPTED, GPUS)["generate"]["engine"]["device"] == "cuda"
    assert chain(BUILT, GPUS)["generate"]["engine"]["device"] == "cpu"


def test_gpus_are_named_for_locks_and_for_the_process():
    specs = chain(ADOPTED, GPUS, bench={"tensor_parallel": 2})
    assert specs["bench"]["gpus"] == ["GPU-0", "GPU-1"]
    assert specs["bench"]["env"] == {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1"}
    assert "gpus" not in specs["vocab"] and "gpus" not in chain(ADOPTED)["bench"]


def test_a_training_takes_every_idle_gpu_or_one_for_each_of_its_processes():
    uuids = [gpu.uuid for gpu in GPUS]
    assert chain(ADOPTED, GPUS)["train"]["gpus"] == uuids
    assert chain(ADOPTED, GPUS, train={"processes": 2})["train"]["gpus"] == uuids[:2]
    assert chain(ADOPTED, GPUS, busy=uuids[:1])["train"]["gpus"] == uuids[1:]
    assert chain(ADOPTED, GPUS, busy=uuids)["train"]["gpus"] == uuids[:1]


def test_accepted_codes_and_who_accepted_them_travel_with_every_spec():
    specs = chain(BUILT, accepted=("port_in_use",))
    assert {tuple(spec["accepted"]) for spec in specs.values()} == {("port_in_use",)}
    assert all(" on " in spec["accepted_by"] for spec in specs.values())
    assert "accepted_by" not in chain(BUILT)["setup"]


def test_a_missing_environment_and_an_unknown_set_are_findings():
    assert codes(lambda: chain({"train": BUILT["train"]})) == ["environment_missing"]
    assert codes(lambda: chain({**BUILT, "vllm": {"set": "vllm-cpuu"}})) == ["environment_set_unknown"]


def test_what_is_fresh_is_not_run_again():
    plan = plan_campaign("demo", "/w", parameters_with(BUILT), {})
    fresh = frozenset(needed("vocab"))
    assert [planned.name for planned in stages_to_run(plan, "train", fresh, only=False)] == ["extract", "train"]
    assert stages_to_run(plan, "vocab", fresh, only=True) == ()
    assert codes(lambda: stages_to_run(plan, "train", fresh, only=True)) == ["stage_blocked"]
    assert [planned.name for planned in stages_to_run(plan, "trace", fresh, only=False)][-2:] == ["export", "trace"]


def test_an_accepted_error_becomes_a_warning_and_others_stay():
    findings = [error("a", "m"), error("b", "m"), warning("c", "m")]
    assert [finding.severity for finding in demote(findings, ("a",))] == [
        Severity.WARNING,
        Severity.ERROR,
        Severity.WARNING,
    ]
