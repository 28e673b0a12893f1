"""Tunnels to serving ports: the same local port for as long as the session lasts, made again on every new link."""

from __future__ import annotations

import contextlib

from eagle3_backend.findings import FindingError
from eagle3_backend.remote.link import Link, LinkLost


class Tunnels:
    """Local port by remote port."""

    def __init__(self) -> None:
        self._ports: dict[int, int] = {}

    async def open(self, link: Link, remote_port: int) -> int:
        """The local port that reaches 127.0.0.1:``remote_port`` on the host. Raises LinkLost, FindingError."""
        if remote_port not in self._ports:
            self._ports[remote_port] = await link.forward(remote_port)
        return self._ports[remote_port]

    async def renew(self, link: Link) -> None:
        """Make all of them again on a new link, on their old local ports; one whose port is taken meanwhile moves."""
        for remote_port, local_port in list(self._ports.items()):
            try:
                await link.forward(remote_port, local_port)
            except OSError:
                with contextlib.suppress(LinkLost, FindingError):
                    self._ports[remote_port] = await link.forward(remote_port)
