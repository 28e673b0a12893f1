"""How fast a server answers rounds of requests, and how long one waits for the first token and for the next ones.

A round is some prompts asked at once between two looks at the counters. Requests of one round share what the machine
was doing, so intervals are a bootstrap over rounds and the prompts in them; with one in flight that is over prompts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from eagle3_backend.engines.answers import POLL, Answer, Prompt
from eagle3_backend.engines.metrics import Scrape
from eagle3_backend.engines.rounds import Round, read_round
from eagle3_backend.engines.statistics import Interval, nested_bootstrap, percentile_intervals

PERCENTILES = (0.5, 0.99)


@dataclass(frozen=True)
class Timed:
    """A round on one server, and the seconds until its last answer."""

    round: Round
    seconds: float


def timed_round(scrape: Callable[[], Scrape], ask: Callable[[], Sequence[Answer]]) -> Timed:
    """What ``ask`` asks, all of it at once, between two looks at the counters. Raises what the two raise."""
    before, begin = scrape(), time.monotonic()
    answers = ask()
    seconds = time.monotonic() - begin
    found = read_round(before, scrape(), answers)
    if not found.ours:
        # An engine counts a token after it was sent: what looks like others' may be our own last ones.
        time.sleep(POLL)
        found = read_round(before, scrape(), answers)
    return Timed(found, seconds)


def row_of(rounds: Sequence[Timed], concurrency: int, resamples: int, seed: int) -> Dict[str, Any]:
    """What every server is asked: how fast, and how long one waits for the first token and for the next ones."""
    rounds_of: Dict[Prompt, List[Answer]] = {}
    for timed in rounds:
        if timed.round.answers:
            # The target alone was asked the same round beside each way: that is still one round of prompts.
            rounds_of.setdefault(timed.round.answers[0].prompt, []).extend(timed.round.answers)
    groups = list(rounds_of.values())
    answers = [answer for group in groups for answer in group]
    seconds = sum(timed.seconds for timed in rounds)
    generated = sum(answer.generated for answer in answers)
    each = [[(float(answer.generated), answer.seconds) for answer in group if answer.seconds] for group in groups]
    after = [[_after_the_first(answer) for answer in group if len(answer.arrivals) > 1] for group in groups]
    return {
        "concurrency": concurrency,
        "rounds": len(groups),
        "prompts": len({answer.prompt for answer in answers}),
        "in_flight": round(sum(answer.seconds for answer in answers) / seconds, 2) if seconds else None,
        "tokens_per_second": round(generated / seconds, 2) if seconds else None,
        "tokens_per_second_each": _told(over_rounds(each, _ratio, resamples, seed)),
        "first_token_ms": _percentiles([_firsts(group) for group in groups], resamples, seed),
        "gap_ms": _percentiles([[gap for one in group for gap in one.gaps] for group in groups], resamples, seed),
        "token_ms": _told(over_rounds(after, _ratio, resamples, seed)),
    }


def _ratio(sums: Sequence[float]) -> float:
    return sums[0] / sums[1]


def _told(interval: Optional[Interval]) -> Optional[Dict[str, float]]:
    return interval.to_json() if interval else None


def _firsts(group: Sequence[Answer]) -> List[float]:
    return [answer.arrivals[0][0] for answer in group if answer.arrivals]


def _after_the_first(answer: Answer) -> Tuple[float, float]:
    """Milliseconds and tokens once the first ones have come."""
    return 1000.0 * (answer.arrivals[-1][0] - answer.arrivals[0][0]), float(sum(n for _, n in answer.arrivals[1:]))


def _percentiles(groups: Sequence[Sequence[float]], resamples: int, seed: int) -> Optional[Dict[str, Any]]:
    if not any(groups):
        return None
    scaled = [[1000.0 * value for value in group] for group in groups]
    found = percentile_intervals(scaled, PERCENTILES, resamples, seed)
    return {f"p{100 * share:g}": each.to_json() for share, each in zip(PERCENTILES, found)}


Statistic = Callable[[Sequence[float]], float]


def over_rounds(
    rounds: Sequence[Sequence[Sequence[float]]], statistic: Statistic, resamples: int, seed: int
) -> Optional[Interval]:
    return nested_bootstrap(rounds, statistic, resamples, seed) if any(rounds) else None
