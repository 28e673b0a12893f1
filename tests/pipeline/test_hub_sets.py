"""Names of data sets, and which files of a repository they mean."""

from __future__ import annotations

import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.pipeline.hub_sets import choose_files, parse_name

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
