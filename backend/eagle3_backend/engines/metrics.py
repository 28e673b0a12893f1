"""What an engine's Prometheus page says about drafting: counters, their increase between two scrapes, acceptance.

vLLM counts since its start, so every figure is taken from the difference of two scrapes. The counters are absent until
the first draft, which reads as zero. SGLang counts verify steps alone and shows the acceptance of its last log interval
as gauges: its accepted tokens are estimated from the two, and it says nothing by position.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Mapping, Optional, Tuple

Series = Tuple[str, Tuple[Tuple[str, str], ...]]
"""A metric name with its sorted (label, value) pairs."""

_SAMPLE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?[ \t]*$")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_GLUED = re.compile(r"^[^#{]*?(?=(?:vllm|sglang):\w+\{)")
"""What a progress meter on the same line leaves before a sample."""
_ESCAPE = re.compile(r"\\(.)")

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_AT = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
GENERATED = "vllm:generation_tokens_total"

SGLANG_VERIFIES = "sglang:spec_verify_calls_total"
SGLANG_LENGTH = "sglang:spec_accept_length"
SGLANG_STEPS = "sglang:spec_num_steps"
SGLANG_GENERATED = "sglang:generation_tokens_total"
SGLANG_RUNNING = "sglang:num_running_reqs"
SGLANG_WAITING = "sglang:num_queue_reqs"


@dataclass(frozen=True)
class Scrape:
    """The samples of one page by series. Lines that are not samples (comments, a progress meter) are no part of it."""

    samples: Mapping[Series, float]

    def total(self, name: str, **labels: str) -> float:
        """Sum over every series of this name that carries these labels, so over all engines of a server; 0 if none."""
        wanted = set(labels.items())
        return sum(value for (found, pairs), value in self.samples.items() if found == name and wanted <= set(pairs))

    def mean(self, name: str) -> Optional[float]:
        """Mean of the positive values of a gauge over all engines and ranks, None where none is positive."""
        values = [value for (found, _), value in self.samples.items() if found == name and value > 0]
        return sum(values) / len(values) if values else None

    def positions(self) -> int:
        """How many draft positions the server reports: its depth, 0 without a drafter."""
        places = (dict(pairs).get("position", "") for name, pairs in self.samples if name == ACCEPTED_AT)
        return max((int(place) for place in places if re.fullmatch("[0-9]{1,3}", place)), default=-1) + 1


def parse(text: str) -> Scrape:
    """Read the Prometheus text format (https://prometheus.io/docs/instrumenting/exposition_formats/)."""
    samples: Dict[Series, float] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line) or _SAMPLE.match(_GLUED.sub("", line, count=1))
        if not match:
            continue
        name, labels, number = match.groups()
        try:
            value = float(number)
        except ValueError:
            continue
        pairs = tuple(sorted((label, _unescape(content)) for label, content in _LABEL.findall(labels or "")))
        samples[(name, pairs)] = value
    return Scrape(samples)


def _unescape(value: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match.group(1) == "n" else match.group(1), value)


@dataclass(frozen=True)
class Increase:
    """What was counted between two scrapes. ``reset`` says that a counter fell: a server process was restarted in
    between, and of that one only what it counted since is known."""

    scrape: Scrape
    reset: bool


def increase(before: Scrape, after: Scrape) -> Increase:
    """The difference of the counters of two scrapes, series by series: one engine's restart is not hidden by the growth
    of another. Gauges are left out, as they may fall without any restart."""
    grown: Dict[Series, float] = {}
    reset = False
    for series, value in after.samples.items():
        if series[0].endswith("_total"):
            known = before.samples.get(series, 0.0)
            reset = reset or value < known
            grown[series] = value if value < known else value - known
    return Increase(Scrape(grown), reset)


@dataclass(frozen=True)
class Drafting:
    """Counts of one window: ``drafts`` verify steps with a draft, ``drafted`` and ``accepted`` draft tokens, and the
    accepted ones by draft position."""

    drafts: float
    drafted: float
    accepted: float
    by_position: Tuple[float, ...] = ()
    exact: bool = True

    @property
    def length(self) -> Optional[float]:
        """Acceptance length, tokens a step with the target's own token: 1 + accepted / drafts. None: no draft."""
        return 1.0 + self.accepted / self.drafts if self.drafts else None

    @property
    def rate(self) -> Optional[float]:
        """Accepted share of the drafted tokens. None: nothing drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def position_rates(self) -> Tuple[float, ...]:
        """Share of the drafts whose token at this position was accepted; empty without a draft."""
        return tuple(count / self.drafts for count in self.by_position) if self.drafts else ()

    @property
    def contradicts_itself(self) -> bool:
        """Whether the counts break sum of positions = accepted, drafted <= depth x drafts, or that a position is
        accepted only where the one before it was."""
        if self.accepted > self.drafted:
            return True
        places = self.by_position
        return bool(places) and (
            sum(places) != self.accepted
            or self.drafted > len(places) * self.drafts
            or any(later > earlier for earlier, later in zip((self.drafts, *places), places))
        )


def added(parts: Iterable[Drafting]) -> Drafting:
    """The counts of several windows together; by position only where each of them with a draft tells it."""
    parts = list(parts)
    counted = [part for part in parts if part.drafts]
    told = all(part.by_position for part in counted)
    places = max((len(part.by_position) for part in counted), default=0) if told else 0
    return Drafting(
        sum(part.drafts for part in counted),
        sum(part.drafted for part in counted),
        sum(part.accepted for part in counted),
        tuple(sum(sum(part.by_position[place : place + 1]) for part in counted) for place in range(places)),
        exact=all(part.exact for part in parts),
    )


def drafting(window: Scrape) -> Drafting:
    """vLLM's drafting counts of a window (`increase`) or of a server's whole life (one scrape), engines added up."""
    return Drafting(
        drafts=window.total(DRAFTS),
        drafted=window.total(DRAFTED),
        accepted=window.total(ACCEPTED),
        by_position=tuple(window.total(ACCEPTED_AT, position=str(place)) for place in range(window.positions())),
    )


def verify_steps(scrape: Scrape) -> float:
    """Verify steps with a draft that a server of either engine has counted since its start."""
    return scrape.total(DRAFTS) + scrape.total(SGLANG_VERIFIES)


def sglang_drafting(window: Scrape, after: Scrape) -> Drafting:
    """The counts of a window of SGLang: verify steps from its counter, the rest from the gauges at its end."""
    drafts, length = window.total(SGLANG_VERIFIES), after.mean(SGLANG_LENGTH)
    if not drafts or length is None:
        return Drafting(0.0, 0.0, 0.0, exact=False)
    return Drafting(drafts, drafts * (after.mean(SGLANG_STEPS) or 0.0), drafts * (length - 1.0), exact=False)


def sglang_responses(answers: Iterable[Mapping[str, Any]]) -> Drafting:
    """The exact counts of these responses of SGLang, from the ``meta_info`` of each; those without a draft add none."""
    drafts = drafted = accepted = 0.0
    for answer in answers:
        drafts += answer.get("spec_verify_ct") or 0
        drafted += answer.get("spec_num_proposed_drafts") or 0
        accepted += answer.get("spec_num_correct_drafts") or 0
    return Drafting(drafts, drafted, accepted)


def sglang_server_length(info: Mapping[str, Any]) -> Optional[float]:
    """Mean acceptance length of a server's whole life, from SGLang's ``/server_info``; None before its first draft.

    Each scheduler process tells its own; those that never drafted tell none.
    """
    states = info.get("internal_states") or ()
    lengths = [state["avg_spec_accept_length"] for state in states if state.get("avg_spec_accept_length")]
    return sum(lengths) / len(lengths) if lengths else None


def length_at(position_rates: Tuple[float, ...], depth: int) -> float:
    """Acceptance length that a shallower ``depth`` would give, from the acceptance by position of a deeper draft.

    A chain of drafts stops at its first rejection, so position i does not know how deep the draft goes on. It stays an
    estimate: with another depth the verify steps start at other tokens.
    """
    return 1.0 + sum(position_rates[:depth])


@dataclass(frozen=True)
class Window:
    """What a server did between two scrapes ``seconds`` apart, and how many requests it holds at the end."""

    seconds: float
    drafting: Drafting
    generated: float
    running: float
    waiting: float
    reset: bool

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens a second over all requests."""
        return self.generated / self.seconds

    def values(self) -> Dict[str, float]:
        """The window as metrics by name; no acceptance where nothing was drafted."""
        found = {
            "requests_running": self.running,
            "requests_waiting": self.waiting,
            "tokens_per_second": self.tokens_per_second,
        }
        if self.drafting.length is not None:
            found["acceptance_length"] = self.drafting.length
            found["drafts"], found["accepted"] = self.drafting.drafts, self.drafting.accepted
            rates = enumerate(self.drafting.position_rates, start=1)
            found |= {f"acceptance_at_{place}": rate for place, rate in rates}
        return found


def window(before: Scrape, after: Scrape, seconds: float) -> Window:
    """The window between two scrapes of one server of either engine; ``seconds`` > 0."""
    grown = increase(before, after)
    sglang = any(name.startswith("sglang:") for name, _ in after.samples)
    return Window(
        seconds=seconds,
        drafting=sglang_drafting(grown.scrape, after) if sglang else drafting(grown.scrape),
        generated=grown.scrape.total(SGLANG_GENERATED if sglang else GENERATED),
        running=after.total(SGLANG_RUNNING if sglang else RUNNING),
        waiting=after.total(SGLANG_WAITING if sglang else WAITING),
        reset=grown.reset,
    )
