"""Traces of every shape are read one event at a time, and what is wrong with a file is a finding."""

from __future__ import annotations

import gzip
import json
import tracemalloc

import pytest

from eagle3_backend.engines.traces import reading
from eagle3_backend.engines.traces.reading import TraceFile
from eagle3_backend.findings import FindingError


def names(path):
    return [event["name"] for event in TraceFile(path).events()]


def codes(path):
    with pytest.raises(FindingError) as problem:
        list(TraceFile(path).events())
    return [finding.code for finding in problem.value.findings]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_plain_and_packed_traces_give_their_events_and_header(steps_with_drafter, written, name):
    trace = steps_with_drafter(2)
    file = TraceFile(written(trace, name))
    assert list(file.events()) == trace.events
    assert file.header == {"schemaVersion": 1, "traceName": "made by hand"}
    assert file.findings == []


def test_a_bare_list_of_events_is_a_trace(steps_with_drafter, written):
    trace = steps_with_drafter(1)
    assert len(names(written(json.dumps(trace.events)))) == len(trace.events)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_events_are_whole_wherever_a_chunk_ends(steps_with_drafter, written, monkeypatch, chunk):
    monkeypatch.setattr(reading, "CHUNK", chunk)
    trace = steps_with_drafter(1)
    file = TraceFile(written(trace))
    assert list(file.events()) == trace.events
    assert file.header["schemaVersion"] == 1


def test_control_characters_in_names_and_broken_utf8_are_read(tmp_path):
    path = tmp_path / "t.json"
    path.write_bytes(b'{"traceEvents": [{"name": "a\tb\x01"}, {"name": "\xff"}]}')
    assert names(path) == ["a\tb\x01", "�"]


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_trace_gives_what_stands_before_and_says_so(steps_with_drafter, tmp_path, keep, packed):
    content = json.dumps(steps_with_drafter(200).content()).encode()
    whole = gzip.compress(content) if packed else content
    path = tmp_path / "t.json"
    path.write_bytes(whole[: int(keep * len(whole))])
    file = TraceFile(path)
    assert 0 < len(list(file.events())) <= 200 * 7
    assert [finding.code for finding in file.findings] == ["trace_truncated"]


def test_damage_in_the_middle_ends_the_reading_there(steps_with_drafter, written):
    text = json.dumps(steps_with_drafter(20).content())
    file = TraceFile(written(text[:2000] + "}}}" + text[2000:]))
    assert 0 < len(list(file.events())) < 20 * 7
    assert [finding.code for finding in file.findings] == ["trace_truncated"]


@pytest.mark.parametrize(
    "text", ["", "no json", "[host]", "[1, 2]", '{"spans": []}', '{"traceEvents": 3}', '"text"', "{", "{3}"]
)
def test_what_is_no_trace_is_refused(written, text):
    assert codes(written(text)) == ["trace_malformed"]


def test_a_file_that_is_not_there_is_a_finding(tmp_path):
    assert codes(tmp_path / "none.json") == ["trace_unreadable"]


def test_values_that_are_nested_without_end_do_not_end_the_program(written):
    file = TraceFile(written('{"traceEvents": [{"name": "a"}, {"args": ' + "[" * 100_000))
    assert list(file.events()) == [{"name": "a"}]
    assert [finding.code for finding in file.findings] == ["trace_truncated"]


def test_a_large_trace_is_never_held_whole(tmp_path):
    path = tmp_path / "large.json.gz"
    event = json.dumps({"ph": "X", "cat": "cpu_op", "name": "x" * 100, "ts": 1, "dur": 2, "args": {"a": "b" * 300}})
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write('{"traceEvents": [')
        file.write(",\n".join([event] * 60_000))
        file.write("]}")
    tracemalloc.start()
    try:
        assert sum(1 for _ in TraceFile(path).events()) == 60_000
        assert tracemalloc.get_traced_memory()[1] < 12 * reading.CHUNK
    finally:
        tracemalloc.stop()
