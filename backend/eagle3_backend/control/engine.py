"""`Control`: a thread and an event loop of its own, so that no face ever waits for a network.

The work behind it is imported on that thread: a panel paints before SSH is loaded.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle3_backend.control.commands import Command
from eagle3_backend.control.snapshot import Event, Snapshot
from eagle3_backend.findings import FindingError

if TYPE_CHECKING:
    from eagle3_backend.control.alerts import Notices
    from eagle3_backend.control.desk import Desk

SNAPSHOT_SECONDS = 0.1
"""Least time between two snapshots."""

CLOSE_SECONDS = 5.0


class Control:
    """Commands in, snapshots out. ``state_dir`` may be shared by any number of programs at once."""

    def __init__(self, config_dir: Path, state_dir: Path, cache_dir: Path, *, notices: Notices | None = None) -> None:
        """``notices`` says how to call a person when the open campaign needs one; without it nobody watches."""
        self._folders = (config_dir, state_dir, cache_dir)
        self._notices = notices
        self._snapshot = Snapshot()
        self._listeners: list[Callable[[Event], None]] = []
        self._watchers: list[Callable[[], None]] = []
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._dirty = asyncio.Event()
        self._published = asyncio.Condition()
        self._desk: asyncio.Future[Desk] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Start the thread. Returns at once."""
        self._thread.start()

    def submit(self, command: Command) -> concurrent.futures.Future[Any]:
        """Ask for an act; see `commands` for its answer. The future raises FindingError when it is refused."""
        return asyncio.run_coroutine_threadsafe(self._answer(command), self._loop)

    def snapshot(self) -> Snapshot:
        """The newest picture; never waits."""
        return self._snapshot

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Call ``listener`` on control's thread for every event from now on; the answer ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def on_picture(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` now, and on control's thread whenever there is a new picture."""
        self._watchers.append(listener)
        listener()

    def close(self) -> None:
        """Let hosts go and end the thread. Runs on hosts go on."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(CLOSE_SECONDS)

    async def _answer(self, command: Command) -> Any:
        desk = await asyncio.shield(self._desk)
        try:
            answer = await desk.handle(command)
        except FindingError:
            await self._shown()
            raise
        await self._shown()
        return answer

    async def _shown(self) -> None:
        """Whoever has an answer, or a refusal, finds what it changed in the snapshot, too."""
        async with self._published:
            await self._published.wait_for(lambda: not self._dirty.is_set())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        from eagle3_backend.control.desk import Desk

        try:
            desk = Desk(*self._folders, changed=self._dirty.set, tell=self._tell, notices=self._notices)
        except BaseException as problem:
            self._desk.set_exception(problem)
            await self._closing.wait()
            return
        self._desk.set_result(desk)
        publisher = asyncio.create_task(self._publish(desk))
        await self._closing.wait()
        publisher.cancel()
        await desk.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _publish(self, desk: Desk) -> None:
        """Changes come in any number; a new picture comes at most every `SNAPSHOT_SECONDS`."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            self._snapshot = desk.picture(self._snapshot.version + 1)
            for listener in self._watchers:
                listener()
            async with self._published:
                self._published.notify_all()
            await asyncio.sleep(SNAPSHOT_SECONDS)

    def _tell(self, event: Event) -> None:
        for listener in list(self._listeners):
            listener(event)
