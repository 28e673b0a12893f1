"""A few words with the endpoint: a smoke test that a person can read, as it is said, with what it took."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import TimeoutError as TakesTooLong
from dataclasses import asdict, dataclass
from typing import Any, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container

from eagle3_backend.control.commands import Endpoint
from eagle3_backend.findings import FindingError
from eagle3_tui.bindings import bindings
from eagle3_tui.chatwords import figures_words
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.text import clean
from eagle3_tui.widgets.facts import wrapped
from eagle3_tui.widgets.footer import FooterBar
from eagle3_tui.widgets.header import HeaderBar
from eagle3_tui.widgets.logpane import words_of
from eagle3_tui.widgets.scroller import Scroller
from eagle3_tui.widgets.small import TooSmall

MAX_TOKENS = 256
REDRAW_SECONDS = 0.1
ADDRESS_SECONDS = 10.0
"""How long the address is asked for anew before the old one is tried."""
END = 1_000_000
"""A line further down than any: the pane stops at its last one."""


@dataclass
class Turn:
    """A question, and as much of its answer as has come. ``told`` is what it took, or why there is none."""

    asked: str
    said: str = ""
    told: str = ""
    failed: bool = False


class Transcript(Scroller):
    """All turns; esc cancels an answer first."""

    BINDINGS = bindings("list", "scroll")

    def title(self, width: int) -> Text:
        return Text(self.look.remote(self.look.joined(cast("ChatScreen", self.screen).facts())))

    def all_lines(self, width: int) -> list[Text]:
        return cast("ChatScreen", self.screen).turn_lines(width)

    def text_to_copy(self) -> str:
        return "\n\n".join(f"{turn.asked}\n{turn.said}" for turn in cast("ChatScreen", self.screen).turns)

    def step_out(self) -> bool:
        return cast("ChatScreen", self.screen).cancel()


class ChatScreen(PanelScreen):
    """One conversation with the endpoint at an address; it remembers its turns until it is left."""

    BINDINGS = bindings("chat")
    CSS_PATH = "../theme/serve.tcss"
    AUTO_FOCUS = "Transcript"
    context = "chat"
    stage = "serve"

    def __init__(self, endpoint: Mapping[str, Any]) -> None:
        super().__init__()
        self.turns: list[Turn] = []
        self._endpoint = endpoint
        self._talk: Any = None
        self._drawn = ""

    def compose(self) -> ComposeResult:
        yield HeaderBar(id="header")
        yield TooSmall(id="small")
        with Container(id="body"):
            yield Transcript(classes="panel")
        yield FooterBar(id="footer")

    def on_mount(self) -> None:
        super().on_mount()
        self._talk = self.panel.source.talk(self._endpoint)
        self.query_one(Transcript).focus()
        self.set_interval(REDRAW_SECONDS, self._redraw)
        self.call_after_refresh(self.action_say)

    def on_unmount(self) -> None:
        if self._talk is not None:
            self._talk.cancel()

    def facts(self) -> list[str]:
        return ["Chat", clean(self._endpoint["model"], 60), clean(self._endpoint["base_url"], 120)]

    @property
    def talking(self) -> bool:
        return bool(self.turns) and not self.turns[-1].told

    def cancel(self) -> bool:
        """End the answer that is being said; False when there is none."""
        if not self.talking:
            return False
        self._talk.cancel()
        return True

    def action_say(self) -> None:
        if self.talking:
            self.panel.notice("an answer is being said; esc cancels it", "warn")
            return
        self.panel.ask_line("> ", "", self._say, "ask the model something; esc leaves the line")

    def _say(self, text: str) -> None:
        if not text.strip():
            return
        history = [
            {"role": role, "content": words}
            for turn in self.turns
            if not turn.failed
            for role, words in (("user", turn.asked), ("assistant", turn.said))
        ]
        turn, renew = Turn(text.strip()), bool(self.turns) and self.turns[-1].failed
        self.turns.append(turn)
        messages = [*history, {"role": "user", "content": turn.asked}]
        # A thread of its own that nothing waits for: the program may end in the middle of an answer.
        threading.Thread(target=self._listen, args=(turn, messages, renew), name="chat", daemon=True).start()

    def _listen(self, turn: Turn, messages: list[dict[str, str]], renew: bool) -> None:
        """Runs on the thread; what is drawn is read from the turn. ``renew`` looks first where the endpoint is now."""
        try:
            if renew:
                self._renew()
            for piece in self._talk.say(messages, MAX_TOKENS):
                turn.said += piece
            turn.told = figures_words(asdict(self._talk.figures))
        except FindingError as problem:
            turn.failed = True
            turn.told = words_of(problem)
        except Exception as problem:
            turn.failed = True
            turn.told = f"{type(problem).__name__}: {problem}"

    def _renew(self) -> None:
        """After a failure: a new link may have moved the tunnel, and a swapped endpoint has another key. Raises what
        stands against it."""
        found = self.panel.source.submit(Endpoint(str(self._endpoint.get("run") or "")))
        try:
            self._endpoint = found.result(ADDRESS_SECONDS)
        except TakesTooLong:
            return
        self._talk = self.panel.source.talk(self._endpoint)

    def _redraw(self) -> None:
        state = repr([(len(turn.said), turn.told) for turn in self.turns])
        if state != self._drawn and self.is_composed:
            self._drawn = state
            pane = self.query_one(Transcript)
            pane.top = END
            pane.redraw()

    def turn_lines(self, width: int) -> list[Text]:
        look = self.panel.look
        lines: list[Text] = []
        for turn in self.turns:
            lines += wrapped(look, f"> {clean(turn.asked, 4000)}", width, "accent bold")
            for part in turn.said.split("\n"):
                lines += wrapped(look, clean(part, 20_000), width) or [Text("")]
            if turn.told:
                lines += wrapped(look, clean(turn.told, 1000), width, "bad" if turn.failed else "dim")
            lines.append(Text(""))
        told = "enter asks something; nothing of it is kept, and the key is never shown"
        return lines or wrapped(look, told, width, "dim")
