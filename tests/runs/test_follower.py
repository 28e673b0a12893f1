"""Following a run over links that break anywhere: every byte and every line exactly once."""

from __future__ import annotations

import pytest

from eagle3_backend.runs.follower import SKIP_BYTES, TAIL_BYTES, JournalFollower, LogFollower, StartOver
from eagle3_backend.runs.lines import UNPARSED
from eagle3_backend.runs.segments import Segments
from eagle3_backend.runs.store import Key, Store

KEY = Key("ws", "demo-train-abc", 1)


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "runs.sqlite")
    yield store
    store.close()


@pytest.fixture
def follow(link_cut):
    async def follow(follower, host):
        with pytest.raises(link_cut):
            await follower.follow(host)

    return follow


def texts(store):
    return [line.text for line in store.lines(KEY)]


@pytest.mark.parametrize("chunk", [1, 7, 64, 100000])
async def test_a_link_cut_at_every_byte_stores_each_line_once(tmp_path, make_host, make_journal, follow, store, chunk):
    data = make_journal(4)
    host = make_host(chunk)
    host.files["journal.jsonl"] = data
    for cut in range(len(data) + 1):
        host.cut_after = cut
        await follow(JournalFollower(store, KEY, lambda lines: None), host)
        whole = data[:cut].count(b"\n")
        assert texts(store) == data.decode().splitlines()[:whole]
        assert store.position(KEY)[1] in (0, data.rfind(b"\n", 0, cut) + 1)


async def test_a_resumed_follower_asks_from_the_stored_offset(make_host, make_journal, follow, store):
    host = make_host()
    host.files["journal.jsonl"] = make_journal(3)
    await follow(JournalFollower(store, KEY, lambda lines: None), host)
    await follow(JournalFollower(store, KEY, lambda lines: None), host)
    assert host.asked[0]["offset"] == 0 and host.asked[0]["generation"] is None
    assert host.asked[1]["offset"] == len(host.files["journal.jsonl"]) and host.asked[1]["generation"] == "g1"


async def test_a_torn_last_line_waits_for_its_end(make_host, make_journal, follow, store):
    data = make_journal(2)
    host = make_host()
    host.files["journal.jsonl"] = data[:-5]
    got = []
    follower = JournalFollower(store, KEY, got.extend)
    await follow(follower, host)
    assert len(got) == 1
    host.files["journal.jsonl"] = data
    await follow(JournalFollower(store, KEY, lambda lines: None), host)
    assert texts(store) == data.decode().splitlines()


async def test_stored_lines_come_first_without_old_metrics_and_progress(make_host, make_journal, follow, store):
    host = make_host()
    host.files["journal.jsonl"] = make_journal(9)
    await follow(JournalFollower(store, KEY, lambda lines: None), host)
    host.files["journal.jsonl"] += make_journal(2, start=9)
    got = []
    await follow(JournalFollower(store, KEY, got.extend), host)
    assert [line.seq for line in got] == [0, 3, 6, 8, 9, 10]


async def test_two_programs_see_every_line_and_store_each_once(tmp_path, make_host, make_journal, follow, store):
    data = make_journal(30)
    other_store = Store(tmp_path / "runs.sqlite")
    seen, other_seen = [], []
    follower = JournalFollower(store, KEY, seen.extend)
    other = JournalFollower(other_store, KEY, other_seen.extend)
    # Deliver the same bytes to both in different pieces, in turn, as two gateways would.
    one = two = 0
    while two < len(data):
        follower._take("g1", one, data[one : one + 37])
        one = min(len(data), one + 37)
        other._take("g1", two, data[two : two + 23])
        two = min(len(data), two + 23)
    assert [line.seq for line in seen] == [line.seq for line in other_seen] == list(range(30))
    assert texts(store) == data.decode().splitlines()
    other_store.close()


async def test_a_journal_that_began_anew_starts_over(make_host, make_journal, follow, store):
    host = make_host()
    host.files["journal.jsonl"] = make_journal(5)
    await follow(JournalFollower(store, KEY, lambda lines: None), host)
    host.generation = "g2"
    host.files["journal.jsonl"] = make_journal(2)
    with pytest.raises(StartOver):
        await JournalFollower(store, KEY, lambda lines: None).follow(host)
    await follow(JournalFollower(store, KEY, lambda lines: None), host)
    assert len(texts(store)) == 2 and store.position(KEY)[0] == "g2"


async def test_a_hole_in_what_comes_is_not_stored(store, make_journal):
    data = make_journal(4)
    follower = JournalFollower(store, KEY, lambda lines: None)
    follower._take("g1", 0, data[:10])
    with pytest.raises(StartOver):
        follower._take("g1", 40, data[40:])
    assert texts(store) == []


async def test_an_endless_line_is_stored_in_bounded_pieces(make_host, follow, store):
    host = make_host(256 * 1024)
    host.files["journal.jsonl"] = b"x" * (3 * 1024 * 1024) + b"\n"
    await follow(JournalFollower(store, KEY, lambda lines: None), host)
    lines = store.lines(KEY)
    assert {line.kind for line in lines} == {UNPARSED}
    assert sum(len(line.text) for line in lines) == 3 * 1024 * 1024
    assert store.position(KEY)[1] == len(host.files["journal.jsonl"])


async def test_catching_up_brings_all_of_an_ended_run(make_host, make_journal, store):
    host = make_host(50)
    host.files["journal.jsonl"] = make_journal(20)
    got = []
    await JournalFollower(store, KEY, got.extend).catch_up(host)
    assert [line.seq for line in got] == list(range(20))
    assert texts(store) == host.files["journal.jsonl"].decode().splitlines()


@pytest.mark.parametrize("chunk", [1, 5, 1000])
async def test_log_bytes_are_stored_once_wherever_the_link_is_cut(tmp_path, make_host, follow, chunk):
    raw = "half ✓ characters\r\n".encode() * 3 + b"\xff\x00 not text"
    host = make_host(chunk)
    host.files["output.log"] = raw
    got = bytearray()
    for cut in range(len(raw) + 1):
        host.cut_after = cut
        await follow(LogFollower(Segments(tmp_path / "log"), KEY, lambda offset, data: got.extend(data)), host)
        assert Segments(tmp_path / "log").read(0, len(raw)) == raw[:cut]
    assert bytes(got) == raw


async def test_the_first_opening_of_a_long_log_brings_its_tail(tmp_path, make_host, follow):
    host = make_host(100_000)
    host.files["output.log"] = bytes(range(256)) * 4096
    segments = Segments(tmp_path / "log")
    await follow(LogFollower(segments, KEY, lambda offset, data: None), host)
    assert segments.parts() == [(len(host.files["output.log"]) - TAIL_BYTES, TAIL_BYTES)]


async def test_a_log_far_behind_is_caught_up_at_its_tail(tmp_path, make_host):
    host = make_host(256 * 1024)
    host.files["output.log"] = b"start\n"
    segments = Segments(tmp_path / "log")
    follower = LogFollower(segments, KEY, lambda offset, data: None)
    await follower.catch_up(host)
    host.files["output.log"] = bytes(range(251)) * ((SKIP_BYTES + TAIL_BYTES * 2) // 251)
    host.files["output.log"] = b"start\n" + host.files["output.log"]
    await follower.catch_up(host)
    size = len(host.files["output.log"])
    assert segments.parts() == [(0, len(b"start\n")), (size - TAIL_BYTES, TAIL_BYTES)]
    assert segments.read(size - TAIL_BYTES, TAIL_BYTES) == host.files["output.log"][-TAIL_BYTES:]


async def test_a_log_that_began_anew_replaces_the_stored_one(tmp_path, make_host, follow):
    host = make_host()
    host.files["output.log"] = b"first life\n"
    segments = Segments(tmp_path / "log")
    await follow(LogFollower(segments, KEY, lambda offset, data: None), host)
    host.generation, host.files["output.log"] = "g2", b"second\n"
    await follow(LogFollower(segments, KEY, lambda offset, data: None), host)
    assert segments.generation() == "g2" and segments.read(0, 100) == b"second\n"
