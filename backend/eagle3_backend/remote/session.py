"""A host as the campaign sees it: connected, bootstrapped, asked through its gateway, and found again after a cut."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.profile import Environment, Host
from eagle3_backend.remote import bootstrap, hostkeys, login, payload, ssh_config
from eagle3_backend.remote.command import CommandLink
from eagle3_backend.remote.embedded import EmbeddedHost
from eagle3_backend.remote.gateway import PING_SECONDS, GatewayClient
from eagle3_backend.remote.hostkeys import OfferedKey
from eagle3_backend.remote.link import Link, LinkLost
from eagle3_backend.remote.ssh_config import SshFiles
from eagle3_backend.remote.tunnels import Tunnels
from eagle3_backend.states import LinkState

BACKOFF_SECONDS = (1.0, 30.0)
"""Full-jitter back-off: first and longest ceiling, doubling in between, without a limit of tries."""

TRANSIENT = frozenset(
    {
        "gateway_failed",
        "host_not_answering",
        "host_shell_failed",
        "host_unknown",
        "host_unreachable",
        "link_failed",
        "ssh_connection_lost",
    }
)
"""Failures that another try may heal; all others need a human and stop the loop."""

_STATES = {
    "ssh_authentication_failed": LinkState.DENIED,
    "ssh_host_key_unknown": LinkState.DENIED,
    "ssh_host_key_revoked": LinkState.KEY_CHANGED,
    "ssh_host_key_changed": LinkState.KEY_CHANGED,
}


class HostSession:
    """One host, for as long as the program runs. All of it belongs to one event loop.

    Attributes: ``state``; ``since`` (monotonic seconds of its last change); ``problem`` (why it is not live);
    ``offered`` (the key of a host that is not trusted yet); ``attempt`` and ``retry_at`` of the back-off;
    ``generation`` (counts links); ``hello``; ``workspace`` (absolute, on the host); ``python`` (the agent's
    interpreter); ``payload`` (hash); ``payload_directory``.
    """

    def __init__(
        self,
        host: Host,
        environments: Mapping[str, Environment],
        *,
        files: SshFiles | None = None,
        on_change: Callable[[], None] = lambda: None,
        connect: Callable[[], Awaitable[Link]] | None = None,
    ) -> None:
        self._host = host
        self._environments = environments
        self._files = files or SshFiles()
        self._on_change = on_change
        self._make_link = connect or self._connect_host
        self._embedded: EmbeddedHost | None = None
        self._accepted: tuple[OfferedKey, ...] = ()
        self._known_hosts: Path | None = None
        self._tunnels = Tunnels()
        self._link: Link | None = None
        self._gateway: GatewayClient | None = None
        self._loop_task: asyncio.Task[None] | None = None
        self._retry = asyncio.Event()
        self._settled = asyncio.Event()
        self.name = host.address or " ".join(host.transport)
        self.state = LinkState.OFFLINE
        self.since = time.monotonic()
        self.problem: Finding | None = None
        self.offered: OfferedKey | None = None
        self.attempt = 0
        self.retry_at: float | None = None
        self.generation = 0
        self.hello: dict[str, Any] = {}
        self.workspace = ""
        self.python = ""
        self.payload = payload.build().sha256

    @property
    def payload_directory(self) -> str:
        return payload.build().directory(self.workspace)

    @property
    def latency(self) -> float | None:
        """Round trip through the gateway, seconds."""
        return self._gateway.latency if self._gateway else None

    @property
    def skew(self) -> float | None:
        """Host clock minus laptop clock at the last ping, seconds, good to half the round trip."""
        return self._gateway.skew if self._gateway else None

    @property
    def heard_at(self) -> float | None:
        """Laptop monotonic seconds of the last frame."""
        return self._gateway.heard_at if self._gateway else None

    async def connect(self) -> None:
        """Start the session and wait for its first link. Raises FindingError when that fails.

        A failure that time may heal is tried again in the background until `close`.
        """
        if self._loop_task is None:
            self._loop_task = asyncio.create_task(self._keep_alive())
        await self._settled.wait()
        if self.state is not LinkState.LIVE and self.problem is not None:
            raise FindingError(self.problem)

    async def request(self, op: str, **fields: Any) -> dict[str, Any]:
        """Ask the gateway. Raises FindingError with the host's finding, LinkLost without a link."""
        return await self._live().request(op, **fields)

    async def subscribe(self, op: str, **fields: Any) -> AsyncIterator[dict[str, Any]]:
        """Pushes of ``op`` on the present link; ends with LinkLost, and the caller subscribes again at its offset."""
        pushes = self._live().subscribe(op, **fields)
        try:
            async for push in pushes:
                yield push
        finally:
            await pushes.aclose()  # type: ignore[attr-defined]

    async def put(self, source: Path | bytes, remote_path: str) -> None:
        """Bring a file to the host. Raises LinkLost, FindingError."""
        self._live()
        assert self._link is not None
        await self._link.put(source, remote_path)

    async def upload(self, source: Path, sha256: str) -> str:
        """Bring a prompt file to ``<workspace>/.eagle3/uploads/<sha256>/<name>`` unless it is there; that path."""
        target = f"{self.workspace}/.eagle3/uploads/{sha256}/{source.name}"
        there = await self.request("probe", what="path", path=target)
        if not there.get("exists"):
            await self.put(source, target)
        return target

    async def tunnel(self, remote_port: int) -> int:
        """A local port that reaches this port of the host's loopback, also after reconnects."""
        self._live()
        assert self._link is not None
        return await self._tunnels.open(self._link, remote_port)

    def retry_now(self) -> None:
        """Try at once instead of at the end of the back-off; also ends a stop that waited for a human."""
        if self.state is not LinkState.LIVE:
            self._settled.clear()
        self._retry.set()

    def trust(self, save: bool) -> None:
        """Accept the offered key of an unknown host, for this session or for good, and try again.

        Raises OSError when it cannot be saved.
        """
        if self.offered is None or self.state is LinkState.KEY_CHANGED:
            return
        if save and self._known_hosts is not None:
            hostkeys.append(self._known_hosts, self.offered.line)
        self._accepted += (self.offered,)
        self.retry_now()

    async def rebind(self) -> None:
        """Replace the changed key in known_hosts by the offered one and connect: the operator has typed the name.

        Raises FindingError when the host cannot be reached then, OSError when known_hosts cannot be written.
        """
        if self.offered is None or self._known_hosts is None:
            return
        hostkeys.rebind(self._known_hosts, self.offered)
        self.retry_now()
        await self.connect()

    async def close(self) -> None:
        """End the link. Runs on the host go on."""
        if self._loop_task is not None:
            self._loop_task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._loop_task
        await self._drop()
        if self._embedded is not None:
            await self._embedded.close()
        self._set(LinkState.OFFLINE)

    def _live(self) -> GatewayClient:
        if self._gateway is None or self._gateway.lost.is_set():
            raise LinkLost(self.problem.message if self.problem else f"{self.name} is not connected")
        return self._gateway

    async def _keep_alive(self) -> None:
        while True:
            try:
                await self._establish()
                assert self._gateway is not None
                await self._gateway.lost.wait()
                reason = self._gateway.reason
                self.problem = warning(
                    "ssh_connection_lost", f"The link to {self.name} was lost: {reason}", path=self.name
                )
                self._set(LinkState.RECONNECTING)
            except LinkLost as problem:
                self.problem = error(
                    "ssh_connection_lost", f"The link to {self.name} was lost: {problem}", path=self.name
                )
            except TimeoutError:
                self.problem = error("host_not_answering", f"{self.name} does not finish a command.", path=self.name)
            except FindingError as problem:
                self.problem = problem.findings[0]
                if isinstance(problem, login.HostKeyRefused):
                    self.offered, self._known_hosts = problem.offered, problem.known_hosts
            except Exception as problem:
                # Whoever waits for the link has to hear of it, whatever it was.
                self.problem = error(
                    "link_failed",
                    f"The link to {self.name} cannot be made: {type(problem).__name__}: {problem}",
                    path=self.name,
                    fix="Correct what it says and try again.",
                )
            await self._drop()
            await self._wait_for_next_try()

    async def _wait_for_next_try(self) -> None:
        assert self.problem is not None
        self._retry.clear()
        if self.problem.code in TRANSIENT:
            self.attempt += 1
            first, longest = BACKOFF_SECONDS
            delay = random.uniform(0.0, min(longest, first * 2 ** (self.attempt - 1)))
            self.retry_at = time.monotonic() + delay
            self._set(LinkState.RECONNECTING)
            self._settled.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._retry.wait()
        else:
            self._set(_STATES.get(self.problem.code, LinkState.OFFLINE))
            self._settled.set()
            await self._retry.wait()
        self.retry_at = None

    async def _establish(self) -> None:
        """Link, bootstrap, gateway; afterwards the session is live."""
        self.offered = None
        # A later try is one of a link that is away: how long it has been stays true, and no try is an event.
        if self.generation == 0 and self.attempt == 0:
            self._set(LinkState.CONNECTING)
        self._link = link = await self._make_link()
        pythons = bootstrap.candidates(self._host.address, self._environments)
        package = payload.build()
        foothold = await bootstrap.prepare(link, self._host.workspace, pythons, package)
        self.workspace, self.python = foothold.workspace, foothold.python
        environment = [f"PYTHONPATH={self.payload_directory}", "PYTHONSAFEPATH=1", "PYTHONUNBUFFERED=1"]
        command = [self.python, "-m", "eagle3_backend.agent.gateway", "--workspace", self.workspace]
        stream = await link.open("exec env " + shlex.join([*environment, *command]))
        self._gateway = GatewayClient(stream, on_ping=self._judge_silence)
        try:
            self.hello = await self._gateway.start()
        except LinkLost as problem:
            if link.closed.is_set():
                raise
            raise FindingError(
                error(
                    "gateway_failed",
                    f"The agent on {self.name} does not come up: {problem}",
                    path=self.name,
                    fix=f"Run it there by hand: {shlex.join(command)}",
                )
            ) from problem
        await self._tunnels.renew(link)
        self.generation += 1
        self.attempt = 0
        self.problem = None
        self._set(LinkState.LIVE)
        self._settled.set()

    async def _connect_host(self) -> Link:
        if self._host.transport:
            return CommandLink(self._host.transport)
        if self._host.address == "embedded":
            if self._embedded is None:
                self._embedded = await EmbeddedHost.start()
            return await self._embedded.connect()
        hops = await asyncio.to_thread(ssh_config.chain, self._host, self._files)
        return await login.connect(hops, self._accepted)

    def _judge_silence(self) -> None:
        gateway = self._gateway
        if gateway is None or self.state not in (LinkState.LIVE, LinkState.STALE):
            return
        silent = time.monotonic() - gateway.heard_at > 1.5 * PING_SECONDS
        self._set(LinkState.STALE if silent else LinkState.LIVE)

    async def _drop(self) -> None:
        gateway, self._gateway = self._gateway, None
        link, self._link = self._link, None
        if gateway is not None:
            await gateway.close()
        if link is not None:
            await link.close()

    def _set(self, state: LinkState) -> None:
        if state is not self.state:
            self.state = state
            self.since = time.monotonic()
        self._on_change()
