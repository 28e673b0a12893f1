"""What journal lines add up to, and what they tell."""

from __future__ import annotations

import json
import math
import weakref

from eagle3_backend.control.fold import KEPT_COLUMNS, RunFold, event_of
from eagle3_backend.runs.lines import parse


def lines(*entries):
    head = {"w": "stage", "seq": 0, "t": 12.5, "mono": 1.0}
    return parse(b"".join(json.dumps({**head, **entry}).encode() + b"\n" for entry in entries), 0)


def test_the_newest_progress_counts_and_what_is_no_number_is_unknown():
    fold = RunFold()
    fold.add(lines({"kind": "progress", "done": 1, "total": 5, "unit": "rows", "rate": 2.0}))
    fold.add(lines({"kind": "progress", "done": 2, "total": None, "unit": "rows", "rate": "nan"}))
    assert (fold.done, fold.total, fold.unit, fold.rate) == (2.0, None, "rows", None)


def test_series_go_on_from_what_was_stored_and_keep_their_gaps():
    fold = RunFold([("loss", (0.0, 4.0))])
    fold.add(lines({"kind": "metric", "step": 1, "values": {"loss": "nan"}}))
    fold.add(lines({"kind": "metric", "step": 2, "values": {"loss": 2.0}}))
    assert fold.series["loss"][0] == (0.0, 4.0) and math.isnan(fold.series["loss"][1][1])
    assert fold.metrics == {"loss": 2.0}


def test_a_repeated_step_replaces_and_an_earlier_one_is_put_in_its_place():
    fold = RunFold()
    for step, value in ((1, 1.0), (3, 3.0), (3, 3.5), (2, 2.0)):
        fold.add(lines({"kind": "metric", "step": step, "values": {"loss": value}}))
    assert fold.series["loss"] == [(1.0, 1.0), (2.0, 2.0), (3.0, 3.5)]


def test_a_long_run_is_kept_in_bounded_memory_with_its_ends_and_spikes():
    fold = RunFold()
    for step in range(20_000):
        fold.add(lines({"kind": "metric", "step": step, "values": {"loss": 99.0 if step == 777 else 1.0}}))
    points = fold.series["loss"]
    assert len(points) <= 4 * KEPT_COLUMNS
    assert points[0][0] == 0.0 and points[-1][0] == 19_999.0 and (777.0, 99.0) in points


def test_what_was_stored_of_a_long_run_is_read_in_bounded_memory_as_well():
    alive: weakref.WeakSet[Value] = weakref.WeakSet()
    most = 0

    class Value(float):
        pass

    def stored():
        nonlocal most
        for name in ("a", "b"):
            for step in range(5000):
                value = Value(99.0 if step == 777 else 1.0)
                alive.add(value)
                most = max(most, len(alive))
                yield name, (float(step), value)

    series = RunFold(stored()).series
    assert most < 8 * KEPT_COLUMNS and [*series] == ["a", "b"]
    assert all(
        points[0][0] == 0.0 and points[-1][0] == 4999.0 and (777.0, 99.0) in points for points in series.values()
    )


def test_unknown_and_torn_lines_change_nothing():
    fold = RunFold()
    fold.add(parse(b'torn\n{"w":"stage","seq":1,"t":1,"kind":"surprise","x":1}\n', 0))
    fold.add(lines({"kind": "finding", "severity": "dreadful"}))
    assert fold.findings == [] and fold.done is None and fold.series == {}


def test_events_say_what_happened_where_and_how_bad():
    entries = lines(
        {"kind": "state", "state": "failed", "reason": "exit 1"},
        {"kind": "finding", "code": "loss_nan", "severity": "error", "message": "m"},
        {"kind": "checkpoint", "step": 7, "path": "p"},
        {"kind": "artifact", "artifact": "store", "path": "p", "bytes": 3, "fingerprint": "f"},
        {"kind": "accepted", "codes": ["port_in_use"], "by": "ana on laptop"},
        {"kind": "progress", "done": 1},
    )
    events = [event_of(line, "train") for line in entries]
    assert [(event.severity, event.text) for event in events[:-1]] == [
        ("error", "failed: exit 1"),
        ("error", "loss_nan: m"),
        ("info", "checkpoint at step 7"),
        ("info", "store made, 3 bytes"),
        ("warning", "ana on laptop accepted port_in_use"),
    ]
    assert events[-1] is None and {event.at for event in events[:-1]} == {12.5}
