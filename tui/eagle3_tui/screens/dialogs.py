"""Questions and messages: the top layer, which owns its keys. Every one of them can be left with esc."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from eagle3_backend.control.commands import DryRun, Forecast
from eagle3_backend.control.snapshot import HostView, Snapshot, StageView
from eagle3_backend.findings import Finding
from eagle3_backend.pipeline.stages import STAGES, in_order
from eagle3_tui.bindings import bindings
from eagle3_tui.keymap import Key, in_scope, name_of
from eagle3_tui.screens.painting import PaintedOnce
from eagle3_tui.text import clean, size, span
from eagle3_tui.widgets.facts import finding_lines, wrapped
from eagle3_tui.widgets.logpane import words_of

if TYPE_CHECKING:
    from eagle3_tui.app import Panel
    from eagle3_tui.theme import Look

Answer = TypeVar("Answer")
WIDTH = 72
GRACE_SECONDS = 5
READ = ("dialog", "list", "scroll")
"""The scopes of every dialog: leaving it, and scrolling where it is longer than the terminal."""


class Dialog(PaintedOnce, ModalScreen[Answer]):
    """A box with a title, text and its keys. ``severity`` colours the border."""

    heading = ""
    severity = ""
    yes = "go on"
    keys: tuple[str, ...] = ("confirm", "dialog")

    @property
    def panel(self) -> Panel:
        return cast("Panel", self.app)

    @property
    def look(self) -> Look:
        return self.panel.look

    @property
    def room(self) -> int:
        """Cells for a line of text."""
        return max(20, min(WIDTH, self.app.size.width - 2) - 6)

    def body(self) -> list[Text]:
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="box", classes=self.severity, can_focus=False) as box:
            box.border_title = Text(clean(self.heading, 60))  # a Text is never read as markup
            yield Static(id="keys")
            yield Static(id="text")
            yield from self.more()

    def more(self) -> ComposeResult:
        """Widgets between the text and the keys."""
        yield from ()

    def on_mount(self) -> None:
        self.renew()

    def on_resize(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Write the text again."""
        self.query_one("#text", Static).update(Text("\n").join(self.body()))
        pieces: list[tuple[str, str]] = []
        for key in self.shown_keys():
            words = self.yes if key.id == "yes" else key.help
            pieces += [(name_of(key.keys[0], self.look.ascii_only), "accent bold"), (f" {words}   ", "dim")]
        self.query_one("#keys", Static).update(self.look.line(*pieces))

    def shown_keys(self) -> list[Key]:
        return [key for scope in self.keys for key in in_scope(scope)]

    def action_no(self) -> None:
        self.dismiss(None)

    @property
    def _box(self) -> VerticalScroll:
        return self.query_one("#box", VerticalScroll)

    def action_up(self) -> None:
        self._box.scroll_up(animate=False)

    def action_down(self) -> None:
        self._box.scroll_down(animate=False)

    def action_page_back(self) -> None:
        self._box.scroll_page_up(animate=False)

    def action_page_on(self) -> None:
        self._box.scroll_page_down(animate=False)

    def action_first(self) -> None:
        self._box.scroll_home(animate=False)

    def action_last(self) -> None:
        self._box.scroll_end(animate=False)


def forecast_words(total: Mapping[str, Any]) -> str:
    """ "about 17m, 5.9 GB of disk, cost 1.40", as far as it is known."""
    seconds, cost = total.get("seconds"), total.get("cost")
    words = [f"about {span(seconds)}" if seconds is not None else "time unknown"]
    words.append(f"{size(total.get('bytes'))} of disk")
    if cost:
        words.append(f"cost {cost:.2f}")
    return ", ".join(words)


class StartDialog(Dialog[tuple[str, ...]]):
    """Which chain to start; answers with its last stage, or with the marked ones."""

    BINDINGS = bindings("confirm", "start", *READ)
    keys = ("confirm", "start", "dialog")
    heading = "Start"
    yes = "start"

    def __init__(self, snapshot: Snapshot, choices: Sequence[tuple[str, ...]], last: bool) -> None:
        """Each choice has the last stages of a chain; ``last``: the last choice comes first."""
        super().__init__()
        self._snapshot = snapshot
        self._choices = list(dict.fromkeys(names for names in choices if all(name in STAGES for name in names)))
        self._at = len(self._choices) - 1 if last else 0
        self._forecasts: dict[tuple[str, ...], str] = {}
        self._previews: dict[tuple[str, ...], list[Text]] = {}

    def on_mount(self) -> None:
        self._ask()

    def _ask(self) -> None:
        """What it takes, and what stands against it; nobody has to wait for the answers."""
        through = self._choices[self._at]

        def told(answer: Mapping[str, Any]) -> None:
            self._forecasts[through] = forecast_words(answer["total"])
            if self.is_attached:
                self.renew()

        def preview(answer: Mapping[str, Any]) -> None:
            from eagle3_tui.startfacts import preview_lines

            show(preview_lines(answer, self._snapshot.host.machine, self.look, self.room))

        def refused(problem: BaseException) -> None:
            show(wrapped(self.look, f"not checked: {words_of(problem)}", self.room, "warn"))

        def show(lines: list[Text]) -> None:
            self._previews[through] = lines
            if self.is_attached:
                self.renew()

        if through not in self._forecasts:
            self.panel.inquire(Forecast(through[-1], through[:-1]), told)
            self.panel.inquire(DryRun(through[-1], through[:-1]), preview, refused)

    def body(self) -> list[Text]:
        look, through = self.look, self._choices[self._at]
        fresh = {view.name for view in self._snapshot.stages if view.fresh and not view.outdated_by}
        needed = in_order({name for last in through for name in self._snapshot.needed(last)})
        chain = [name for name in needed if name not in fresh]
        lines = [*self._chosen(), Text("")]
        if chain:
            lines += wrapped(look, "will run: " + f" {look.glyph('to')} ".join(chain), self.room)
            lines += wrapped(look, f"forecast: {self._forecasts.get(through, 'asking the host')}", self.room)
            lines += self._previews.get(through, [])
        else:
            lines += wrapped(look, f"everything through {', '.join(through)} is done; nothing will run", self.room)
        if done := [name for name in needed if name in fresh]:
            lines += wrapped(look, "done already: " + ", ".join(done), self.room, "dim")
        return [*lines, Text("")]

    def _chosen(self) -> list[Text]:
        look = self.look
        if len(self._choices[0]) > 1:
            return wrapped(look, f"{look.glyph('mark')} marked: {', '.join(self._choices[0])}", self.room, "text bold")
        choice: list[tuple[str, str]] = [("through  ", "dim")]
        for index, names in enumerate(self._choices):
            here = index == self._at
            mark = look.glyph("here") if here else " "
            choice.append((f"{mark} {names[0]}   ", "text bold" if here else "dim"))
        return [look.line(*choice)]

    def shown_keys(self) -> list[Key]:
        return [key for key in super().shown_keys() if key.id != "other" or len(self._choices) > 1]

    def action_other(self) -> None:
        self._at = (self._at + 1) % len(self._choices)
        self._ask()
        self.renew()

    def action_yes(self) -> None:
        self.dismiss(self._choices[self._at])


class StopDialog(Dialog[bool]):
    """Confirm a stop, then wait a few seconds in which it can be taken back."""

    BINDINGS = bindings("confirm", "grace", *READ)
    severity = "warning"
    yes = "stop"

    def __init__(self, stage: str) -> None:
        super().__init__()
        self._stage = clean(stage, 40)
        self._left = 0
        self.heading = f"Stop {clean(stage, 40)}"

    def body(self) -> list[Text]:
        if self._left:
            return [self.look.line((f"{self._stage} is asked to stop in {self._left} s", "warn bold")), Text("")]
        words = f"{self._stage} saves its work and leaves; it can be resumed. What is queued behind it does not start."
        return [*wrapped(self.look, words, self.room), Text("")]

    def shown_keys(self) -> list[Key]:
        return in_scope("grace", "dialog") if self._left else in_scope("confirm", "dialog")

    def action_yes(self) -> None:
        if self._left:
            self.dismiss(True)
            return
        self._left = GRACE_SECONDS
        self.set_interval(1.0, self._second)
        self.renew()

    def action_now(self) -> None:
        if self._left:
            self.dismiss(True)

    def _second(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.dismiss(True)
        else:
            self.renew()


class ConfirmDialog(Dialog[bool]):
    """One sentence, and whether to go on."""

    BINDINGS = bindings("confirm", *READ)
    severity = "warning"

    def __init__(self, heading: str, words: str, yes: str) -> None:
        super().__init__()
        self.heading, self.yes = heading, yes
        self._words = words

    def body(self) -> list[Text]:
        return [*wrapped(self.look, self._words, self.room), Text("")]

    def action_yes(self) -> None:
        self.dismiss(True)


def restart_dialog(view: StageView | None) -> ConfirmDialog:
    attempt = f"attempt {view.attempt} is kept" if view and view.attempt else "nothing has run yet"
    words = f"A new attempt from the start; {attempt} and its artifact is set aside under another name."
    return ConfirmDialog(f"Restart {view.name if view else ''}", words, "restart")


class MessageDialog(Dialog[bool]):
    """Findings or words that only need to be read."""

    BINDINGS = bindings("message", *READ)
    keys = ("message", "dialog")
    severity = "error"

    def __init__(
        self, heading: str, findings: tuple[Finding, ...] = (), words: str = "", severity: str = "error"
    ) -> None:
        super().__init__()
        self.heading, self.severity = heading, severity
        self._findings = findings
        self._words = words

    def body(self) -> list[Text]:
        lines: list[Text] = []
        for finding in self._findings:
            lines += [*finding_lines(finding, self.look, self.room), Text("")]
        if self._words:
            lines += [*wrapped(self.look, self._words, self.room), Text("")]
        return lines

    def action_copy(self) -> None:
        self.panel.copy("\n".join(line.plain for line in self.body()))


class HostKeyDialog(Dialog[str]):
    """An unknown host key: accept it once, save it, or (the default) cancel. Answers "once" or "save"."""

    BINDINGS = bindings("host key", *READ)
    keys = ("host key", "dialog")
    severity = "warning"
    heading = "Unknown host key"

    def __init__(self, host: HostView) -> None:
        super().__init__()
        self._host = host

    def body(self) -> list[Text]:
        look = self.look
        asked = f"{clean(self._host.name, 120)} is not in known_hosts."
        if self._host.problem is not None:
            asked = clean(self._host.problem.message, 400)
        return [
            *wrapped(look, asked, self.room),
            Text(""),
            *wrapped(look, clean(self._host.offered_key, 300), self.room, "accent bold", "  "),
            Text(""),
            *wrapped(look, "Compare it with what the host's owner says. Nothing has been sent to it.", self.room),
            Text(""),
        ]

    def action_once(self) -> None:
        self.dismiss("once")

    def action_save(self) -> None:
        self.dismiss("save")


def changed_key_words(host: HostView) -> str:
    """What to do about a changed key. There is no key to accept it here."""
    name = clean(host.name, 120)
    return (
        "Nothing is sent to this host. If it was reinstalled or replaced on purpose, check the new fingerprint with "
        f"its owner first, then run: eagle3-tui hosts rebind {name}"
    )
