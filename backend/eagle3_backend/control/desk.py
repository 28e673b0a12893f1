"""Where commands arrive: one campaign is open at a time, and every command finds its answer here."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from eagle3_backend.control import (
    acts,
    answers,
    commands,
    diagnosing,
    engine_options,
    hosts,
    inspecting,
    keeping,
    logs,
    profiles,
    services,
    shells,
)
from eagle3_backend.control.alerts import Notices
from eagle3_backend.control.campaign import Campaign, link_lost
from eagle3_backend.control.fleet import Fleet
from eagle3_backend.control.snapshot import Event, Snapshot
from eagle3_backend.control.watching import Watch
from eagle3_backend.findings import FindingError, error
from eagle3_backend.pipeline.smoke import smoke
from eagle3_backend.profile import Profile, load
from eagle3_backend.remote.link import LinkLost
from eagle3_backend.remote.session import HostSession
from eagle3_backend.remote.ssh_config import SshFiles
from eagle3_backend.runs.store import Store

AGAIN_SECONDS = 20.0
"""How long an act whose link broke waits for the next link before it is given up."""


class Desk:
    """Belongs to control's event loop. ``changed`` asks for a new picture, ``tell`` hears every event."""

    def __init__(
        self,
        config_dir: Path,
        state_dir: Path,
        cache_dir: Path,
        *,
        changed: Callable[[], None],
        tell: Callable[[Event], None],
        notices: Notices | None = None,
    ) -> None:
        """With ``notices`` somebody watches the open campaign and calls a person when it needs one."""
        self._config_dir = config_dir
        self._state_dir = state_dir
        self._cache_dir = cache_dir
        self._changed = changed
        self._tell = tell
        self._store: Store | None = None
        self._campaign: Campaign | None = None
        self._notices = notices
        self._watch: Watch | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()
        self._before: dict[str, Any] = {}
        self._fleet = Fleet(config_dir, changed)

    def picture(self, version: int) -> Snapshot:
        if self._campaign is None:
            return Snapshot(version=version)
        picture = replace(self._campaign.picture(version), others=self._fleet.views(but=self._worked_on))
        if self._watch is not None:
            self._watch.look(picture)
        return picture

    @property
    def _worked_on(self) -> str:
        return self._campaign.session.name if self._campaign else ""

    async def close(self) -> None:
        await self._leave()
        await self._fleet.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
        if self._store is not None:
            self._store.close()

    async def handle(self, command: commands.Command) -> Any:
        """Answer a command. Raises FindingError; a link that breaks meanwhile is one, too."""
        try:
            if isinstance(command, commands.Open):
                return await self._open(command)
            if isinstance(command, commands.Hosts):
                if command.watch:
                    self._fleet.watch(but=self._worked_on)
                return hosts.listed(self._config_dir, SshFiles())
            if isinstance(command, commands.WriteProfile):
                return await asyncio.to_thread(profiles.write, command.path, command.text, command.before)
            if isinstance(command, commands.Inspect) and command.host:
                return await hosts.inspect(self._config_dir, command.host, command.path)
            if isinstance(
                command, commands.Start | commands.Swap | commands.Stop | commands.Resume | commands.DeleteArtifact
            ):
                return await self._act(self._opened(), command)
            return await self._of_campaign(self._opened(), command)
        except LinkLost as problem:
            raise link_lost(self._opened().session) from problem
        except OSError as problem:
            raise FindingError(
                error(
                    "laptop_file_unusable",
                    f"A file of this laptop cannot be used: {problem.strerror or problem}.",
                    path=str(problem.filename or ""),
                    fix="Make room there, or make the folder writable.",
                )
            ) from problem

    async def _act(self, campaign: Campaign, command: commands.Command) -> Any:
        """Start, swap, stop, resume, delete; once more when the link broke under it: the host takes each only once."""
        was_live = campaign.live
        try:
            return await self._of_campaign(campaign, command)
        except LinkLost:
            if not was_live:
                raise
            try:
                async with asyncio.timeout(AGAIN_SECONDS):
                    await campaign.next_survey(look=True)
            except TimeoutError:
                pass
            return await self._of_campaign(campaign, command)

    async def _of_campaign(self, campaign: Campaign, command: commands.Command) -> Any:
        match command:
            case commands.Start(through, only, restart, accept, also, asked):
                return await acts.start(campaign, self._cache_dir, through, only, restart, accept, also, asked=asked)
            case commands.Stop(stage, run, kill):
                return await acts.stop(campaign, stage, run, kill)
            case commands.Swap(settings, run, accept, asked):
                return await services.swap(campaign, self._cache_dir, settings, run, accept, asked)
            case commands.Resume(stage, through, accept):
                return await acts.resume(campaign, self._cache_dir, stage, through, accept)
            case commands.Await(through):
                return await acts.wait_for(campaign, through)
            case commands.FollowLog(stage, attempt):
                campaign.chosen_log, campaign.chosen_attempt = stage, attempt
                campaign.look()
            case commands.ReconnectNow():
                campaign.session.retry_now()
            case commands.TrustHostKey(save):
                campaign.session.trust(save)
                await self._reach(campaign)
            case commands.Status():
                return answers.status(campaign)
            case commands.Logs():
                return await logs.stretch(campaign, command)
            case commands.ReadLog():
                return await logs.read(campaign, command)
            case commands.FindLogTime():
                return await logs.find_time(campaign, command)
            case commands.Metrics():
                return answers.metrics(campaign, command)
            case commands.Doctor():
                return await answers.doctor(campaign)
            case commands.DryRun(through, also):
                return await answers.dry_run(campaign, self._cache_dir, through, also)
            case commands.Forecast(through, also):
                return await answers.forecast(campaign, through, also)
            case commands.Rebind(host, confirm):
                return await hosts.rebind(campaign, host, confirm, self._before)
            case commands.Attempts():
                return inspecting.attempts(campaign)
            case commands.Specification(run, attempt):
                return await inspecting.specification(campaign, run, attempt)
            case commands.Inspect(path, _):
                return await campaign.session.request("inspect", path=path)
            case commands.EngineOptions(engine):
                return await engine_options.options(campaign, self._cache_dir, engine)
            case commands.Artifact(stage):
                return await inspecting.artifact(campaign, stage)
            case commands.Artifacts():
                return await keeping.artifacts(campaign)
            case commands.DeleteArtifact(path):
                return await keeping.delete(campaign, path)
            case commands.Results(stage):
                return await inspecting.results(campaign, stage)
            case commands.Processes():
                return await campaign.session.request("processes")
            case commands.Locks():
                return await inspecting.locks(campaign)
            case commands.Orphans():
                return await inspecting.orphans(campaign)
            case commands.EndOrphan(run, attempt):
                await campaign.session.request("stop", run=run, attempt=attempt)
            case commands.Shell(stage):
                return shells.shell(campaign, stage)
            case commands.AddHost(name, folder):
                return hosts.add(campaign.profile.path, name, folder)
            case commands.Endpoint(run):
                return await services.endpoint(campaign, run)
            case commands.Services(tunnels):
                return await services.listed(campaign, tunnels)
            case commands.Diagnose(record, drafter, target):
                return await diagnosing.diagnose(campaign, record, drafter, target)
            case commands.Tunnel(port):
                return {"port": await campaign.session.tunnel(port)}
        return None

    def _opened(self) -> Campaign:
        if self._campaign is None:
            raise FindingError(error("campaign_not_open", "No profile is open.", fix="Open a profile first."))
        return self._campaign

    async def _open(self, command: commands.Open) -> None:
        profile = load(command.profile).with_settings(list(command.settings))
        if command.smoke:
            profile = profile.with_parameters(smoke(profile.parameters))
        async with self._opening:
            if self._campaign is not None and self._campaign.live and _same_place(self._campaign.profile, profile):
                self._campaign.replan(profile)
                await self._campaign.next_survey(look=True)
                return
            await self._leave()
            if self._store is None:
                self._store = Store(self._state_dir / "runs.sqlite")
            session = HostSession(profile.host, profile.environments, on_change=self._link_changed)
            campaign = self._campaign = Campaign(
                profile, session, self._store, self._state_dir / "logs", changed=self._changed, tell=self._tell
            )
            self._before = next((entry for entry in hosts.known(self._config_dir) if entry["name"] == session.name), {})
            self._tasks = [asyncio.create_task(campaign.run())]
            if self._notices is not None:
                self._watch = Watch(campaign, self._notices)
                self._tasks.append(asyncio.create_task(self._watch.run()))
        self._changed()
        await self._reach(campaign)

    async def _reach(self, campaign: Campaign) -> None:
        await campaign.session.connect()
        await campaign.next_survey(look=True)
        # A memory, and no more: a folder that cannot be written stops no campaign.
        with contextlib.suppress(OSError):
            hosts.remember(self._config_dir, campaign)

    def _link_changed(self) -> None:
        if self._campaign is not None:
            self._campaign.link_changed()

    async def _leave(self) -> None:
        campaign, self._campaign = self._campaign, None
        if campaign is not None:
            await campaign.leave()
        tasks, self._tasks, self._watch = self._tasks, [], None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if campaign is not None:
            # By the way: a dead link takes seconds to close, and the next host need not wait for it.
            closing = asyncio.create_task(campaign.session.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closed)

    def _closed(self, closing: asyncio.Task[None]) -> None:
        self._closing.discard(closing)
        if not closing.cancelled():
            closing.exception()  # nobody is left whom it could concern


def _same_place(before: Profile, after: Profile) -> bool:
    """Whether a profile goes on where the open one works: one file, one host, the same interpreters."""
    return all(getattr(before, name) == getattr(after, name) for name in ("path", "host", "environments"))
