"""Data sets of a hub by name, as the real library brings them from a stand-in on loopback: `hub` (see
`support/stand_in_hub.py`)."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import pyarrow
import pytest
from pyarrow import parquet

from eagle3_backend import hub as reader
from eagle3_backend.findings import FindingError
from eagle3_backend.hub import fetch
from eagle3_backend.pipeline import hub_sets

COMMIT = "4f3c" * 10
TOKEN = "hf_secret-of-the-tests"


def refused(name):
    with pytest.raises(FindingError) as problem:
        fetch(name)
    (finding,) = problem.value.findings
    assert finding.fix and TOKEN not in str(finding.to_json())
    return finding


def turns(name):
    return [row.turns for row in fetch(name).conversations]


def test_a_set_is_pinned_to_its_commit_and_the_pinned_name_reads_the_same(hub):
    hub.write("data/test-00000-of-00002.jsonl", {"question": "One?"})
    hub.write("data/test-00001-of-00002.jsonl", {"question": "Two?"})
    hub.write("data/train.jsonl", {"question": "Other?"})
    first = fetch("hub:lab/exam:test")
    assert first.pinned == f"hub:lab/exam@{COMMIT}:test"
    assert [(row.file, *row.turns) for row in first.conversations] == [("exam-test", "One?"), ("exam-test", "Two?")]
    assert fetch(first.pinned) == first and f"/revision/{COMMIT}?" in hub.asked[-1][1]


def test_a_column_may_hold_texts_lists_of_texts_or_messages(hub):
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]
    hub.write("a.jsonl", {"said": "Hi", "rest": 1}, {"said": ["Hi", "Bye"]}, {"said": chat}, {"said": 7}, {"rest": 2})
    fetched = fetch("hub:lab/exam::said")
    assert [row.turns for row in fetched.conversations] == [("Hi",), ("Hi", "Bye"), ("Hi",)]
    assert [finding.path for finding in fetched.bad] == ["exam:a.jsonl, line 4", "exam:a.jsonl, line 5"]


def test_without_a_fitting_column_those_that_there_are_are_named(hub):
    hub.write("a.jsonl", {"instruction": "Hi", "output": "Yes?"})
    for name in ("hub:lab/exam", "hub:lab/exam:a:said"):
        finding = refused(name)
        assert finding.code == "prompt_set_column_unknown" and finding.actual == ["instruction", "output"]
    assert turns(refused("hub:lab/exam").fix.split()[-1].rstrip(".")) == [("Hi",)]


def test_the_token_goes_to_the_hub_and_not_to_the_store_that_it_redirects_to(hub, monkeypatch):
    hub.write("a.jsonl", {"prompt": "Hi"})
    hub.gated, hub.stored = True, {"a.jsonl"}
    finding = refused("hub:lab/exam")
    assert finding.code == "prompt_set_unavailable" and "HF_TOKEN" in finding.fix
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert turns("hub:lab/exam") == [("Hi",)]
    told = {(server, token) for server, _, token in hub.asked}
    assert told == {("hub", ""), ("hub", f"Bearer {TOKEN}"), ("store", "")}
    hub.write("lost.jsonl", {"prompt": "Bye"})
    hub.stored, hub.store = {"lost.jsonl"}, f"{hub.store}/nowhere"
    finding = refused("hub:lab/exam:lost")
    assert "answers 404" in finding.message and "s3cr3t" not in finding.message


@pytest.mark.parametrize("offline", [True, False])
def test_without_a_way_to_the_hub_an_earlier_download_is_read_and_else_a_file_is_asked_for(
    hub, monkeypatch, tmp_path, offline
):
    hub.write("data/test.jsonl", {"prompt": "Hi"})
    hub.set(monkeypatch, **({"HF_HUB_OFFLINE": True} if offline else {"ENDPOINT": "http://127.0.0.1:1"}))
    finding = refused("hub:lab/exam:test")
    assert finding.code == "prompt_set_unavailable" and "name the file instead" in finding.fix
    hub.cache(tmp_path / "hf")
    assert fetch("hub:lab/exam:test").pinned == f"hub:lab/exam@{COMMIT}:test" and hub.asked == []
    assert turns(f"hub:lab/exam@{COMMIT}:test") == [("Hi",)]
    assert refused("hub:lab/exam@v2:test").code == "prompt_set_unavailable"


def test_what_is_not_there_too_large_or_no_text_is_refused(hub, monkeypatch):
    assert refused("hub:lab/other").code == "prompt_set_unavailable"
    assert refused("hub:lab/exam").code == "prompt_set_unreadable"
    hub.files = {"exam.py": b"evil()", "rows.pkl": b"...", "dataset_infos.json": b"{}"}
    assert refused("hub:lab/exam").code == "prompt_set_unreadable"
    hub.files = {"a.jsonl": b"\xff"}
    assert refused("hub:lab/exam").code == "prompt_set_unreadable"
    hub.files = {"a.jsonl": b'{"prompt": "Hi"}\n' * 9}
    monkeypatch.setattr(reader, "MAX_BYTES", 100)
    assert refused("hub:lab/exam").code == "prompt_set_too_large"


CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}]


def parquet_of(rows, **options):
    file = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), file, **options)
    return file.getvalue()


def test_parquet_is_read_some_rows_of_the_wanted_columns_at_a_time(hub, monkeypatch):
    rows = [{"goal": f"Reach {n}.", "answer": f"{n}", "chat": CHAT, "photo": bytes(100)} for n in range(7)]
    hub.files["data/test-00000-of-00002.parquet"] = parquet_of(rows[:5], row_group_size=3)
    hub.files["data/test-00001-of-00002.parquet"] = parquet_of(rows[5:])
    batches = []

    def conversations_of(wanted, records, columns):
        records = list(records)
        batches.extend((place, sorted(record)) for place, record in records)
        return hub_sets.conversations_of(wanted, records, columns)

    monkeypatch.setattr(reader, "BATCH", 2)
    monkeypatch.setattr(reader, "hub_sets", SimpleNamespace(**{**vars(hub_sets), "conversations_of": conversations_of}))
    found = fetch("hub:lab/exam:test:goal").conversations
    assert [row.turns for row in found] == [(f"Reach {number}.",) for number in range(7)]
    assert [answer["content"] for row in found for answer in row.answers] == list("0123456")
    assert batches[4] == ("data/test-00000-of-00002.parquet, row 5", ["answer", "goal"])
    assert turns("hub:lab/exam:test:chat") == [("Hi",)] * 7
    finding = refused("hub:lab/exam:test")
    assert (finding.code, finding.actual) == ("prompt_set_column_unknown", ["goal", "answer", "chat", "photo"])
    finding = refused("hub:lab/exam:test:photo")
    assert (finding.code, finding.actual) == ("prompt_set_column_unknown", ["goal", "answer", "chat", "photo"])


def test_parquet_that_is_damaged_unpacks_to_too_much_or_cannot_be_read_here_is_refused(hub, monkeypatch):
    packed = parquet_of([{"prompt": "x" * 1000}] * 2000)
    for number, damaged in enumerate((b"\xff", b"PAR1", packed[:-40], packed[500:], b"PAR1" + bytes(500) + b"PAR1")):
        hub.files = {f"{number}.parquet": damaged}
        assert refused("hub:lab/exam").code == "prompt_set_unreadable"
    hub.files = {"test.parquet": packed}
    monkeypatch.setattr(reader, "MAX_BYTES", 1_000_000)
    assert len(packed) < 20_000 and refused("hub:lab/exam").code == "prompt_set_too_large"
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert refused("hub:lab/exam").code == "pyarrow_missing"


def test_parquet_of_shared_texts_counts_as_what_it_unpacks_to(hub, monkeypatch):
    def shared(rows, texts):
        packed = pyarrow.array([row % len(texts) for row in range(rows)], pyarrow.int32())
        file = io.BytesIO()
        column = pyarrow.DictionaryArray.from_arrays(packed, pyarrow.array(texts))
        parquet.write_table(pyarrow.table({"prompt": column}), file)
        return file.getvalue()

    monkeypatch.setattr(reader, "MAX_BYTES", 1_000_000)
    hub.files = {"bomb.parquet": shared(200, ["x" * 10_000])}
    assert refused("hub:lab/exam").code == "prompt_set_too_large"
    monkeypatch.setattr(reader, "BATCH", 2)
    hub.files = {"many.parquet": shared(500, [f"{number:01000}" for number in range(20)])}
    assert len(turns("hub:lab/exam")) == 500


def test_a_set_without_records_or_with_values_that_nothing_can_hold_is_refused_for_that(hub):
    nothing = io.BytesIO()
    parquet.ParquetWriter(nothing, pyarrow.schema([("prompt", pyarrow.string())])).close()
    hub.files = {"none.parquet": nothing.getvalue(), "null.parquet": parquet_of([{"prompt": None, "said": "Hi"}])}
    hub.files["late.parquet"] = parquet_of([{"prompt": "Hi", "source": pyarrow.scalar(2**30, pyarrow.date32())}])
    finding = refused("hub:lab/exam:none")
    assert finding.code == "prompt_set_unreadable" and "no record" in finding.message
    assert "no prompt that could be read in prompt" in refused("hub:lab/exam:null").message
    assert refused("hub:lab/exam:late").code == "prompt_set_unreadable"


def test_lists_of_messages_are_read_by_what_they_hold_and_not_by_their_name(hub):
    hub.files = {"test.parquet": parquet_of([{"conversations": CHAT}])}
    hub.write("deep.jsonl", {"messages": CHAT}, {"messages": CHAT})
    hub.files["deep.jsonl"] += b"[" * 100_000 + b"\n"
    assert turns("hub:lab/exam:test") == [("Hi",)]
    fetched = fetch("hub:lab/exam:deep")
    assert len(fetched.conversations) == 2 and len(fetched.bad) == 1


def test_a_stop_ends_it_before_the_next_file(hub):
    hub.write("test/0.jsonl", {"prompt": "Hi"})
    hub.write("test/1.jsonl", {"prompt": "Bye"})

    def look():
        if any("0.jsonl" in path for _, path, _ in hub.asked):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("hub:lab/exam", look)
    assert not any("1.jsonl" in path for _, path, _ in hub.asked)
