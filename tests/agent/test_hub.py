"""Data sets of a hub by name, from a stand-in on loopback: `hub` (see `support/stand_in_hub.py`)."""

from __future__ import annotations

import pytest

from eagle3_backend.agent import hub as agent_hub
from eagle3_backend.agent.hub import fetch
from eagle3_backend.findings import FindingError
from eagle3_backend.pipeline.hub_sets import choose_files, parse_name

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
    assert fetch(first.pinned) == first and f"/revision/{COMMIT}?" in hub.asked[-3][1]


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


@pytest.mark.parametrize("offline", [True, False])
def test_without_a_way_to_the_hub_an_earlier_download_is_read_and_else_a_file_is_asked_for(
    hub, monkeypatch, tmp_path, offline
):
    hub.write("data/test.jsonl", {"prompt": "Hi"})
    monkeypatch.setenv(*(("HF_HUB_OFFLINE", "1") if offline else ("HF_ENDPOINT", "http://127.0.0.1:1")))
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
    monkeypatch.setattr(agent_hub, "MAX_BYTES", 100)
    assert refused("hub:lab/exam").code in ("prompt_set_too_large", "prompt_set_unavailable")


def test_parquet_is_read_by_who_can_and_else_refused(hub):
    hub.files["test.parquet"] = b"PAR1"
    assert refused("hub:lab/exam").code == "pyarrow_missing"
    assert fetch("hub:lab/exam", parquet=lambda data: [{"prompt": data.decode()}]).conversations[0].turns == ("PAR1",)


def test_a_stop_ends_a_download(hub):
    hub.write("a.jsonl", {"prompt": "Hi"})

    def look():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("hub:lab/exam", look)


FILES = [
    "README.md", ".gitattributes", "main/test-00000-of-00001.parquet", "main/train-00000-of-00001.parquet",
    "socratic/test-00000-of-00001.parquet", "test_extra.json", "question.json", "question.jsonl",
    "default/dev/0000.parquet", "default/dev/0001.parquet",
]  # fmt: skip


@pytest.mark.parametrize(
    ("split", "files"),
    [
        ("main/test", ["main/test-00000-of-00001.parquet"]),
        ("train", ["main/train-00000-of-00001.parquet"]),
        ("question", ["question.jsonl"]),
        ("dev", ["default/dev/0000.parquet", "default/dev/0001.parquet"]),
        ("extra", ["test_extra.json"]),
    ],
)
def test_a_split_is_told_by_the_words_of_its_files_paths(split, files):
    assert list(choose_files(parse_name(f"hub:lab/exam:{split}"), FILES)) == files


@pytest.mark.parametrize("name", ["hub:lab/exam", "hub:lab/exam:test", "hub:lab/exam:nothing"])
def test_a_split_that_means_none_or_several_sets_of_files_is_refused_with_their_names(name):
    with pytest.raises(FindingError) as problem:
        choose_files(parse_name(name), FILES)
    (finding,) = problem.value.findings
    assert finding.code == "prompt_set_split_unknown" and "main/test" in finding.expected
    assert choose_files(parse_name(finding.fix.split()[-1].rstrip(".")), FILES)


@pytest.mark.parametrize(
    "name", ["hub:exam", "hub:", "hub:lab/exam:a:b:c", "hub:../exam", "hub:lab/exam?x=1", "hub:lab/ex am"]
)
def test_a_name_of_another_form_is_refused(name):
    with pytest.raises(FindingError) as problem:
        parse_name(name)
    assert problem.value.findings[0].code == "prompt_set_name_invalid"
