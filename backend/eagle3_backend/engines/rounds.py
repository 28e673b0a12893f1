"""Acceptance of a server that others may use too: prompts are asked in rounds, between which the counters are read.

A round in which the server generated tokens for somebody else, or was restarted, is left out of what is read off the
counters. What each answer tells of itself holds whatever else the server did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from eagle3_backend.engines.acceptance import judge
from eagle3_backend.engines.answers import Answer, Prompt, counted_of
from eagle3_backend.engines.measured import LOOP_SHARE, LOOPS_TOLERATED, by_source, told_by
from eagle3_backend.engines.metrics import Drafting, Scrape, added, window
from eagle3_backend.engines.statistics import acceptance_interval, repeated_share, share_interval
from eagle3_backend.findings import Finding, error, info, warning


@dataclass(frozen=True)
class Round:
    """Some prompts asked at once: their answers, what the counters grew by, and the tokens generated for others."""

    answers: Tuple[Answer, ...]
    counters: Drafting
    others: float
    reset: bool
    depth: int

    @property
    def ours(self) -> bool:
        """Whether the counters speak of our answers alone."""
        return not self.others and not self.reset


def read_round(before: Scrape, after: Scrape, answers: Sequence[Answer]) -> Round:
    """A round from the scrapes around it. Gauges of running requests lag behind, so only tokens tell of others."""
    seen = window(before, after, 1.0)
    others = seen.generated - sum(answer.generated for answer in answers)
    return Round(tuple(answers), seen.drafting, others, seen.reset, after.positions())


class Rounds:
    """A whole measurement. ``depth`` is what the server says that it drafts, None where it does not."""

    def __init__(self, rounds: Sequence[Round], depth: Optional[int]) -> None:
        self.rounds = list(rounds)
        self.answers = [answer for each in rounds for answer in each.answers]
        deepest = max((len(answer.steps.histogram) - 1 for answer in self.answers), default=0)
        self.depth = depth or max([deepest, *(each.depth for each in rounds)])
        self.ours = [each for each in rounds if each.ours]
        self.told = counted_of(self.answers, self.depth)

    @property
    def counters(self) -> Drafting:
        """The counters over the rounds that were ours alone."""
        return added(each.counters for each in self.ours)

    @property
    def counted(self) -> Drafting:
        """The figures: what the answers tell, else what was counted while the server was ours alone."""
        return self.told if self.told.drafts else self.counters

    @property
    def _counted_rounds(self) -> Sequence[Round]:
        """Those that the figures rest on."""
        return self.rounds if self.told.drafts else self.ours

    @property
    def rows(self) -> List[Tuple[int, int]]:
        """(accepted, verify steps) of each answer, or of each round where answers tell nothing."""
        if self.told.drafts:
            return [(answer.steps.accepted, answer.steps.count) for answer in self.answers if answer.steps.count]
        parts = [each.counters for each in self.ours]
        return [(int(part.accepted), int(part.drafts)) for part in parts if part.drafts]

    @property
    def rows_by_position(self) -> List[List[Tuple[int, int]]]:
        """For each draft position, (accepted there, verify steps) of each of `rows`; none where it is not told."""
        if not self.counted.by_position:
            return []
        if self.told.drafts:
            steps = [answer.steps for answer in self.answers if answer.steps.count]
            return [[(sum(each.histogram[place:]), each.count) for each in steps] for place in self._places]
        parts = [each.counters for each in self.ours if each.counters.drafts]
        return [
            [(int(sum(part.by_position[place - 1 : place])), int(part.drafts)) for part in parts]
            for place in self._places
        ]

    @property
    def _by_prompt(self) -> List[Tuple[Prompt, int, int]]:
        """(prompt, accepted, verify steps) of each: what answers tell, else what was counted where each had a round of
        its own; none where neither is."""
        if self.told.drafts:
            return told_by(self.answers)
        answered = [each for each in self.ours if each.answers]
        if any(len(each.answers) > 1 for each in answered):
            return []
        counted = [(each.answers[0].prompt, each.counters) for each in answered]
        return [(prompt, int(part.accepted), int(part.drafts)) for prompt, part in counted]

    @property
    def _places(self) -> range:
        return range(1, 1 + len(self.counted.by_position))

    def figures(self, resamples: int, seed: int) -> Optional[Dict[str, Any]]:
        """The acceptance with its interval; by source where each prompt has its own. None where nothing was drafted."""
        if not self.counted.drafts:
            return None
        interval = acceptance_interval(self.rows, resamples, seed).to_json()
        return {
            "mean": round(self.counted.length or 1.0, 4),
            "low": interval["low"],
            "high": interval["high"],
            "over": f"{len(self.rows)} {'answers' if self.told.drafts else 'rounds'}",
            "prompts": len({answer.prompt for each in self._counted_rounds for answer in each.answers}),
            "steps": int(self.counted.drafts),
            "depth": self.depth,
            "by_position": [round(rate, 4) for rate in self.counted.position_rates],
            "by_position_intervals": [
                [share_interval(rows, resamples, seed).to_json()[edge] for edge in ("low", "high")]
                for rows in self.rows_by_position
            ],
            "by_source": by_source(self._by_prompt, resamples, seed),
            "source": "answers" if self.told.drafts else "counters" if self.counted.exact else "gauges, estimated",
        }

    def findings(self) -> Iterator[Finding]:
        """What is wrong with the figures, and with what they say."""
        foreign = [each for each in self.rounds if each.others and not each.reset]
        if foreign:
            kept = "Each answer tells its own steps, so acceptance holds." if self.told.drafts else "They are left out."
            yield warning(
                "endpoint_other_traffic",
                f"In {len(foreign)} of {len(self.rounds)} rounds the server worked for others too. {kept} Speeds and "
                "waiting times are those of the other rounds, where there are any.",
                path="endpoint",
                expected=0,
                actual=len(foreign),
                fix="Measure when nobody else asks this server, if speed matters.",
            )
        if not self.counted.drafts:
            yield no_drafts() if self.ours else _never_alone()
            return
        if self.told.drafts and self.ours:
            yield from self._disagreement()
        yield from judge(self.counted)
        loops = sum(repeated_share(answer.tokens) > LOOP_SHARE for answer in self.answers) / len(self.answers)
        if loops > LOOPS_TOLERATED:
            yield warning(
                "acceptance_degenerate_output",
                f"{loops:.0%} of the answers are loops, which any drafter predicts: the figure flatters.",
                path="endpoint",
                expected=f"<= {LOOPS_TOLERATED:.0%}",
                actual=round(loops, 4),
                fix="Measure shorter answers or other prompts.",
            )

    def _disagreement(self) -> Iterator[Finding]:
        told = counted_of([answer for each in self.ours for answer in each.answers], self.depth)
        counters = self.counters
        if told.drafts != counters.drafts or (counters.exact and told.accepted != counters.accepted):
            yield warning(
                "metrics_disagree",
                "The server's counters and what its answers tell differ, though nobody else was served.",
                path="metrics",
                expected={"drafts": told.drafts, "accepted": told.accepted},
                actual={"drafts": counters.drafts, "accepted": counters.accepted},
                fix="A router may spread requests over servers with metrics of their own: give the URL of one.",
            )


def no_drafts() -> Finding:
    """A server that answers and does not draft."""
    return error(
        "no_drafts_counted",
        "The server answered, but counted no draft: it runs without a drafter.",
        path="endpoint",
        expected="> 0 drafts",
        actual=0,
        fix="Start it with --speculative-config (vLLM) or --speculative-algorithm EAGLE3 (SGLang).",
    )


def _never_alone() -> Finding:
    return error(
        "endpoint_never_alone",
        "The server tells no drafting of single answers, and was never ours alone: nothing could be counted.",
        path="endpoint",
        expected="one round without other traffic",
        actual=0,
        fix="Measure while nobody else uses it, or start vLLM with --per-request-spec-decode-metrics detailed.",
    )


def replay_finding(answers: Sequence[Answer], engine: str, dtype: Optional[str]) -> Finding:
    """Whether a replay could prove which drafter the server runs, and what is missing for it."""
    missing = []
    if engine != "vllm":
        missing.append("the accepted tokens of every verify step in order, which only vLLM tells")
    elif not any(answer.steps.in_order for answer in answers):
        missing.append(
            "the accepted tokens of every verify step (vLLM 0.32: --per-request-spec-decode-metrics detailed)"
        )
    if not all(answer.tokens for answer in answers):
        missing.append("token ids of the answers")
    if dtype not in (None, "auto", "float32"):
        missing.append(f"float32 (the server computes in {dtype})")
    if missing:
        return info(
            "replay_not_possible",
            "A replay cannot prove which drafter this server runs. Missing: " + "; ".join(missing) + ".",
            path="endpoint",
            fix="Start a server with these for it; the drafter's own directory is judged without: eagle3-tui check",
        )
    return info(
        "replay_possible",
        "A replay can prove which drafter this server runs, step by step, if it computes in float32, which it does not "
        "tell: answers were greedy, with token ids and the accepted tokens of every step.",
        path="endpoint",
        fix="eagle3-tui diagnose --endpoint URL --drafter DIR --target DIR, with both on the profile's host",
    )
