"""The service: what will be launched and why, what stands against it, its health, acceptance and address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Container

from eagle3_backend.control.commands import DryRun, Endpoint, Services
from eagle3_backend.control.snapshot import Snapshot, StageView
from eagle3_backend.findings import Finding, FindingError
from eagle3_backend.states import RunState
from eagle3_tui import serveacts
from eagle3_tui.bindings import bindings
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.servefacts import (
    Launch,
    acceptance_lines,
    address_lines,
    age,
    curl_line,
    health,
    health_lines,
    is_ready,
    launch_lines,
    launch_of,
    option_rows,
    other_lines,
    start_lines,
    traffic_lines,
)
from eagle3_tui.text import clean, clock_span
from eagle3_tui.widgets.facts import at_work, finding_lines, reason, state_words, wrapped
from eagle3_tui.widgets.footer import FooterBar
from eagle3_tui.widgets.header import HeaderBar, age_words
from eagle3_tui.widgets.logpane import words_of
from eagle3_tui.widgets.scroller import Scroller
from eagle3_tui.widgets.small import TooSmall

STAGE = "serve"
OTHERS_SECONDS = 5.0
"""Between two looks at endpoints that are not ready yet."""


class Service(Scroller):
    """State, address, health, acceptance, findings: in the order in which one asks."""

    BINDINGS = bindings("list", "scroll")

    def title(self, width: int) -> Text:
        host = self.panel.picture.host
        facts = ["Service", clean(host.name, 40), age_words(host, self.panel.monotonic())]
        return Text(self.look.remote(self.look.joined(facts)))

    def all_lines(self, width: int) -> list[Text]:
        return cast("ServeScreen", self.screen).service_lines(width)

    def text_to_copy(self) -> str:
        """The way to the service, or what stands here."""
        endpoint = cast("ServeScreen", self.screen).endpoint
        return curl_line(endpoint) if endpoint else "\n".join(line.plain for line in self.all_lines(100))


class LaunchPane(Scroller):
    """The command line of the next start, value by value with its reason."""

    BINDINGS = bindings("list", "scroll")

    def title(self, width: int) -> Text:
        return Text(self.look.remote(self.look.joined(cast("ServeScreen", self.screen).launch_facts())))

    def all_lines(self, width: int) -> list[Text]:
        return cast("ServeScreen", self.screen).launch_lines(width)

    def text_to_copy(self) -> str:
        launch = cast("ServeScreen", self.screen).launch
        return launch.line if launch else ""


class ServeScreen(PanelScreen):
    """Asks for the plan once and when its stage has changed; for the address while the service is ready."""

    BINDINGS = bindings("serve", "run")
    CSS_PATH = "../theme/serve.tcss"
    AUTO_FOCUS = "Service"
    context = "serve"

    def __init__(self, stage: str = "") -> None:
        super().__init__()
        self.launch: Launch | None = None
        self.endpoint: Mapping[str, Any] | None = None
        self._against: tuple[Finding, ...] = ()
        self._trouble = ""
        self._no_address = ""
        self._planned_at = 0.0
        self._planned_for: tuple[Any, ...] = ()
        self._addressed = ""
        self._others: tuple[Mapping[str, Any], ...] = ()
        self._others_of: tuple[Any, ...] = ()
        self._others_due = 0.0

    def compose(self) -> ComposeResult:
        yield HeaderBar(id="header")
        yield TooSmall(id="small")
        with Container(id="body"):
            yield Service(classes="panel")
            yield LaunchPane(classes="panel")
        yield FooterBar(id="footer")

    @property
    def stage(self) -> str:
        return STAGE

    @property
    def _view(self) -> StageView | None:
        return self.panel.picture.stage(STAGE)

    def refresh_data(self) -> None:
        """Plan anew."""
        self._planned_for = ()
        self._ask(self.panel.picture)

    def show(self, snapshot: Snapshot) -> None:
        self._ask(snapshot)
        self.redraw()
        super().show(snapshot)

    def tick(self) -> None:
        super().tick()
        self._ask_others(self.panel.picture)
        self.query_one(LaunchPane).redraw()

    def redraw(self) -> None:
        if self.is_attached and self.is_composed:
            self.query_one(Service).redraw()
            self.query_one(LaunchPane).redraw()

    def _ask(self, snapshot: Snapshot) -> None:
        """The plan, when what it stands on changed, and the address of each attempt once it is ready."""
        fresh = tuple(view.name for view in snapshot.stages if view.fresh)
        settings = self.panel.opened.settings
        planned_for = (snapshot.profile, settings, snapshot.host.link, fresh) if snapshot.stages else ()
        if planned_for and planned_for != self._planned_for:
            self._planned_for = planned_for
            self.panel.inquire(DryRun(STAGE), self._take_plan, self._refuse_plan)
        view = snapshot.stage(STAGE)
        # A new link may have had to give the tunnel another port.
        place = f"{view.run}/{view.attempt}/{snapshot.host.since}" if view else ""
        name = place if view and is_ready(view, snapshot.events) else ""
        if name != self._addressed:
            self._addressed, self.endpoint, self._no_address = name, None, ""
            if name:
                self.panel.inquire(Endpoint(), self._take_endpoint, self._refuse_endpoint)
        self._ask_others(snapshot)

    def _ask_others(self, snapshot: Snapshot) -> None:
        """Endpoints of other parameters: asked for when they change, and until all of them are ready."""
        running = tuple(service for service in snapshot.services if not service.planned)
        asked_for = (running, snapshot.host.since) if running else ()
        now = self.panel.monotonic()
        waiting = any(not service["ready"] for service in self._others) and now >= self._others_due
        if asked_for == self._others_of and not waiting:
            return
        self._others_of, self._others_due = asked_for, now + OTHERS_SECONDS
        if running:
            self.panel.inquire(Services(), self._take_others, lambda problem: None)
        else:
            self._others = ()

    def _take_others(self, answer: Mapping[str, Any]) -> None:
        self._others = tuple(service for service in answer["services"] if not service["planned"])
        self.redraw()

    def _take_plan(self, answer: Mapping[str, Any]) -> None:
        self.launch, self._against, self._trouble = launch_of(answer), (), ""
        self._planned_at = self.panel.monotonic()
        self.redraw()

    def _refuse_plan(self, problem: BaseException) -> None:
        self._against = problem.findings if isinstance(problem, FindingError) else ()
        self._trouble = words_of(problem)
        self.redraw()

    def _take_endpoint(self, answer: Mapping[str, Any]) -> None:
        self.endpoint = answer
        self.redraw()

    def _refuse_endpoint(self, problem: BaseException) -> None:
        self._no_address = words_of(problem)
        self.redraw()

    def service_lines(self, width: int) -> list[Text]:
        """Everything about the service as it is."""
        look, picture, view = self.panel.look, self.panel.picture, self._view
        if view is None:
            return [look.line(("waiting for the host", "dim"))]
        ready = is_ready(view, picture.events)
        lines = [self._state_line(view, ready)]
        if why := reason(view):
            lines += wrapped(look, why, width, "dim" if view.state is RunState.BLOCKED else "warn")
        lines += self._section("Address")
        host = look.remote(clean(picture.host.name, 60))
        lines += address_lines(self.endpoint, self._no_address, self._address_words(view, ready), look, width, host)
        works = at_work(view)
        lines += self._section("Acceptance, live" if works else "Acceptance, when it was seen last")
        lines += [*(traffic_lines(view, look, width) if works else []), *acceptance_lines(view, look, width)]
        if self._others:
            lines += [*self._section("Beside it"), *other_lines(self._others, look, width)]
        if steps := health(view, picture.events):
            lines += [*self._section("Health"), *health_lines(steps, at_work(view), look, width)]
        if told := start_lines(view, look, width):
            lines += [*self._section("Start"), *told]
        return [*lines, *self._finding_lines(view, width)]

    def _address_words(self, view: StageView, ready: bool) -> str:
        """Why there is no address."""
        if view.last_state is not None:
            return "there is no link; the service goes on on its host"
        if at_work(view):
            return "asking for the tunnel" if ready else "not ready yet: a real completion has to be answered first"
        return "none with these settings; others stand below" if self._others else "no service is running"

    def _state_line(self, view: StageView, ready: bool) -> Text:
        look = self.panel.look
        pieces = state_words(view, look, self.panel.monotonic())
        facts = ["ready" if ready else "", clock_span(view.elapsed) if view.elapsed is not None else ""]
        facts.append(f"attempt {view.attempt}" if view.attempt else "")
        return look.line(*pieces, ("  " + look.joined(facts), "dim"))

    def _finding_lines(self, view: StageView, width: int) -> list[Text]:
        """What the service itself found, then what stands against a start."""
        look = self.panel.look
        lines: list[Text] = []
        if view.findings:
            lines += self._section("Findings of this run")
            for finding in view.findings[-6:]:
                lines += finding_lines(finding, look, width)
        lines += self._section("Before a start")
        found = self._against or (self.launch.findings if self.launch else ())
        for finding in found:
            lines += finding_lines(finding, look, width)
        if not found:
            clear = (f"{look.glyph('ok')} nothing stands against it", "good")
            waiting = (self._trouble or "asking the host", "dim")
            lines.append(look.line(clear if self.launch and not self._trouble else waiting))
        return lines

    def _section(self, name: str) -> list[Text]:
        return [Text(""), self.panel.look.line((name, "accent bold"))]

    def launch_facts(self) -> list[str]:
        plan = self.launch.plan if self.launch else None
        if plan is None:
            return ["Launch line"]
        old = age(self._planned_at, self.panel.monotonic())
        return ["Launch line", str(plan["engine"]), str(plan["device"]), old]

    def launch_lines(self, width: int) -> list[Text]:
        look = self.panel.look
        if self.launch is not None:
            lines = wrapped(look, self._trouble, width, "warn") if self._trouble else []
            if edits := self.panel.edits:
                words = f"Edited here and not in the profile: {clean(' '.join(edits), 600)}"
                lines += wrapped(look, words, width, "warn")
            return [*lines, *launch_lines(self.launch, look, width)]
        return wrapped(look, self._trouble or "asking the host for the plan", width, "dim")

    # Keys.

    def action_chat(self) -> None:
        """Talk to the endpoint of the profile, else to the first that is ready."""
        others = [service for service in self._others if service["ready"]]
        endpoint = self.endpoint or (others[0] if others else None)
        if endpoint is None:
            self.panel.notice("no endpoint is ready to talk to", "warn")
            return
        from eagle3_tui.screens.chat import ChatScreen

        self.app.push_screen(ChatScreen(endpoint))

    def action_swap(self) -> None:
        services = self.panel.picture.services
        if self.panel.refuses_acts("swap"):
            return
        if not services:
            self.panel.notice("cannot swap: no endpoint is at work; s starts one", "warn")
            return
        run = next((service.run for service in services if service.planned), services[0].run)
        serveacts.choose(self.panel, "Swap for", lambda setting: serveacts.swap(self.panel, run, setting))

    def action_beside(self) -> None:
        if not self.panel.refuses_acts("start"):
            serveacts.choose(self.panel, "Start beside it", lambda setting: serveacts.beside(self.panel, setting))

    def action_end_service(self) -> None:
        if not self.panel.refuses_acts("stop"):
            serveacts.end(self.panel, self._others)

    def action_edit_option(self) -> None:
        if self.panel.refuses_acts("edit"):
            return

        def then(text: str) -> None:
            setting = serveacts.option_setting(text)
            if setting is None:
                self.panel.notice("an option is --name value, --name alone, or NAME=value", "warn")
            else:
                self.panel.settle((setting,), self.refresh_data)

        known = [] if self.launch is None else [f"{name} {value}" for name, value in option_rows(self.launch)]
        self.panel.ask_line("option ", "", then, "--max-num-seqs 64; false leaves one out; w keeps it", known)

    def action_write_options(self) -> None:
        if not self.panel.refuses_acts("save"):
            serveacts.write(self.panel)
