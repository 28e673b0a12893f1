from __future__ import annotations

import re

from eagle3_backend.engines.prompt_sets import evenly, prompts_of, set_hash
from eagle3_backend.pipeline.long_context import LENGTHS, rows


def test_the_documents_are_the_same_wherever_they_are_made():
    # Another hash is another set: figures of both could not be compared. Raise the version of bench then.
    assert set_hash({"long_context": prompts_of(rows())}) == "3777f2038649e6d5"


def test_each_length_comes_in_four_kinds_and_a_few_prompts_are_of_all_lengths():
    prompts = prompts_of(rows())
    assert len({prompt.text for prompt in prompts}) == len({prompt.id for prompt in prompts}) == 24
    assert {prompt.source for prompt in evenly(prompts, len(LENGTHS), seed=1)} == {
        f"{n // 1000}k tokens" for n in LENGTHS
    }


def test_what_is_asked_about_stands_in_the_document():
    for row in rows():
        text, _, question = row["turns"][0].partition("\n\nNow answer from it: ")
        detail = re.search(r"\d+ [A-Z]\w+ 2031|\d\d:\d\d:\d\d|[A-H]-\d{3}", question)
        assert detail is not None and detail[0] in text, row["id"]
