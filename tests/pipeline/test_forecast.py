from __future__ import annotations

from eagle3_backend.pipeline.forecast import (
    DEMO_SHAPE,
    Amounts,
    History,
    Shape,
    disk_findings,
    forecast,
    mount_of,
    store_bytes,
)

PARAMETERS = {
    "target": {"model": "demo:smollm2-135m"},
    "generate": {"max_new_tokens": 100, "capture": True},
    "train": {"epochs": 6},
    "bench": {"in_domain": 48, "published": 120, "max_new_tokens": 64},
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


def test_an_earlier_run_of_this_host_is_scaled_by_the_work():
    history = {"train": History(seconds=60, work=3000)}
    result = forecast(["train"], PARAMETERS, AMOUNTS, DEMO_SHAPE, history, 0)
    assert result.seconds == 60 * (2000 * 6) / 3000


def test_an_unknown_host_and_target_have_no_invented_time():
    other = {**PARAMETERS, "target": {"model": "org/model"}}
    result = forecast(["generate", "train"], other, AMOUNTS, None, {}, 2.0)
    assert result.seconds is None and result.cost is None
    assert [entry.bytes for entry in result.stages] == [None, 0]


def test_money_follows_from_the_time():
    history = {"vocab": History(seconds=1800, work=1)}
    assert forecast(["vocab"], PARAMETERS, AMOUNTS, DEMO_SHAPE, history, 14.0).cost == 7.0
