from __future__ import annotations

from eagle3_backend.engines.overlap import grams, overlap, seen

SENTENCE = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"


def test_a_text_has_one_gram_for_each_run_of_13_words() -> None:
    assert len(grams(SENTENCE)) == 2


def test_case_and_punctuation_do_not_hide_a_copy() -> None:
    copy = "Well: ONE, two; three four five -- six seven eight nine ten eleven twelve thirteen!"
    found = overlap([copy], grams(SENTENCE))
    assert found.texts_sharing == 1
    assert found.grams_shared == 1


def test_twelve_common_words_are_no_overlap() -> None:
    other = "one two three four five six seven eight nine ten eleven twelve and then some more"
    assert overlap([other], grams(SENTENCE)).texts_sharing == 0


def test_a_short_question_counts_as_copied_only_when_it_is_the_same_question() -> None:
    training = grams("How do magnets work?")
    found = overlap(["how do magnets work", "How do planes work?"], training)
    assert (found.texts, found.texts_sharing) == (2, 1)


def test_shares_are_told_for_texts_and_for_grams() -> None:
    assert overlap([SENTENCE, "quite another matter"], grams(SENTENCE)).to_json() == {
        "texts": 2,
        "texts_sharing": 1,
        "share_of_texts": 0.5,
        "share_of_grams": 0.6667,
    }


def test_nothing_to_compare_is_no_overlap() -> None:
    assert overlap([], set()).to_json()["share_of_texts"] == 0.0
    assert overlap(["..."], grams("...")).texts_sharing == 0


def test_only_grams_that_are_asked_for_are_kept_of_the_training_text() -> None:
    training = iter([SENTENCE, "something else that nobody asks for", "Quite another matter!"])
    assert seen(["quite another matter", "unknown"], training) == {"quite another matter"}
