"""A bench that was cut off goes on from what it has measured, under the same recipe and no other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eagle3_backend.engines.answers import Answer, Prompt, Refusal, Steps
from eagle3_backend.engines.cells import Way
from eagle3_backend.engines.metrics import Drafting
from eagle3_backend.engines.rounds import Round
from eagle3_backend.engines.timing import Timed
from eagle3_backend.stages.bench_kept import FILE, AnotherBuild, Kept
from eagle3_backend.stages.bench_resume import take_up

SMALL = {
    "max_new_tokens": 24,
    "speed_prompts": 4,
    "lossless_prompts": 6,
    "bootstrap": 100,
    "concurrency": 2,
    "raw_prompts": 2,
}
SLOW = {"STAND_IN_SECONDS": "0.15"}
"""Of the stage's surroundings, not of the plan: an attempt without it measures by the same recipe."""


def cut(campaign: Any, answers: int, how: signal.Signals, device: str = "cpu", **parameters: Any) -> Any:
    """A bench that is ended once it has so many answers."""
    bench = campaign.start("bench", device, outside=SLOW, **{**SMALL, **parameters})
    journal = bench.directory / "journal.jsonl"
    bench.wait_for(lambda: journal.exists() and any(line["done"] >= answers for line in bench.lines("progress")))
    bench.process.send_signal(how)
    assert bench.end() == (75 if how == signal.SIGTERM else -how)
    if how == signal.SIGKILL:
        # On a host the supervisor does this.
        for pid in bench.engine_pids():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
    return bench


def kept_rows(bench: Any) -> list[dict[str, Any]]:
    lines = (bench.output / FILE).read_bytes().splitlines()
    return [row for row in map(json.loads, lines) if row["id"].startswith(("answer/", "pair/"))]


def test_a_killed_attempt_is_gone_on_with(campaign: Any) -> None:
    # 2 x 4 timed answers and 2 plain ones of the lossless check come first: it ends within the prompt sets.
    first = cut(campaign, 13, signal.SIGKILL)
    before = kept_rows(first)
    assert any(row["id"].startswith("answer/in_domain") for row in before)
    second = campaign.start("bench", **SMALL)
    assert second.end() == 0
    assert second.codes() == ["bench_taken_up"]
    summary = second.summary
    over = summary["measured_over"]
    assert (over["starts"], over["attempts"], over["answers"]) == (2, [1, 2], 8 + 2 + 6 + 8 + 2)
    assert over["taken_up"] == sum(2 if row["id"].startswith("pair/") else 1 for row in before) >= 13 - 2
    # What was there is there still, and the plain server had nothing left to do.
    assert kept_rows(second)[: len(before)] == before
    assert summary["engine_starts"] == 1
    for name, prompts in (("in_domain", 6), ("published", 8)):
        figure = summary["acceptance_length"][name]
        assert (figure["prompts"], figure["steps"]) == (prompts, prompts * 12)
    assert (summary["lossless_equal"], summary["lossless_total"]) == (6, 6)
    assert second.lines("progress")[-1]["done"] == over["answers"]


def test_a_stopped_attempt_says_what_it_lost_and_both_halves_of_a_pair_are_of_one_attempt(campaign: Any) -> None:
    # One server after the other: four plain rounds and two answers come first, then the second half of each pair.
    first = cut(campaign, 8, signal.SIGTERM, "cuda")
    kept = [row for row in kept_rows(first) if row["id"].startswith("pair/")]
    assert 0 < len(kept) < 4
    told = " ".join(line["text"] for line in first.lines("note"))
    assert "of 26 answers are kept" in told and "pairs of rounds are lost" in told
    second = campaign.start("bench", "cuda", **SMALL)
    assert second.end() == 0
    pairs = [row for row in kept_rows(second) if row["id"].startswith("pair/")]
    assert [row["attempt"] for row in pairs] == [1] * len(kept) + [2] * (4 - len(kept))
    # The plain server had answered all its rounds; those without their other half it was asked again.
    assert second.summary["engine_starts"] == 2
    assert second.summary["speedup_c1"]["prompts"] == second.summary["cells"][0]["prompts"] == 4


def test_another_build_of_the_engine_begins_anew(campaign: Any) -> None:
    few = {**SMALL, "speed_prompts": 2, "published": 0, "raw_prompts": 0}
    cut(campaign, 4, signal.SIGTERM, **few)
    second = campaign.start("bench", outside={"STAND_IN_VERSION": "newer"}, **few)
    assert second.end() == 0
    found = {line["code"]: line["message"] for line in second.lines("finding")}
    assert "stand-in, and is newer now" in found["bench_begun_anew"]
    assert second.summary["measured_over"]["attempts"] == [2]
    assert second.summary["recipe"]["engine_version"] == "newer"


PROMPTS = [Prompt("a", "chat", "Why?"), Prompt("b", "chat", "How?", "Be short.")]
WAY = Way("mine", 3)


def answered(prompt: Prompt) -> Answer:
    return Answer(prompt, (1, 2), (3, 4, 5), "text", "length", 0.25, Steps.of_order((1, 0)), 3, ((0.1, 1), (0.2, 2)))


def timed(*prompts: Prompt) -> Timed:
    counters = Drafting(4.0, 12.0, 2.0, (2.0, 0.0, 0.0))
    return Timed(Round(tuple(map(answered, prompts)), counters, 0.0, False, 3), 0.5)


def test_parts_come_back_as_they_were_put_in(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, {"depth": 3})
    pair = timed(*PROMPTS), timed(PROMPTS[1])
    kept.keep_answer("published", answered(PROMPTS[0]))
    kept.keep_answer("published", Refusal(PROMPTS[1], "too long"))
    kept.keep_counters("published", pair[0].round.counters)
    kept.keep_pair(WAY, 2, 0, PROMPTS, pair, shared=False)
    kept.close()
    again = Kept(tmp_path, 2, {"depth": 3})
    assert not again.begun_anew and again.attempts == [1] and again.answers == 4
    assert again.answer("published", PROMPTS[0]) == answered(PROMPTS[0])
    assert again.answer("published", PROMPTS[1]) == Refusal(PROMPTS[1], "too long")
    assert again.answer("in_domain", PROMPTS[0]) is None
    assert again.counters("published") == pair[0].round.counters
    assert again.pair(WAY, 2, 0, PROMPTS) == pair
    assert again.pair(WAY, 2, 1, PROMPTS) is None and again.pair(Way("mine", 2), 2, 0, PROMPTS) is None


def test_a_plain_round_beside_several_ways_counts_once(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, {})
    for depth in (1, 2):
        kept.keep_pair(Way("mine", depth), 1, 0, PROMPTS[:1], (timed(PROMPTS[0]), timed(PROMPTS[0])), shared=True)
    assert kept.answers == 3


def test_a_half_written_line_is_dropped_and_garbage_begins_anew(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, {"depth": 3})
    kept.keep_answer("raw", answered(PROMPTS[0]))
    kept.close()
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole + b'{"id": "answer/raw')
    assert Kept(tmp_path, 2, {"depth": 3}).answers == 1
    (tmp_path / FILE).write_bytes(b"\0\n" + whole)
    assert Kept(tmp_path, 2, {"depth": 3}).begun_anew == "they cannot be read"


def test_another_build_forgets_what_was_kept(tmp_path: Path) -> None:
    kept = Kept(tmp_path, 1, {})
    kept.take_build("0.32.0")
    kept.keep_answer("raw", answered(PROMPTS[0]))
    kept.take_build("0.32.0")
    assert kept.answers == 1
    with pytest.raises(AnotherBuild):
        kept.take_build("0.33.0")
    assert kept.answers == 0 and kept.build == "0.33.0"


def test_another_recipe_begins_anew_and_says_what_differs(tmp_path: Path, attempt: Callable[..., Any]) -> None:
    contexts = [attempt("bench"), attempt("bench")]
    kept = take_up(contexts[0], {"parameters": {"depth": 3, "seed": 1}, "machine": "a"})
    kept.keep_answer("raw", answered(PROMPTS[0]))
    kept.close()
    (contexts[1].output / "bench.json").write_text("{}")
    again = take_up(contexts[1], {"parameters": {"depth": 2, "seed": 1}, "machine": "b"})
    assert again.answers == 0 and [path.name for path in again.directory.iterdir()] == [FILE]
    (finding,) = contexts[1].lines("finding")
    assert finding["code"] == "bench_begun_anew" and "machine, parameters.depth." in finding["message"]
