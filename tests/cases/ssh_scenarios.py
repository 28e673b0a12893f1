"""Scenarios of a connection: a server with few sessions, a link that dies without a word, a panel that is closed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncssh
import psutil
from runner import Answer

from eagle3_backend.control.views import Survey, stage_views
from eagle3_backend.findings import Finding, FindingError
from eagle3_backend.pipeline.plan import CampaignPlan, plan_campaign
from eagle3_backend.pipeline.stages import STAGES
from eagle3_backend.profile import Host
from eagle3_backend.remote import embedded, login
from eagle3_backend.remote.embedded import EmbeddedHost
from eagle3_backend.remote.link import LinkLost
from eagle3_backend.remote.session import HostSession
from eagle3_backend.remote.ssh import CHANNELS
from eagle3_backend.runs.follower import LogFollower
from eagle3_backend.runs.segments import Segments
from eagle3_backend.runs.store import Key
from eagle3_backend.states import LinkState

PATIENCE = 90.0
"""Seconds after which a scenario that does not get on is a failure of the check."""


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def session_on(workspace: Path, **rest: Any) -> HostSession:
    return HostSession(Host(address="embedded", workspace=str(workspace)), {}, **rest)


async def start(session: HostSession, plan: CampaignPlan | None, run: str, script: str) -> dict[str, Any]:
    """Start a run whose stage is this Python script, through the gateway like any other."""
    planned = plan.stages["train"] if plan else None
    spec = {
        "protocol": 1,
        "run": planned.run if planned else run,
        "stage": "train",
        "stage_version": STAGES["train"].version,
        "fingerprint": planned.fingerprint if planned else "0" * 12,
        "parameters": {},
        "inputs": {},
        "output": planned.output if planned else f"{session.workspace}/case/train/000000000000",
        "argv": [session.python, "-c", textwrap.dedent(script)],
        "engine": None,
        "environment": "host",
        "payload": session.payload,
    }
    return await session.request("start", spec=spec, request=uuid.uuid4().hex)


async def runs_of(session: HostSession) -> tuple[dict[str, Any], ...]:
    return tuple((await session.request("runs"))["runs"])


async def stopped(session: HostSession, run: str, attempt: int) -> None:
    """Stop a run and wait for its end."""
    await session.request("stop", run=run, attempt=attempt)
    async with asyncio.timeout(PATIENCE):
        while (await runs_of(session))[-1]["exit"] is None:  # noqa: ASYNC110
            await asyncio.sleep(0.2)


# --- few sessions -------------------------------------------------------------------------------------------------


class Sessions:
    """Sessions open at the server, now and at most."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.open = 0
        self.peak = 0


class LimitedSession(asyncssh.SSHServerProcess):
    def __init__(self, sessions: Sessions) -> None:
        super().__init__(embedded.run_command, asyncssh.SFTPServer, 3, False)
        self._sessions = sessions

    def connection_lost(self, exc: Exception | None) -> None:
        self._sessions.open -= 1
        super().connection_lost(exc)


class LimitedServer(embedded.Server):
    """Refuses a session over the limit and then drops the whole connection, as newer servers do."""

    def __init__(self, client_key: asyncssh.SSHKey, sessions: Sessions) -> None:
        super().__init__(client_key)
        self._sessions = sessions

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def session_requested(self) -> Any:
        self._sessions.open += 1
        self._sessions.peak = max(self._sessions.peak, self._sessions.open)
        if self._sessions.open > self._sessions.limit:
            asyncio.get_running_loop().call_soon(self._connection.disconnect, 11, "too many sessions")
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, "open failed")
        return self._connection.create_server_channel(encoding=None), LimitedSession(self._sessions)


async def channels(scenario: dict[str, Any], workspace: Path) -> Answer:
    sessions = Sessions(scenario["server"]["max_sessions"])
    server = await EmbeddedHost.start(lambda key: LimitedServer(key, sessions), process_factory=None, sftp_factory=None)
    session = session_on(workspace, connect=server.connect)
    problems: list[Finding] = []
    try:
        await session.connect()
        pushes = [0] * len(scenario["client"]["long_lived"])

        async def watch(number: int) -> None:
            async for _ in session.subscribe("watch", interval=0.05):
                pushes[number] += 1

        watching = [asyncio.create_task(watch(number)) for number in range(len(pushes))]
        files = [f"{session.workspace}/.eagle3/uploads/case/{number}" for number in range(3)]
        burst = [session.request("probe", what="disk", paths=[str(workspace)]) for _ in scenario["client"]["burst"]]
        transfers = [session.put(bytes(1_000_000), path) for path in files]
        answers = await asyncio.gather(*burst, *transfers)
        await until(lambda: all(pushes))
        completed = sum(bool(answer) for answer in answers[: len(burst)])
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        if session.problem is not None or session.generation != 1:
            problems = [session.problem] if session.problem else []
    except FindingError as problem:
        problems = list(problem.findings)
        completed = 0
    finally:
        await session.close()
        await server.close()
    return Answer(
        tuple(problems),
        {
            "max_concurrent_channels": sessions.peak,
            "burst_completed": completed,
            "reserve_for_user": min(CHANNELS, sessions.limit) - sessions.peak,
        },
    )


# --- a silent link ------------------------------------------------------------------------------------------------


class BlackHole:
    """A relay on loopback that swallows everything while ``swallows``."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.swallows = False
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        yield server.sockets[0].getsockname()[1]
        server.close()
        for task in list(self._tasks):
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host_reader, host_writer = await asyncio.open_connection("127.0.0.1", self._target)
        for source, sink in ((reader, host_writer), (host_reader, writer)):
            task = asyncio.create_task(self._carry(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if not self.swallows:
                    sink.write(data)
        if not self.swallows:
            sink.close()


async def silent_link(scenario: dict[str, Any], workspace: Path) -> Answer:
    truth = scenario["remote_truth"]
    go_on = workspace / "go_on"
    script = f"""
        import os, sys, time
        os.write(1, b"a" * {truth["log_bytes_seen"]})
        while not os.path.exists({str(go_on)!r}):
            time.sleep(0.02)
        os.write(1, b"b" * {truth["log_bytes"] - truth["log_bytes_seen"]})
        time.sleep(600)
    """
    server = await EmbeddedHost.start()
    relay = BlackHole(server.port)
    problems: list[Finding] = []
    async with relay.listening() as port:
        hop = dataclasses.replace(server.hop, options={**server.hop.options, "port": port})
        session = session_on(workspace, connect=lambda: login.connect((hop,), (server.offered,)))
        await session.connect()
        plan = plan_campaign(
            "case", session.workspace, {name: stage.parameters() for name, stage in STAGES.items()}, {}
        )
        started = await start(session, plan, "", script)
        survey = Survey(await runs_of(session), at=time.monotonic())
        received: list[tuple[int, int]] = []
        log = follow_log(session, Key(session.hello["workspace_id"], started["run"], 1), workspace / "logs", received)
        follower = asyncio.create_task(log)
        await until(lambda: end_of(received) == truth["log_bytes_seen"])

        relay.swallows = True
        went_silent = time.monotonic()
        go_on.touch()
        await until(lambda: session.state is LinkState.RECONNECTING)
        detected = time.monotonic() - went_silent
        problems += [session.problem] if session.problem else []
        after_close = state_of(plan, survey, live=False)

        relay.swallows = False
        session.retry_now()
        await session.connect()
        survey = Survey(await runs_of(session), at=time.monotonic())
        after_reconnect = state_of(plan, survey, live=session.state is LinkState.LIVE)
        problems += findings_of(survey.runs)
        await until(lambda: end_of(received) == truth["log_bytes"])
        resumed_from = min(offset for offset, _ in received if offset >= truth["log_bytes_seen"])
        follower.cancel()
        await stopped(session, started["run"], started["attempt"])
        await session.close()
    await server.close()
    return Answer(
        tuple(problems),
        {
            "state_after_close": after_close,
            "state_after_reconnect": after_reconnect,
            "log_resumed_from_byte": resumed_from,
            "detected_within_s": detected,
        },
    )


async def follow_log(session: HostSession, key: Key, folder: Path, received: list[tuple[int, int]]) -> None:
    """Follow as the panel does: a new follower after every lost link, at the stored offset."""
    while True:
        try:
            follower = LogFollower(Segments(folder), key, lambda at, data: received.append((at, len(data))))
            await follower.follow(session)
        except LinkLost:
            await asyncio.sleep(0.1)


def end_of(received: list[tuple[int, int]]) -> int:
    return max((offset + length for offset, length in received), default=0)


def state_of(plan: CampaignPlan, survey: Survey, *, live: bool) -> str:
    views = stage_views(plan, survey, {}, live=live, now=time.monotonic())
    return next(view.state.value for view in views if view.name == "train")


def findings_of(runs: tuple[dict[str, Any], ...]) -> list[Finding]:
    return [Finding.from_json(finding) for run in runs for finding in run["findings"]]


# --- a closed panel -----------------------------------------------------------------------------------------------


def bystander() -> subprocess.Popen[bytes]:
    """A process of somebody else."""
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def is_alive(process: psutil.Process) -> bool:
    """Whether it still does anything: an ended one stays listed until init asks for its status."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def closed_panel(scenario: dict[str, Any], workspace: Path) -> Answer:
    run, children = scenario["run"]["id"], scenario["run"]["children"]
    pids_file = workspace / "pids"
    script = f"""
        import os, subprocess, sys
        workers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range({children})]
        with open({str(pids_file)!r} + ".new", "w") as file:
            print(os.getpid(), *(worker.pid for worker in workers), file=file)
        os.rename({str(pids_file)!r} + ".new", {str(pids_file)!r})
        print("at work", flush=True)
        for worker in workers:
            worker.wait()
    """
    others = [bystander() for _ in scenario["other_processes"]]
    try:
        session = session_on(workspace)
        await session.connect()
        await start(session, None, run, script)
        await until(pids_file.exists)
        ours = [psutil.Process(int(pid)) for pid in pids_file.read_text().split()]
        await session.close()
        alive_after_close = len(ours) == children + 1 and all(is_alive(process) for process in ours)

        session = session_on(workspace)
        await session.connect()
        listed = await runs_of(session)
        received: list[tuple[int, int]] = []
        key = Key(session.hello["workspace_id"], run, 1)
        follower = asyncio.create_task(follow_log(session, key, workspace / "logs", received))
        await until(lambda: received)
        follower.cancel()
        await stopped(session, run, listed[-1]["attempt"])
        alive_after_stop = sum(is_alive(process) for process in ours)
        problems = findings_of(await runs_of(session))
        await session.close()
        others_alive = all(other.poll() is None for other in others)
    finally:
        for other in others:
            other.kill()
            other.wait()
    return Answer(
        tuple(problems),
        {
            "runs_listed_after_reopen": [entry["run"] for entry in listed],
            "alive_after_close": alive_after_close,
            "alive_after_stop": alive_after_stop,
            "other_processes_alive": others_alive,
        },
    )
