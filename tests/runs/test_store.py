"""The store: each line once, whoever writes it and whenever it dies."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time

import pytest

from eagle3_backend.runs.lines import UNPARSED
from eagle3_backend.runs.store import Key, Store

KEY = Key("ws", "demo-train-abc", 1)


def stored_texts(store, key=KEY):
    return [line.text for line in store.lines(key)]


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "state" / "runs.sqlite")
    yield store
    store.close()


def test_an_attempt_never_seen_starts_at_offset_zero(store):
    assert store.position(KEY) == ("", 0)


def test_lines_and_offset_move_together(store, make_journal):
    data = make_journal(6)
    store.restart(KEY, "g1")
    assert store.append(KEY, "g1", 0, data)
    assert store.position(KEY) == ("g1", len(data))
    assert stored_texts(store) == data.decode().splitlines()


def test_a_stretch_that_is_stored_already_is_refused_and_changes_nothing(store, make_journal):
    data = make_journal(6)
    store.restart(KEY, "g1")
    store.append(KEY, "g1", 0, data)
    assert not store.append(KEY, "g1", 0, data)
    assert not store.append(KEY, "other", len(data), data)
    assert stored_texts(store) == data.decode().splitlines()


def test_a_new_generation_starts_anew(store, make_journal):
    store.restart(KEY, "g1")
    store.append(KEY, "g1", 0, make_journal(6))
    store.restart(KEY, "g2")
    assert store.position(KEY) == ("g2", 0)
    assert stored_texts(store) == [] and store.series(KEY) == {}


def test_restarting_the_same_generation_keeps_what_is_stored(store, make_journal):
    store.restart(KEY, "g1")
    store.append(KEY, "g1", 0, make_journal(3))
    store.restart(KEY, "g1")
    assert len(stored_texts(store)) == 3


def test_metrics_become_series_and_not_a_number_stays_a_gap(store):
    store.restart(KEY, "g1")
    rows = [
        '{"w":"stage","seq":0,"t":1,"mono":1,"kind":"metric","step":2,"values":{"loss":0.5}}',
        '{"w":"stage","seq":1,"t":1,"mono":1,"kind":"metric","step":1,"values":{"loss":"nan"}}',
        '{"w":"stage","seq":2,"t":1,"mono":1,"kind":"metric","step":2,"values":{"loss":0.25,"other":3}}',
    ]
    store.append(KEY, "g1", 0, "\n".join(rows).encode() + b"\n")
    series = store.series(KEY)
    assert series["other"] == [(2.0, 3.0)]
    assert series["loss"][0][0] == 1.0 and series["loss"][0][1] != series["loss"][0][1]
    assert series["loss"][1] == (2.0, 0.25)


def test_an_unreadable_line_is_kept_as_it_is(store):
    store.restart(KEY, "g1")
    store.append(KEY, "g1", 0, b'not json\n{"kind": 3}\n\n')
    assert [(line.kind, line.text) for line in store.lines(KEY)] == [(UNPARSED, "not json"), (UNPARSED, '{"kind": 3}')]


def test_the_newest_line_of_a_kind_is_found(store, make_journal):
    store.restart(KEY, "g1")
    store.append(KEY, "g1", 0, make_journal(9))
    assert store.last(KEY, "progress").data["done"] == 8
    assert store.last(KEY, "checkpoint") is None
    assert {line.kind for line in store.lines(KEY, without=("metric", "progress"))} == {"note"}


def test_a_file_of_another_version_is_made_anew(tmp_path, make_journal):
    path = tmp_path / "runs.sqlite"
    store = Store(path)
    store.restart(KEY, "g1")
    store.append(KEY, "g1", 0, make_journal(3))
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    store = Store(path)
    assert store.position(KEY) == ("", 0) and store.attempts("ws", KEY.run) == []
    store.close()


def test_a_file_that_is_no_database_is_made_anew(tmp_path):
    path = tmp_path / "runs.sqlite"
    path.write_bytes(b"this is not a database, whatever its name says" * 100)
    store = Store(path)
    assert store.position(KEY) == ("", 0)
    store.close()


def test_the_state_folder_is_its_owners_alone(store, tmp_path):
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_a_file_that_cannot_be_opened_is_an_error_of_the_system(tmp_path):
    (tmp_path / "runs.sqlite").mkdir()
    with pytest.raises(OSError, match=r"runs\.sqlite"):
        Store(tmp_path / "runs.sqlite")


def test_a_full_disk_costs_an_event_and_nothing_else(store):
    store.add_event(0.0, "host", "before", "info", "link")
    store._connection.execute("PRAGMA max_page_count = 1")  # as many as there are, for it cannot shrink
    for number in range(2000):
        store.add_event(1.0, "host", f"event {number}" * 20, "info", "link")
    assert 0 < len(store.events(5000)) < 2001


def test_events_come_back_oldest_first(store):
    for number in range(5):
        store.add_event(float(number), "host", f"event {number}", "info", "link")
    assert [event["text"] for event in store.events(2)] == ["event 3", "event 4"]


def test_two_connections_store_each_line_once(tmp_path, make_journal):
    data = make_journal(300)
    starts = [0] + [index + 1 for index, byte in enumerate(data) if byte == 10]
    stores = [Store(tmp_path / "runs.sqlite") for _ in range(3)]
    chooser = random.Random(1)
    for store in stores:
        store.restart(KEY, "g1")
    while (position := stores[0].position(KEY)[1]) < len(data):
        behind = chooser.choice([start for start in starts if start <= position][-4:])
        end = chooser.choice([start for start in starts if start > position][:9])
        chooser.choice(stores).append(KEY, "g1", behind, data[behind:end])
    assert stored_texts(stores[2]) == data.decode().splitlines()
    for store in stores:
        store.close()


WRITER = textwrap.dedent(
    """
    import random, sys
    from pathlib import Path
    from eagle3_backend.runs.store import Key, Store
    data = Path(sys.argv[2]).read_bytes()
    key = Key("ws", "demo-train-abc", 1)
    store = Store(Path(sys.argv[1]))
    store.restart(key, "g1")
    while True:
        position = store.position(key)[1]
        if position == len(data):
            break
        end = position
        for _ in range(random.randint(1, 5)):
            end = data.find(b"\\n", end) + 1 or len(data)
        store.append(key, "g1", position, data[position:end])
    """
)


def test_writers_killed_at_random_moments_lose_and_double_nothing(tmp_path, make_journal):
    data = make_journal(4000)
    (tmp_path / "journal").write_bytes(data)
    path = tmp_path / "runs.sqlite"
    chooser = random.Random(7)

    def spawn():
        return subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(tmp_path / "journal")])

    for _ in range(6):
        pair = [spawn(), spawn()]
        time.sleep(0.1 + chooser.random() * 0.4)
        for process in pair:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
    assert spawn().wait(timeout=120) == 0
    store = Store(path)
    assert stored_texts(store) == data.decode().splitlines()
    assert len(store.series(KEY)["train/loss"]) == len([1 for line in store.lines(KEY) if line.kind == "metric"])
    store.close()
