from __future__ import annotations

from dataclasses import asdict

import pytest

from eagle3_backend.pipeline.environments import SETS
from eagle3_backend.pipeline.forecast import (
    DEMO_SHAPE,
    ENGINE_START,
    Amounts,
    History,
    Shape,
    bench_starts,
    disk_findings,
    forecast,
    mount_of,
    store_bytes,
)
from eagle3_backend.pipeline.parameters import BenchParameters

PARAMETERS = {
    "target": {"model": "demo:smollm2-135m"},
    "generate": {"max_new_tokens": 100, "capture": True},
    "train": {"epochs": 6},
    "bench": asdict(BenchParameters()),
}
AMOUNTS = Amounts(turns=10, characters=4000)


def test_a_store_needs_every_stream_of_every_token():
    assert store_bytes(68_000, 700, Shape(slots=4, hidden_size=4096)) == 1_559_756_800_000


def test_the_deepest_mount_holds_a_path():
    mounts = {"/": 1, "/data": 2, "/data/hs": 3}
    assert mount_of("/data/hs/x", mounts) == "/data/hs"
    assert mount_of("/database", mounts) == "/"


def test_too_little_space_is_an_error_that_names_the_mount():
    (finding,) = disk_findings(10, "/data/hs", {"/data": 9, "/": 100})
    assert (finding.code, finding.path, finding.expected, finding.actual) == ("disk_space_insufficient", "/data", 10, 9)
    assert disk_findings(9, "/data/hs", {"/data": 9}) == ()


OTHER = {**PARAMETERS, "target": {"model": "org/model"}}


def test_an_earlier_run_of_this_host_is_scaled_by_the_work():
    history = {"train": History(seconds=60, work=3000)}
    result = forecast(["train"], OTHER, AMOUNTS, DEMO_SHAPE, history, 0)
    assert result.seconds == 60 * (2000 * 6) / 3000


def test_what_grows_with_a_data_set_that_is_not_read_is_unknown_and_the_rest_is_not():
    stages = ["prompts", "generate", "extract", "train", "export", "bench"]
    result = forecast(stages, PARAMETERS, None, DEMO_SHAPE, {"train": History(60, 3000)}, 0)
    unknown = [entry for entry in result.stages if entry.seconds is None]
    assert [entry.stage for entry in unknown] == ["generate", "extract", "train"] and result.seconds is None
    assert {entry.basis for entry in unknown} == {"unknown until the data set is read"}
    assert [entry.bytes for entry in result.stages if entry.bytes is None] == [None, None]


def test_engine_starts_do_not_shrink_with_the_work():
    few = {**PARAMETERS, "bench": asdict(BenchParameters(in_domain=1, published=1, max_new_tokens=1))}
    generate, bench = forecast(["generate", "bench"], few, Amounts(1, 4), DEMO_SHAPE, {}, 0).stages
    assert ENGINE_START < generate.seconds < ENGINE_START + 1
    assert 2 * ENGINE_START < bench.seconds < 2 * ENGINE_START + 1
    earlier = {"bench": History(seconds=80, work=2000)}
    (bench,) = forecast(["bench"], few, AMOUNTS, DEMO_SHAPE, earlier, 0).stages
    assert bench.seconds >= 80 / 2


def test_a_sweep_costs_an_engine_start_for_each_further_depth_and_way_and_its_answers():
    def seconds(**values):
        parameters = {**PARAMETERS, "bench": asdict(BenchParameters(**values))}
        return forecast(["bench"], parameters, AMOUNTS, DEMO_SHAPE, {}, 0).seconds

    assert bench_starts(asdict(BenchParameters())) == 2
    assert bench_starts(asdict(BenchParameters(depths=(1, 3, 5), against=("ngram",)))) == 5
    plain, untimed = seconds(), seconds(speed_prompts=0, depths=(1,))
    assert untimed - seconds(speed_prompts=0) == pytest.approx(ENGINE_START, rel=0.01)
    assert seconds(depths=(1,)) > untimed + ENGINE_START / 2
    assert seconds(concurrencies=(1,)) == plain < seconds(concurrencies=(8,)) < seconds(concurrencies=(32,))


def test_setup_costs_what_it_has_to_build_and_nothing_for_what_is_there():
    (there,) = forecast(["setup"], OTHER, AMOUNTS, None, {"setup": History(240, 1)}, 0, builds=[]).stages
    (built,) = forecast(["setup"], OTHER, AMOUNTS, None, {}, 0, builds=["train-cpu", "vllm-cpu"]).stages
    assert (there.bytes, there.basis) == (0, "nothing to build") and there.seconds < 60
    assert built.bytes == SETS["train-cpu"].bytes_needed + SETS["vllm-cpu"].bytes_needed
    assert built.seconds > there.seconds


def test_an_unknown_host_and_target_have_no_invented_time():
    result = forecast(["generate", "train"], OTHER, AMOUNTS, None, {}, 2.0)
    assert result.seconds is None and result.cost is None
    assert [entry.bytes for entry in result.stages] == [None, 0]


def test_money_follows_from_the_time():
    history = {"vocab": History(seconds=1800, work=1)}
    assert forecast(["vocab"], PARAMETERS, AMOUNTS, DEMO_SHAPE, history, 14.0).cost == 7.0


def test_another_librarys_trainer_copies_the_states_and_has_no_time_that_was_measured_for_ours():
    borrowed = {**PARAMETERS, "train": {"epochs": 6, "trainer": "speculators"}}
    (own,) = forecast(["train"], PARAMETERS, AMOUNTS, DEMO_SHAPE, {}, 0).stages
    (other,) = forecast(["train"], borrowed, AMOUNTS, DEMO_SHAPE, {}, 0).stages
    (extract,) = forecast(["extract"], borrowed, AMOUNTS, DEMO_SHAPE, {}, 0).stages
    assert own.seconds and own.bytes == 0
    assert other.seconds is None and other.bytes == extract.bytes > 0
