from __future__ import annotations

import json
from pathlib import Path

import pytest

from eagle3_backend.engines import launch
from eagle3_backend.engines.options import check_options
from eagle3_backend.engines.plan import Wishes, options_of
from eagle3_backend.serving.surfaces import SurfaceCache, packaged

DATA = {
    "engine": "vllm",
    "version": "0.33.0",
    "installed": {"vllm": "0.33.0"},
    "flags": [{"names": ["--port"], "kinds": ["int"]}],
    "fields": [{"name": "method", "kinds": ["str"]}],
}


def test_what_was_asked_once_is_kept(tmp_path: Path) -> None:
    SurfaceCache(tmp_path).put("vllm-a", DATA)
    cache = SurfaceCache(tmp_path)
    assert (cache.keys("vllm"), cache.keys("sglang")) == (["vllm-a"], [])
    kept = cache.get("vllm-a")
    assert kept is not None
    assert (kept.version, kept.flags[0].name, kept.fields[0].kinds) == ("0.33.0", "--port", ("str",))
    assert not kept.packaged


def test_damaged_files_and_failed_dumps_count_as_absent(tmp_path: Path) -> None:
    cache = SurfaceCache(tmp_path)
    cache.put("vllm-a", DATA)
    cache.put("vllm-b", {**DATA, "flags": []})
    cache.put("", DATA)
    (tmp_path / "engines" / "vllm-c.json").write_text('{"engine": "vl')
    (tmp_path / "engines" / "vllm-d.json").write_text(json.dumps({"engine": "vllm"}))
    assert cache.keys("vllm") == ["vllm-a"]
    assert cache.get("vllm-c") is None


@pytest.mark.parametrize(("engine", "version"), [("vllm", "0.32.0"), ("sglang", "0.5.23")])
def test_the_products_plans_pass_the_packaged_options(engine: str, version: str) -> None:
    surface = packaged(engine)
    assert (surface.version, surface.packaged) == (version, True)
    wishes = Wishes(
        "cuda",
        "bfloat16",
        32768,
        tensor_parallel=8,
        expert_parallel=True,
        memory_share=0.8,
        pcie_only=True,
        trust_remote_code=True,
    )
    plan = launch.with_measurement(launch.with_drafter(launch.plan_server(engine, "p", wishes), "/d", 3), drafting=True)
    plan = launch.with_profiler(plan, "/traces", 20)
    assert check_options(surface, options_of(plan["argv"])) == []


def test_the_packaged_options_know_the_speculative_config() -> None:
    known = {option.name: option for option in packaged("vllm").fields}
    assert "eagle3" in known["method"].choices
    assert known["num_speculative_tokens"].bounds == {"gt": 0}
