"""One open campaign: it surveys its host while there is a link, and remembers what was said when there is none."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from eagle3_backend.control.following import Followed, Following
from eagle3_backend.control.gauges import GaugeHistory
from eagle3_backend.control.hostview import host_view, machine_of
from eagle3_backend.control.snapshot import (
    Event,
    LogView,
    Machine,
    ServiceView,
    Snapshot,
    StageView,
)
from eagle3_backend.control.views import Survey, older_outputs, spent, stage_views, state_of
from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline.plan import CampaignPlan, plan_campaign
from eagle3_backend.profile import Profile
from eagle3_backend.remote.link import LinkLost
from eagle3_backend.remote.session import HostSession
from eagle3_backend.runs.series import join_attempts
from eagle3_backend.runs.store import Store
from eagle3_backend.states import LinkState, RunState

BUSY_SECONDS = 2.0
"""Between two surveys while something is at work; a journal's news asks for one at once."""

IDLE_SECONDS = 10.0
ARTIFACT_SECONDS = 30.0
"""Manifests are read again after this long even when no run changed."""

FAULT_SECONDS = 5.0
EVENTS_KEPT = 300

REACHABLE = (LinkState.LIVE, LinkState.STALE)


class Campaign:
    """A profile on its host. Belongs to the event loop of control."""

    def __init__(
        self,
        profile: Profile,
        session: HostSession,
        store: Store,
        logs: Path,
        *,
        changed: Callable[[], None],
        tell: Callable[[Event], None],
    ) -> None:
        """Raises FindingError for a prompt file that cannot be read."""
        self.profile = profile
        self.session = session
        self.store = store
        self.uploads, self.sources = profile.uploads()
        self.plan = self._plan(profile.host.workspace)
        self.survey = Survey()
        self.following: Following | None = None
        self.chosen_log, self.chosen_attempt = "", 0
        self._logs = logs
        self._changed = changed
        self._listener = tell
        self._events: deque[Event] = deque((Event(**entry) for entry in store.events(EVENTS_KEPT)), maxlen=EVENTS_KEPT)
        self.machine = Machine()
        self._gauges, self._opened = GaugeHistory(), time.monotonic()
        self.findings: tuple[Finding, ...] = ()
        self._link_changed = asyncio.Event()
        self._news = asyncio.Event()
        self._surveyed = asyncio.Condition()
        self._left = False
        self._surveys_begun = 0
        self._surveys_ended = 0
        self._artifacts_due = 0.0
        self._last_link = session.state
        self._series_marks: list[tuple[int, int]] = []
        self._series_made: dict[str, tuple[tuple[float, float], ...]] = {}

    @property
    def live(self) -> bool:
        return self.session.state in REACHABLE

    def link_changed(self) -> None:
        """To be called whenever the session's state changes."""
        state = self.session.state
        if state is not self._last_link:
            problem = self.session.problem
            severity = "info" if state in (*REACHABLE, LinkState.CONNECTING) else "warning"
            text = f"{state.value}: {problem.message}" if problem and severity == "warning" else state.value
            self.record(Event(time.time(), self.session.name, text, severity, "link"))
            self._last_link = state
        self._link_changed.set()
        self._changed()

    def record(self, event: Event) -> None:
        """Tell of an event that no journal holds, and keep it for later."""
        self.store.add_event(event.at, event.source, event.text, event.severity, event.kind)
        self.tell(event)

    def tell(self, event: Event) -> None:
        """Keep an event and pass it on."""
        self._events.append(event)
        self._listener(event)
        self._changed()

    async def run(self) -> None:
        """Attend to the host, link after link, until cancelled."""
        while True:
            while not self.live:
                self._link_changed.clear()
                await self._link_changed.wait()
            try:
                await self._attend()
            except* LinkLost:
                await asyncio.sleep(0)
            except* Exception as faults:
                fault = _first(faults)
                self.tell(Event(time.time(), "control", f"{type(fault).__name__}: {fault}", "error", "fault"))
                await asyncio.sleep(FAULT_SECONDS)
            finally:
                if self.following is not None:
                    self.following.let_go()
            self._changed()

    def look(self, artifacts: bool = False) -> None:
        """Ask for a survey soon."""
        if artifacts:
            self._artifacts_due = 0.0
        self._news.set()

    async def next_survey(self, look: bool) -> None:
        """Wait for one that begins from now on, through lost links if need be; ``look`` asks for it at once.

        Raises FindingError `campaign_closed` when another profile is opened meanwhile.
        """
        wanted = self._surveys_begun + 1
        if look:
            self.look(artifacts=True)
        async with self._surveyed:
            await self._surveyed.wait_for(lambda: self._surveys_ended >= wanted or self._left)
        if self._left:
            raise FindingError(error("campaign_closed", "Another profile was opened meanwhile."))

    async def leave(self) -> None:
        """Nobody attends to this campaign any more: let go of all who wait for its host."""
        async with self._surveyed:
            self._left = True
            self._surveyed.notify_all()

    async def fresh_survey(self) -> None:
        """Take a survey now. Raises LinkLost."""
        self._artifacts_due = 0.0
        await self._take_survey()

    def replan(self, profile: Profile) -> None:
        """Go on under other parameters of the same host. Raises FindingError for a prompt file that is unreadable."""
        uploads = profile.uploads()
        self.profile, (self.uploads, self.sources) = profile, uploads
        self.plan = self._plan(self.plan.workspace)
        self.findings = ()
        self._changed()

    @property
    def services(self) -> tuple[ServiceView, ...]:
        """The endpoints that are at work, of other parameters too, as the newest survey has them."""
        planned = self.plan.stages["serve"].run
        found = []
        for run in self.survey.newest.values():
            state = state_of(run)
            if run.get("stage") == "serve" and state is not None and state.is_active:
                shown = state if self.live else RunState.UNKNOWN
                found.append(ServiceView(run["run"], int(run["attempt"]), shown, run["run"] == planned))
        return tuple(found)

    def views(self) -> tuple[StageView, ...]:
        folds = self.following.folds if self.following else {}
        return stage_views(self.plan, self.survey, folds, live=self.live, now=time.monotonic())

    def judge(self, findings: Sequence[Finding]) -> None:
        """Show these findings as those of the last start that was asked for."""
        self.findings = tuple(findings)
        self._changed()

    def is_serving(self, view: StageView) -> bool:
        """Whether a service has answered a real completion and is still at work."""
        fold = self.following.folds.get((view.run, view.attempt)) if self.following else None
        return view.state is RunState.RUNNING and fold is not None and fold.state == RunState.READY.value

    @property
    def training_files(self) -> tuple[Path, ...]:
        """The laptop's prompt files, without the published ones."""
        return tuple(self.sources[upload.sha256] for upload in self.uploads["files"])

    def picture(self, version: int) -> Snapshot:
        following = self.following
        log = following.log.view() if following and following.log else LogView(self.chosen_log)
        return Snapshot(
            version=version,
            campaign=self.plan.campaign,
            profile=str(self.profile.path),
            workspace=self.plan.workspace,
            host=host_view(self.session, self.machine),
            stages=self.views(),
            series=self._series(),
            gauges=self._gauges.series(),
            log=log,
            events=tuple(sorted(self._events, key=lambda event: event.at)),
            findings=self.findings,
            price_per_hour=self.profile.host.price_per_hour,
            spent_seconds=spent(self.survey),
            services=self.services,
        )

    def _plan(self, workspace: str) -> CampaignPlan:
        return plan_campaign(self.profile.campaign, workspace, self.profile.parameters, self.uploads)

    async def _attend(self) -> None:
        self.plan = self._plan(self.session.workspace)
        workspace = str(self.session.hello.get("workspace_id") or "unknown")
        if self.following is None or self.following.workspace != workspace:
            self.following = Following(
                self.session, self.store, self._logs, workspace, tell=self.tell, changed=self._journal_news
            )
        self._artifacts_due = 0.0
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_machine())
            group.create_task(self._keep_surveying(group))

    def _journal_news(self, state_changed: bool) -> None:
        if state_changed:
            self.look(artifacts=True)
        self._changed()

    async def _watch_machine(self) -> None:
        async for push in self.session.subscribe("watch", interval=1.0):
            if "telemetry" in push:
                self.machine = machine_of(push["telemetry"])
                self._gauges.add(time.monotonic() - self._opened, self.machine)
                self._changed()

    async def _keep_surveying(self, group: asyncio.TaskGroup) -> None:
        while True:
            self._news.clear()
            try:
                await self._take_survey()
            except FindingError as problem:
                finding = problem.findings[0]
                self.tell(Event(time.time(), self.session.name, finding.message, "warning", "finding"))
            assert self.following is not None
            attempts = self._attempts()
            self.following.reconcile(attempts, self._log_choice(attempts), group)
            busy = any(not followed.ended for followed in attempts)
            # Not wait_for: before Python 3.12 it swallows a cancellation that meets the news, and this never ends.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(BUSY_SECONDS if busy else IDLE_SECONDS):
                    await self._news.wait()

    async def _take_survey(self) -> None:
        self._surveys_begun += 1
        number = self._surveys_begun
        answer = await self.session.request("runs")
        runs = tuple(run for run in answer["runs"] if run["campaign"] == self.plan.campaign)
        states = [(run["run"], run["attempt"], run["state"]) for run in runs]
        before = [(run["run"], run["attempt"], run["state"]) for run in self.survey.runs]
        artifacts, older = self.survey.artifacts, self.survey.older
        paths = [planned.output for planned in self.plan.stages.values()]
        if states != before or [*artifacts] != paths or time.monotonic() >= self._artifacts_due:
            olds = older_outputs(self.plan, runs)
            found = (await self.session.request("artifacts", paths=[*paths, *olds.values()]))["artifacts"]
            artifacts = {path: found.get(path) for path in paths}
            older = {name: found[path] for name, path in olds.items() if found.get(path)}
            self._artifacts_due = time.monotonic() + ARTIFACT_SECONDS
        async with self._surveyed:
            if number > self._surveys_ended:  # two may be under way, and the older one may come in last
                self.survey = Survey(runs, artifacts, older, time.monotonic())
                self._surveys_ended = number
            self._surveyed.notify_all()
        self._changed()

    def _attempts(self) -> list[Followed]:
        """Every attempt of the planned runs, in pipeline order and oldest first."""
        stages = {planned.run: planned.name for planned in self.plan.stages.values()}
        found = []
        for run in sorted(self.survey.runs, key=lambda run: run["attempt"]):
            state = state_of(run)
            if run["run"] in stages and state is not None:
                ended = state.is_ended
                found.append(Followed(stages[run["run"]], (run["run"], int(run["attempt"])), ended))
        order = list(self.plan.stages)
        return sorted(found, key=lambda followed: order.index(followed.stage))

    def _log_choice(self, attempts: list[Followed]) -> Followed | None:
        """The chosen attempt, or the stage's newest; without a choice the one that is at work, else the furthest."""
        if self.chosen_log:
            attempts = [followed for followed in attempts if followed.stage == self.chosen_log]
        if self.chosen_attempt:
            attempts = [followed for followed in attempts if followed.attempt[1] == self.chosen_attempt]
        working = [followed for followed in attempts if not followed.ended]
        candidates = working or attempts
        return candidates[-1] if candidates else None

    def _series(self) -> dict[str, tuple[tuple[float, float], ...]]:
        """All series of the campaign's runs; a resumed attempt goes on where the one before was left.

        The same object as long as nothing was measured, so that charts know when they are current.
        """
        if self.following is None:
            return {}
        folds = [self.following.folds.get(followed.attempt) for followed in self._attempts()]
        marks = [(id(fold), fold.points) for fold in folds if fold]
        if marks != self._series_marks:
            by_name: dict[str, list[list[tuple[float, float]]]] = {}
            for fold in folds:
                for name, points in fold.series.items() if fold else ():
                    by_name.setdefault(name, []).append(points)
            self._series_marks = marks
            self._series_made = {name: tuple(join_attempts(attempts)) for name, attempts in by_name.items()}
        return self._series_made


def link_lost(session: HostSession) -> FindingError:
    """The refusal of an act that needs a link."""
    return FindingError(
        error(
            "ssh_connection_lost",
            f"There is no link to {session.name} ({session.state.value}); what runs there goes on.",
            path=session.name,
            fix="Wait for the link, or retry it now.",
        )
    )


def _first(faults: BaseException) -> BaseException:
    while isinstance(faults, BaseExceptionGroup):
        faults = faults.exceptions[0]
    return faults
