"""The pipeline: every stage with glyph, word and what is worth knowing; one column, or two where it is low."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.cells import cell_len
from rich.text import Text
from textual.message import Message

from eagle3_backend.control.snapshot import HostView, Snapshot, StageView
from eagle3_backend.states import RESUMABLE, LinkState, RunState
from eagle3_tui.bindings import bindings
from eagle3_tui.drawing import bar
from eagle3_tui.text import clean, clock_span, fit, percent, shorten, size, span
from eagle3_tui.theme import Piece
from eagle3_tui.widgets import facts
from eagle3_tui.widgets.header import age_words
from eagle3_tui.widgets.picture import Picture

NAME = 9
STATE = 8


@dataclass(frozen=True)
class Stages:
    """The pipeline's part of the snapshot: link and time of the data for the title, the log for its size."""

    stages: tuple[StageView, ...] = ()
    host: HostView = field(default_factory=lambda: HostView(""))
    log_of: str = ""
    log_bytes: int = 0
    campaign: str = ""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Stages:
        # A live link's age and latency change all the time and are not drawn here.
        live = snapshot.host.link is LinkState.LIVE
        host = HostView("", LinkState.LIVE) if live else snapshot.host
        return cls(snapshot.stages, host, snapshot.log.stage, snapshot.log.bytes, snapshot.campaign)


class Pipeline(Picture, can_focus=True):
    """Holds the selection. Until the operator moves it, it follows the stage that is at work."""

    BINDINGS = bindings("pipeline", "list")

    class Selected(Message):
        """The selection moved."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.selected = ""
        self.moved = False
        self.marked: frozenset[str] = frozenset()
        self.empty = "reading the profile"

    @property
    def stages(self) -> tuple[StageView, ...]:
        return self.part.stages if self.part else ()

    @property
    def view(self) -> StageView | None:
        """The selected stage."""
        return next((view for view in self.stages if view.name == self.selected), None)

    @property
    def marked_in_order(self) -> tuple[str, ...]:
        return tuple(view.name for view in self.stages if view.name in self.marked)

    def show(self, part: Stages) -> None:
        before = self.selected
        if self.part is not None and part.campaign != self.part.campaign:
            self.marked = frozenset()
        if not self.moved or not any(view.name == before for view in part.stages):
            self.selected = _worth_looking_at(part.stages)
        super().show(part)
        if self.selected != before:
            self.redraw()
            self.post_message(self.Selected())

    def _move(self, step: int) -> None:
        names = [view.name for view in self.stages]
        if names:
            at = names.index(self.selected) if self.selected in names else 0
            self.select(names[min(len(names) - 1, max(0, at + step))])

    def select(self, name: str) -> None:
        """Mark this stage; from now on the mark stays where the operator put it."""
        self.moved = True
        if name != self.selected:
            self.selected = name
            self.redraw()
            self.post_message(self.Selected())

    def action_mark(self) -> None:
        """Mark the selected stage for the next start, or take its mark off."""
        if self.view is not None:
            self.marked ^= {self.selected}
            self.redraw()

    def step_out(self) -> bool:
        """Take all marks off, if there are any."""
        had, self.marked = bool(self.marked), frozenset()
        self.redraw()
        return had

    def action_up(self) -> None:
        self._move(-1)

    def action_down(self) -> None:
        self._move(1)

    def action_first(self) -> None:
        self._move(-len(self.stages))

    def action_last(self) -> None:
        self._move(len(self.stages))

    def title(self, width: int) -> Text:
        done = sum(view.fresh for view in self.stages)
        counted = f"{done} of {len(self.stages)} done" if self.stages else ""
        age = age_words(self.part.host, self.panel.monotonic()) if self.part else ""
        marks = f"{len(self.marked)} marked" if self.marked else ""
        words = self.look.joined(["Pipeline", counted, marks, age, "runs go on on the host" if age else ""])
        return Text(shorten(words, width, self.look.glyph("more")))

    def lines(self, width: int, height: int) -> list[Text]:
        if not self.stages:
            return facts.wrapped(self.look, self.empty, width - 1, "dim", "  ")
        if height >= len(self.stages) and width < 76:
            return self._one_column(width, height)
        return self._two_columns(width, height)

    def _one_column(self, width: int, height: int) -> list[Text]:
        told = self._told()
        room = height - len(self.stages)
        lines = []
        for view in self.stages:
            lines.append(self.look.line(*self._row(view, width)))
            if view is told:
                lines += self._under(view, width)[: max(0, room)]
        return lines

    def _two_columns(self, width: int, height: int) -> list[Text]:
        half = (len(self.stages) + 1) // 2
        column = width // 2
        rows = []
        for index in range(half):
            pair = [*self.stages[index : index + 1], *self.stages[index + half : index + half + 1]]
            pieces: list[Piece] = []
            for view in pair:
                pieces += self._row(view, column)
            rows.append(self.look.line(*pieces))
        told = self._told()
        if height <= half:
            return _window(rows, height, [view.name for view in self.stages].index(self.selected) % half)
        return [*rows, *([self._line_about(told, width)] if told is not None else [])]

    def _told(self) -> StageView | None:
        """The stage whose progress is told: the selected one if it is at work, else one that is, else the selected."""
        view = self.view
        if view is not None and facts.at_work(view):
            return view
        busy = [one for one in self.stages if facts.at_work(one)]
        return busy[-1] if busy else view

    def _row(self, view: StageView, width: int) -> list[Piece]:
        here = view.name == self.selected
        state = view.last_state or view.state
        glyph, role = self.look.run(state)
        if view.last_state is not None:
            role = "dim"
        if view.state is RunState.DONE and view.outdated_by:
            glyph, role = self.look.glyph("warn"), "warn"
        marked = view.name in self.marked
        marker = (self.look.glyph("here") if here else " ") + (self.look.glyph("mark") if marked else " ")
        name = fit(clean(view.name, 32), NAME)
        used = len(marker) + 2 + NAME + 1 + STATE + 1
        tail, tail_role = self._tail(view, width - used - 1)
        if marked:
            tail, tail_role = self.look.joined(["marked", tail]), "accent"
        return [
            (marker, "accent bold"),
            (f"{glyph} ", role),
            (f"{name} ", "text bold" if here else "text"),
            (fit(state.value, STATE) + " ", role),
            (fit(self.look.remote(tail), width - used, self.look.glyph("more")), tail_role),
        ]

    def _tail(self, view: StageView, room: int) -> tuple[str, str]:
        """The most telling thing that fits in the rest of a row."""
        why = facts.reason(view)
        if view.state in (RunState.FAILED, RunState.CRASHED, RunState.LOST):
            return why or clock_span(view.elapsed), "bad"
        if view.outdated_by and not view.state.is_active:
            return why, "warn"
        if facts.at_work(view):
            share = facts.share(view)
            done = percent(share * 100) if share is not None else ""
            if room < 13 or view.elapsed is None:
                return done or (clock_span(view.elapsed) if room >= 8 else ""), "text"
            return f"{clock_span(view.elapsed)}  {done}", "text"
        if view.as_of is not None and view.last_state is not None:
            return f"{span(self.panel.monotonic() - view.as_of)} ago", "dim"
        if view.state is RunState.UNKNOWN and not view.remark:
            return "", "dim"
        if view.state is RunState.BLOCKED and not view.remark:
            return facts.needs_words(view, room), "dim"
        if view.state in (RunState.BLOCKED, RunState.READY, RunState.QUEUED, RunState.STOPPED):
            return why, "dim"
        time = clock_span(view.elapsed) if view.elapsed is not None else ""
        result = facts.result_words(view)[0]
        both = f"{time}  {result}".strip()
        return (both if len(both) <= room else result or time) or why, "text" if result else "dim"

    def _about(self, view: StageView) -> str:
        """Why a stage does not run and what can be done about it, or what came out of it."""
        why = facts.reason(view) or facts.result_words(view)[1]
        return self.look.joined([why, "u resumes"]) if view.attempt and view.state in RESUMABLE else why

    def _under(self, view: StageView, width: int) -> list[Text]:
        """Two lines under the told stage: a bar, then eta, heartbeat and attempt."""
        look = self.look
        if not facts.at_work(view):
            return facts.wrapped(look, self._about(view), width - 1, "dim", "    ")
        share = facts.share(view)
        words = facts.progress_words(view)
        first: list[Piece] = ["    ", (f"{percent(share * 100)} ", "text")] if share is not None else ["    "]
        if share is not None:
            room = min(20, max(4, width - 12 - len(words)))
            first.append((bar(share, room, look.glyph("full"), look.glyph("empty")), "active"))
            words = words if width >= 12 + room + len(words) else ""
        waiting = "" if share is not None else _waiting(view)
        first.append((f" {words}" if share is not None else words or waiting, "dim"))
        beat = facts.beat_words(view)
        told = [f"eta {span(view.eta)}" if view.eta is not None else "", beat[0] if beat else ""]
        told.append(f"attempt {view.attempt}" if view.attempt else "")
        role = beat[1] if beat else "dim"
        second = look.line((fit(f"    {look.joined(told)}", width, look.glyph("more")), role))
        return [look.line(*first), second]

    def _line_about(self, view: StageView, width: int) -> Text:
        look = self.look
        share = facts.share(view)
        if not facts.at_work(view):
            about = self._about(view) or facts.progress_words(view) or clean(view.title, 60)
            words = look.remote(f"{clean(view.name, 32)}: {about}")
            return look.line(("  " + shorten(words, width - 2, look.glyph("more")), "dim"))
        words = facts.progress_words(view) or _waiting(view)
        beat = facts.beat_words(view)
        told = [f"eta {span(view.eta)}" if view.eta is not None else "", beat[0] if beat else ""]
        shown = self.part
        told.append(f"log {size(shown.log_bytes)}" if shown.log_of == view.name and shown.log_bytes else "")
        left = f"  {look.remote(clean(view.name, 32))}: {look.remote(words)} "
        right = "  ".join(one for one in told if one)
        room = min(40, width - cell_len(left) - len(right) - 3)
        pieces: list[Piece] = [(left, "text")]
        if share is not None and room >= 6:
            pieces += [(bar(share, room, look.glyph("full"), look.glyph("empty")), "active"), " "]
        pieces.append((right, beat[1] if beat else "dim"))
        return look.line(*pieces)


def _waiting(view: StageView) -> str:
    """What is said of a stage at work without progress; a service has none."""
    return "v shows the service" if view.name == "serve" else "waiting for first data"


def _worth_looking_at(stages: tuple[StageView, ...]) -> str:
    """The stage at work, else one that ended badly, else the first neither done nor blocked, else the last done."""
    busy = [view for view in stages if facts.at_work(view)]
    if busy:
        return busy[-1].name
    for view in stages:
        if view.state in (RunState.FAILED, RunState.CRASHED, RunState.LOST) and not view.fresh:
            return view.name
    for view in stages:
        if not (view.fresh or view.state in (RunState.DONE, RunState.BLOCKED)):
            return view.name
    done = [view for view in stages if view.fresh]
    return done[-1].name if done else stages[0].name if stages else ""


def _window(rows: list[Text], height: int, at: int) -> list[Text]:
    """``height`` of the rows, with row ``at`` among them."""
    start = min(max(0, at - height + 1), max(0, len(rows) - height))
    return rows[start : start + height]
