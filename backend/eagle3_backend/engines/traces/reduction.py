"""Where the time of decode steps goes: every moment of a step belongs to one category, so the shares sum to one.

Where several streams work at once, matrix products, attention and the like come first; communication that runs under
them costs nothing and is told apart as hidden; what remains of it, and of copies, is exposed. A moment in which nothing
runs is a host gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, DefaultDict, Dict, Iterator, List, Optional, Sequence, Tuple

from eagle3_backend.engines.traces.recording import Place, Recording, own_time, record
from eagle3_backend.engines.traces.rules import CATEGORIES, COMMUNICATION, category_of
from eagle3_backend.engines.traces.steps import Span, Step, Steps, steps_of
from eagle3_backend.findings import Finding, FindingError, error, info

Event = Tuple[float, float, int]
_LEVELS = {**dict.fromkeys(CATEGORIES, 0), "all_reduce": 1, "communication": 1, "copy": 2}
_MATHS = ("attention", "gemm", "moe")


@dataclass
class Timeline:
    """One device, or one thread of a CPU: microseconds of its decode steps.

    ``spent`` is (in the drafter's passes, category) to time, all of it together the time of the steps; ``hidden`` is
    communication under other work. ``step_us`` and ``draft_us`` are of each step, ``draft_us`` with its gaps.
    ``drafter_told_by`` is ``annotations``, ``order`` (what follows the sampler is the drafter's) or empty.
    """

    path: Path
    place: Place
    rank: Any
    on_device: bool
    steps: Steps
    spent: DefaultDict[Tuple[bool, str], float] = field(default_factory=lambda: defaultdict(float))
    hidden: DefaultDict[str, float] = field(default_factory=lambda: defaultdict(float))
    step_us: List[float] = field(default_factory=list)
    draft_us: List[float] = field(default_factory=list)
    names: Dict[str, Tuple[Optional[str], float, int]] = field(default_factory=dict)
    drafter_told_by: str = ""
    findings: List[Finding] = field(default_factory=list)

    @property
    def total(self) -> float:
        return sum(self.spent.values())

    def shares(self) -> Dict[str, float]:
        """Category to share of the steps' time, in the order of `CATEGORIES`; they sum to 1."""
        time = dict.fromkeys(CATEGORIES, 0.0)
        for (drafting, category), spent in self.spent.items():
            time["drafter" if drafting and category != "gap" else category] += spent
        return {category: spent / self.total for category, spent in time.items()} if self.total else time

    def drafter_shares(self) -> Dict[str, float]:
        """What the drafter's passes spend their time with; empty where they are not told apart."""
        time = {category: spent for (drafting, category), spent in self.spent.items() if drafting}
        whole = sum(time.values())
        return {category: time[category] / whole for category in CATEGORIES if category in time} if whole else {}


def timelines(path: Path) -> List[Timeline]:
    """Reduce one trace: a timeline for each device in it, or for the thread that runs the model. Raises FindingError
    `trace_unreadable`, `trace_malformed`, `trace_empty`."""
    recording = record(path)
    if not recording.tracks:
        raise FindingError(_empty(recording))
    places = sorted(recording.tracks) if recording.on_device else [_thread(recording)]
    made = [_timeline(recording, place) for place in places]
    made[0].findings[:0] = recording.findings
    return [timeline for timeline in made if timeline.total] or made[:1]


def _thread(recording: Recording) -> Place:
    """The thread that runs the steps, or where none is marked, the one with the most operators."""
    marked = [place for place in recording.tracks if recording.marks.get(place)]
    return max(marked or recording.tracks, key=lambda place: len(recording.tracks[place]))


def _timeline(recording: Recording, place: Place) -> Timeline:
    track = recording.tracks[place]
    steps = steps_of(recording.marks.get(place, ()))
    rank = recording.rank if recording.rank is not None else place[0]
    made = Timeline(recording.path, place, rank, recording.on_device, steps)
    chosen: Sequence[Step] = steps.chosen
    if not chosen:
        made.findings.append(_without_steps(recording.path))
        chosen = [Step(min(track.begin), max(track.end))]
    events = track.by_begin() if recording.on_device else own_time(track, recording.names)
    reducer = _Reducer(made, recording.names)
    for step, inside in _cut(events, chosen):
        reducer.take(step, inside)
    if not steps.chosen:
        made.step_us, made.draft_us = [], []
    return made


def _cut(events: Iterator[Event], steps: Sequence[Step]) -> Iterator[Tuple[Step, List[Event]]]:
    """The events of each step, in order; one that reaches into the next step is given to both."""
    begins = [step.begin for step in steps]
    inside: List[Event] = []
    at = 0
    for event in events:
        place = bisect_right(begins, event[0]) - 1
        while at < place:
            yield steps[at], inside
            at += 1
            inside = [one for one in inside if one[1] > steps[at].begin]
        reaches_on = at + 1 < len(steps) and event[1] > begins[at + 1]
        if event[1] > begins[at] and (event[0] < steps[at].end or reaches_on):
            inside.append(event)
    for step in steps[at:]:
        inside = [one for one in inside if one[1] > step.begin]
        yield step, inside


class _Reducer:
    def __init__(self, made: Timeline, names: Sequence[str]) -> None:
        self._made = made
        self._names = names

    def take(self, step: Step, events: List[Event]) -> None:
        events = [event for event in events if event[0] < step.end]
        named = [(begin, end, self._count(step, begin, end, number)) for begin, end, number in events]
        draft = step.draft or _draft_by_order(step, named)
        if draft is not None:
            self._made.drafter_told_by = "annotations" if step.draft else "order"
        drafting = self._walk(step, named, draft)
        self._made.step_us.append(step.length)
        self._made.draft_us.append(drafting)

    def _count(self, step: Step, begin: float, end: float, number: int) -> str:
        """The category of an event, whose name is counted."""
        name = self._names[number]
        category = category_of(name)
        _, time, count = self._made.names.get(name, (category, 0.0, 0))
        self._made.names[name] = (category, time + min(end, step.end) - max(begin, step.begin), count + 1)
        return category or "other"

    def _walk(self, step: Step, events: List[Tuple[float, float, str]], draft: Optional[Span]) -> float:
        """Give every moment of the step to a category; answers the time of the drafter's passes."""
        changes: List[Tuple[float, int, str]] = []
        for begin, end, category in events:
            changes += [(max(begin, step.begin), 1, category), (min(end, step.end), -1, category)]
        for span in (draft, step.sample):
            changes += [(edge, 0, "") for edge in span or ()]
        changes.sort()
        running: Counter[str] = Counter()
        at, drafting = step.begin, 0.0
        for time, change, category in [*changes, (step.end, 0, "")]:
            time = min(max(time, step.begin), step.end)
            if time > at:
                drafts = draft is not None and draft[0] <= at < draft[1]
                samples = step.sample is not None and step.sample[0] <= at < step.sample[1]
                self._spend(time - at, [name for name, count in running.items() if count > 0], drafts, samples)
                drafting += (time - at) * drafts
                at = time
            running[category] += change
        return drafting

    def _spend(self, time: float, running: List[str], drafts: bool, samples: bool) -> None:
        if not running:
            self._made.spent[drafts, "gap"] += time
            return
        level = min(_LEVELS[category] for category in running)
        first = [category for category in running if _LEVELS[category] == level]
        for category in first:
            sampling = samples and not drafts and level == 0
            self._made.spent[drafts, "sampling" if sampling else category] += time / len(first)
        for category in running:
            if category in COMMUNICATION and category not in first:
                self._made.hidden[category] += time


def _draft_by_order(step: Step, events: Sequence[Tuple[float, float, str]]) -> Optional[Span]:
    """When the drafter works, where the engine does not mark it: attention after the target's pass is the drafter's,
    and so is a matrix product that follows the sampler, up to the next pass. (The target's head may follow its pass.)
    """
    if step.target_end is None:
        return None
    sampled, begin, last = False, None, step.target_end
    for start, end, category in events:
        if start < step.target_end:
            continue
        sampled = sampled or category == "sampling"
        if begin is None and (category == "attention" or (sampled and category in _MATHS)):
            begin = start
        if begin is not None:
            last = max(last, end)
    return None if begin is None else (begin, min(last, step.end))


def _empty(recording: Recording) -> Finding:
    return error(
        "trace_empty",
        f"{recording.path.name} has no kernels and no operators.",
        path=str(recording.path),
        expected="events of the kinds kernel or cpu_op",
        fix="Profile while requests are answered, with the activities CPU and, where there is one, GPU.",
    )


def _without_steps(path: Path) -> Finding:
    return info(
        "trace_without_steps",
        f"{path.name} marks no decode step: the shares are of the whole trace, prompts and pauses included, and the "
        "drafter is not told apart.",
        path=str(path),
        fix="Profile with the activity CPU, too: with it vLLM and SGLang mark their steps.",
    )
