"""The known hosts beside the one that is worked on: their links and gauges, each attended to by a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from eagle3_backend.control import hosts
from eagle3_backend.control.hostview import host_view, machine_of
from eagle3_backend.control.snapshot import HostView, Machine
from eagle3_backend.findings import FindingError
from eagle3_backend.profile import Host
from eagle3_backend.remote.link import LinkLost
from eagle3_backend.remote.session import HostSession

AGAIN_SECONDS = 1.0
"""Between two looks at whether a link is there again."""


class Fleet:
    """Belongs to control's event loop. ``changed`` asks for a new picture."""

    def __init__(self, config_dir: Path, changed: Callable[[], None]) -> None:
        self._config_dir = config_dir
        self._changed = changed
        self._watched: dict[str, _Watched] = {}

    def watch(self, but: str) -> None:
        """Look at every known host from now on; not at the one that is worked on. Raises FindingError."""
        for entry in hosts.known(self._config_dir):
            name = str(entry["name"])
            if name != but and name not in self._watched:
                # One that cannot be reached as it is written is told in the list of hosts all the same.
                with contextlib.suppress(FindingError):
                    self._watched[name] = _Watched(hosts.known_host(self._config_dir, name), self._changed)
        self._changed()

    def views(self, but: str) -> tuple[HostView, ...]:
        return tuple(host_view(one.session, one.machine, name) for name, one in self._watched.items() if name != but)

    async def close(self) -> None:
        watched, self._watched = self._watched, {}
        await asyncio.gather(*(one.close() for one in watched.values()))


class _Watched:
    """One host."""

    def __init__(self, host: Host, changed: Callable[[], None]) -> None:
        self.session = HostSession(host, {}, on_change=changed)
        self.machine = Machine()
        self._changed = changed
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.session.close()

    async def _run(self) -> None:
        with contextlib.suppress(FindingError):
            await self.session.connect()
        while True:
            with contextlib.suppress(LinkLost, FindingError):
                async for push in self.session.subscribe("watch", interval=1.0):
                    if "telemetry" in push:
                        self.machine = machine_of(push["telemetry"])
                        self._changed()
            await asyncio.sleep(AGAIN_SECONDS)
