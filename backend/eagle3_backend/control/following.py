"""Keeps the laptop's copies in step with a campaign's runs, for one life of a link."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3_backend.control.fold import RunFold, event_of
from eagle3_backend.control.snapshot import Event, LogView
from eagle3_backend.findings import FindingError
from eagle3_backend.runs.follower import Gateway, JournalFollower, LogFollower, StartOver
from eagle3_backend.runs.lines import Line
from eagle3_backend.runs.loglines import LogLine, LogLines
from eagle3_backend.runs.segments import Segments
from eagle3_backend.runs.store import Key, Store

VIEW_LINES = 1000
"""Lines of a log that the snapshot shows."""

VIEW_BYTES = 256 * 1024

RETRY_SECONDS = 0.5
"""Between two tries to follow an attempt whose supervisor has not come up yet."""

ABSENT = frozenset({"run_not_started", "run_unknown"})
"""What a host answers for an attempt of which there is nothing to read: not yet, or never."""

Attempt = tuple[str, int]
"""Run and number of an attempt."""


class LogTail:
    """The display lines at the end of one attempt's log."""

    def __init__(self, stage: str, key: Key, segments: Segments) -> None:
        self.stage = stage
        self.key = key
        self.segments = segments
        self._lines: deque[LogLine] = deque(maxlen=VIEW_LINES)
        self._parser = LogLines()
        self._end: int | None = None
        self._generation = segments.generation()
        self._view: LogView | None = None
        offset, data = segments.tail(VIEW_BYTES)
        if data:
            self.take(offset, data)

    def take(self, offset: int, data: bytes) -> None:
        """Bytes at ``offset``, after they were stored; a stretch may begin within a line, which is left out."""
        generation = self.segments.generation()
        if generation != self._generation:
            self._generation, self._end = generation, None
            self._lines.clear()
        if self._end is not None and offset < self._end:
            offset, data = self._end, data[self._end - offset :]
        if offset != (self._end or 0):
            before, begin = self._end or 0, data.find(b"\n") + 1
            offset, data = offset + begin, data[begin:]
            self._lines.append(LogLine(before, offset, "", "skipped"))
            self._end = None
        if self._end is None:
            self._parser = LogLines(offset, colours=True)
        self._end = offset + len(data)
        self._view = None
        self._lines.extend(self._parser.take(data))

    def view(self) -> LogView:
        """The same object as long as nothing came."""
        if self._view is None:
            lines = (*self._lines, *self._parser.rest())[-VIEW_LINES:]
            self._view = LogView(self.stage, self.key.attempt, self._end or 0, lines, self._generation)
        return self._view


@dataclass(frozen=True)
class Followed:
    """One attempt of a stage; ``ended`` when its host says that nothing more will come."""

    stage: str
    attempt: Attempt
    ended: bool


class Following:
    """Follows every attempt of a campaign's runs, and the log of one of them."""

    def __init__(
        self,
        gateway: Gateway,
        store: Store,
        logs: Path,
        workspace: str,
        *,
        tell: Callable[[Event], None],
        changed: Callable[[bool], None],
    ) -> None:
        """``workspace`` is the workspace's id. ``changed`` is told whether a run's state may have changed."""
        self._gateway = gateway
        self._store = store
        self._logs = logs
        self.workspace = workspace
        self._tell = tell
        self._changed = changed
        self._tasks: dict[tuple[str, Followed], asyncio.Task[None]] = {}
        self._complete: set[Attempt] = set()
        self._announced: dict[Attempt, int] = {}
        self.folds: dict[Attempt, RunFold] = {}
        self.log: LogTail | None = None

    def key(self, run: str, attempt: int) -> Key:
        return Key(self.workspace, run, attempt)

    def segments(self, run: str, attempt: int) -> Segments:
        return Segments(self._logs / self.workspace / run / str(attempt))

    def reconcile(self, attempts: Sequence[Followed], log: Followed | None, group: asyncio.TaskGroup) -> None:
        """Follow these attempts, oldest first; what was followed and has ended is read to its end."""
        for followed in attempts:
            if followed.attempt not in self._complete:
                self._ensure("journal", followed, self._follow_journal, group)
        if log is None:
            self._cancel(lambda file, _: file == "log")
            self.log = None
        else:
            if self.log is None or self.log.key != self.key(*log.attempt):
                self._cancel(lambda file, _: file == "log")
                self.log = LogTail(log.stage, self.key(*log.attempt), self.segments(*log.attempt))
            self._ensure("log", log, self._follow_log, group)

    def let_go(self) -> None:
        """The link is gone, and its tasks with it."""
        self._tasks.clear()

    def _cancel(self, which: Callable[[str, Followed], bool]) -> None:
        for name in [name for name in self._tasks if which(*name)]:
            self._tasks.pop(name).cancel()

    def _ensure(
        self,
        file: str,
        followed: Followed,
        follow: Callable[[Followed], Coroutine[Any, Any, None]],
        group: asyncio.TaskGroup,
    ) -> None:
        if (file, followed) not in self._tasks:
            if followed.ended:
                self._cancel(lambda name, other: name == file and other.attempt == followed.attempt)
            self._tasks[file, followed] = group.create_task(_retrying(follow, followed))

    async def _follow_journal(self, followed: Followed) -> None:
        attempt, key = followed.attempt, self.key(*followed.attempt)
        fold = self.folds[attempt] = RunFold(self._store.points(key))
        follower = JournalFollower(self._store, key, lambda lines: self._take(followed, fold, lines))
        if followed.ended:
            await follower.catch_up(self._gateway)
            self._complete.add(attempt)
        else:
            await follower.follow(self._gateway)

    def _take(self, followed: Followed, fold: RunFold, lines: list[Line]) -> None:
        fold.add(lines)
        new = [line for line in lines if line.offset >= self._announced.get(followed.attempt, 0)]
        for line in new:
            self._announced[followed.attempt] = line.offset + 1
            event = event_of(line, followed.stage)
            if event is not None:
                self._tell(event)
        self._changed(not followed.ended and any(line.kind in ("state", "artifact") for line in new))

    async def _follow_log(self, followed: Followed) -> None:
        key = self.key(*followed.attempt)
        # Another program may have stored more meanwhile; the tail starts from what is stored now.
        tail = self.log = LogTail(followed.stage, key, self.segments(*followed.attempt))

        def take(offset: int, data: bytes) -> None:
            tail.take(offset, data)
            self._changed(False)

        follower = LogFollower(tail.segments, key, take)
        await (follower.catch_up if followed.ended else follower.follow)(self._gateway)


async def _retrying(follow: Callable[[Followed], Coroutine[Any, Any, None]], followed: Followed) -> None:
    """Start over where a copy has to; wait for a supervisor that is not up yet."""
    while True:
        try:
            return await follow(followed)
        except StartOver:
            continue
        except FindingError as problem:
            if followed.ended and problem.findings[0].code in ABSENT:
                return
            if problem.findings[0].code not in ABSENT:
                raise
            await asyncio.sleep(RETRY_SECONDS)
