"""Speed of a way to draft beside the target alone, at a number of requests in flight: one cell of a bench's table.

Requests are asked in rounds: as many at once as are in flight, the same prompts to both servers, in turn which first.
A request's speed is its tokens over its seconds, prefill and waiting included, so that speeds are paired by prompt at
any load. Requests of one round share what the machine was doing, so intervals are a bootstrap over rounds and over the
prompts in them; with one in flight that is over prompts. A round in which a server worked for somebody else is left out
on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from eagle3_backend.engines.answers import Answer
from eagle3_backend.engines.rounds import Rounds
from eagle3_backend.engines.statistics import Interval
from eagle3_backend.engines.timing import Timed, over_rounds, row_of

NONE, MINE, NGRAM, OWN_HEAD, SERVED = "none", "mine", "ngram", "mtp", "served"
"""Ways to draft; served is whatever a server was started with that this product did not start."""
ROUNDS = 4
"""Rounds at least at every load: an interval over fewer says nothing."""


@dataclass(frozen=True)
class Way:
    """A way to draft: its name, the tokens it proposes a step, and the drafter's directory where it has one."""

    name: str
    depth: int
    directory: str = ""

    @property
    def words(self) -> str:
        return f"{self.name} at depth {self.depth}"


@dataclass(frozen=True)
class Pair:
    """One prompt at one load, with a way to draft and without."""

    drafted: Answer
    plain: Answer

    @property
    def speeds(self) -> Tuple[float, float, float, float]:
        """(tokens with, seconds with, tokens without, seconds without)."""
        return self.drafted.generated, self.drafted.seconds, self.plain.generated, self.plain.seconds


@dataclass(frozen=True)
class Cell:
    """The rounds of one way at one load, and those of the target alone beside each of them."""

    way: Way
    concurrency: int
    drafted: Tuple[Timed, ...]
    plain: Tuple[Timed, ...]

    @property
    def kept(self) -> List[Tuple[Timed, Timed]]:
        """(drafted, plain) of the rounds in which both servers worked for us alone."""
        return [both for both in zip(self.drafted, self.plain) if all(each.round.ours for each in both)]

    @property
    def rounds(self) -> List[List[Pair]]:
        """The prompts that both servers answered, round by round."""
        found = []
        for drafted, plain in self.kept:
            plain_of = {answer.prompt: answer for answer in plain.round.answers}
            both = [Pair(one, plain_of[one.prompt]) for one in drafted.round.answers if one.prompt in plain_of]
            found.append([pair for pair in both if all(pair.speeds)])
        return [pairs for pairs in found if pairs]

    @property
    def pairs(self) -> List[Pair]:
        return [pair for pairs in self.rounds for pair in pairs]

    def speedup(self, resamples: int, seed: int) -> Optional[Interval]:
        """Speed of a request with it over that without, None where no prompt has both."""
        rows = [[pair.speeds for pair in pairs] for pairs in self.rounds]
        return over_rounds(rows, lambda sums: (sums[0] / sums[1]) / (sums[2] / sums[3]), resamples, seed)


def rows_of(cells: Sequence[Cell], resamples: int, seed: int) -> List[Dict[str, Any]]:
    """A row for each cell, and at each load one for the target alone, which stands first."""
    rows: List[Dict[str, Any]] = []
    for concurrency in sorted({cell.concurrency for cell in cells}):
        some = [cell for cell in cells if cell.concurrency == concurrency]
        plain = [plain for cell in some for _, plain in cell.kept]
        rows.append({"way": NONE, "depth": 0, **row_of(plain, concurrency, resamples, seed)})
        for cell in some:
            speedup = cell.speedup(resamples, seed)
            kept = [drafted for drafted, _ in cell.kept]
            rows.append(row_of_way(cell.way, cell.concurrency, cell.drafted, kept, speedup, resamples, seed))
    return rows


def row_of_way(
    way: Way,
    concurrency: int,
    rounds: Sequence[Timed],
    kept: Sequence[Timed],
    speedup: Optional[Interval],
    resamples: int,
    seed: int,
) -> Dict[str, Any]:
    """The row of a way to draft: speeds and waiting times of the rounds that are ``kept``, acceptance of all of them as
    far as it can be told from other traffic."""
    figures = Rounds([timed.round for timed in rounds], way.depth).figures(resamples, seed)
    return {
        "way": way.name,
        "depth": way.depth,
        "directory": way.directory,
        **row_of(kept, concurrency, resamples, seed),
        "rounds_left_out": len(rounds) - len(kept),
        "speedup": speedup.to_json() if speedup else None,
        "acceptance_length": figures,
    }


def recommended(rows: Sequence[Mapping[str, Any]]) -> List[Dict[str, Any]]:
    """For each load, the depth of our drafter that is proven faster than the target alone, and fastest; 0: none is."""
    found = []
    for concurrency in sorted({row["concurrency"] for row in rows}):
        some = [row for row in rows if row["concurrency"] == concurrency and row["way"] == MINE and row["speedup"]]
        if not some:
            continue
        best = max(some, key=lambda row: row["speedup"]["mean"])
        told, speed = interval_words(best["speedup"]), best["speedup"]
        proven = [row for row in some if row["speedup"]["low"] > 1.0]
        if proven:
            best = max(proven, key=lambda row: row["speedup"]["mean"])
            low = best["speedup"]["low"]
            alike = [row["depth"] for row in some if row is not best and row["speedup"]["high"] > low]
            because = f"x{interval_words(best['speedup'])}, the fastest of the depths measured"
            if alike:
                because += f"; not told apart from depth {', '.join(map(str, alike))}"
            depth = int(best["depth"])
        elif all(row["speedup"]["high"] < 1.0 for row in some):
            depth, because = 0, f"every measured depth loses, the best one x{told}"
        else:
            depth, because = 0, f"no measured depth is proven faster, the best one x{told}"
        found.append({"concurrency": concurrency, "depth": depth, "speedup": speed, "because": because})
    return found


def interval_words(value: Mapping[str, float]) -> str:
    return f"{value['mean']:.2f} ({value['low']:.2f} to {value['high']:.2f})"


def need(cells: Sequence[Cell], resamples: int, seed: int) -> List[Dict[str, Any]]:
    """For each load, whether a drafter of one's own is needed: a verdict and the sentence that says why."""
    found = []
    for concurrency in sorted({cell.concurrency for cell in cells}):
        timed = [
            (cell, speed)
            for cell in cells
            if cell.concurrency == concurrency
            for speed in [cell.speedup(resamples, seed)]
            if speed is not None
        ]
        mine = [entry for entry in timed if entry[0].way.name == MINE]
        if not mine:
            continue
        others = [entry for entry in timed if entry[0].way.name != MINE]
        best = max(mine, key=lambda entry: entry[1].mean)
        rival = max(others, key=lambda entry: entry[1].mean, default=None)
        verdict, words = _verdict(best, rival, resamples, seed)
        where = f"With {concurrency} request{'s' if concurrency > 1 else ''} in flight: {words}"
        found.append({"concurrency": concurrency, "verdict": verdict, "words": where})
    return found


_Entry = Tuple[Cell, Interval]


def _verdict(best: _Entry, rival: Optional[_Entry], resamples: int, seed: int) -> Tuple[str, str]:
    mine, speed = best
    told = f"your drafter at depth {mine.way.depth} is x{interval_words(speed.to_json())} of the target alone"
    if rival is None:
        if speed.low > 1.0:
            return "drafter_pays", f"yes, {told}; no other way was measured"
        return ("speculation_loses", f"no, {told}") if speed.high < 1.0 else ("not_proven", f"not proven, {told}")
    other, its = rival
    told += f", {other.way.words} x{interval_words(its.to_json())}"
    ratio = _against(mine, other, resamples, seed)
    beside = f"; paired by prompt, yours over it x{interval_words(ratio.to_json())}" if ratio else ""
    if speed.high < 1.0 and its.high < 1.0:
        return "speculation_loses", f"no, serve without: {told}"
    if ratio is not None and ratio.high < 1.0 and its.low > 1.0:
        return "other_is_better", f"no, {other.way.words} is faster: {told}{beside}"
    if speed.low <= 1.0:
        return "not_proven", f"not proven, {told}"
    if ratio is not None and ratio.low > 1.0:
        return "drafter_pays", f"yes, {told}{beside}"
    if its.low > 1.0:
        return "other_may_do", f"perhaps not, {other.way.words} is not proven slower: {told}{beside}"
    return "drafter_pays", f"yes, it alone is proven faster: {told}"


def _against(mine: Cell, other: Cell, resamples: int, seed: int) -> Optional[Interval]:
    """Our speed-up over the other one's, each beside the target as it was then, paired by prompt."""
    theirs = {pair.plain.prompt: pair.speeds for pair in other.pairs}
    rows = [
        [(*pair.speeds, *theirs[pair.plain.prompt]) for pair in pairs if pair.plain.prompt in theirs]
        for pairs in mine.rounds
    ]

    def of(sums: Sequence[float]) -> float:
        return (sums[0] / sums[1]) / (sums[2] / sums[3]) / ((sums[4] / sums[5]) / (sums[6] / sums[7]))

    return over_rounds(rows, of, resamples, seed)
