"""The laptop's copy of journals: lines and offsets move in one transaction, so each line is there exactly once.

Several programs may follow one run into one file: whoever stores a stretch first wins, the others see its offset move.
The file can be deleted at any time; hosts still have everything it held.
"""

from __future__ import annotations

import errno
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle3_backend.runs.lines import Line, metric_values, parse, parse_line

VERSION = 1
"""Raised by hand with the tables; a file of another version is made anew from the hosts."""

_TABLES = """
CREATE TABLE attempts (
    id INTEGER PRIMARY KEY, workspace TEXT NOT NULL, run TEXT NOT NULL, attempt INTEGER NOT NULL,
    generation TEXT NOT NULL, offset INTEGER NOT NULL, UNIQUE (workspace, run, attempt));
CREATE TABLE lines (
    attempt_id INTEGER NOT NULL, offset INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL,
    PRIMARY KEY (attempt_id, offset)) WITHOUT ROWID;
CREATE INDEX lines_by_kind ON lines (attempt_id, kind, offset);
CREATE TABLE series (
    attempt_id INTEGER NOT NULL, name TEXT NOT NULL, step REAL NOT NULL, value REAL,
    PRIMARY KEY (attempt_id, name, step)) WITHOUT ROWID;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, source TEXT NOT NULL, text TEXT NOT NULL, severity TEXT NOT NULL,
    kind TEXT NOT NULL);
"""

_NOTES = """
CREATE TABLE IF NOT EXISTS notes (
    place TEXT NOT NULL, name TEXT NOT NULL, seen REAL NOT NULL, owner TEXT NOT NULL, until REAL NOT NULL,
    told INTEGER NOT NULL, PRIMARY KEY (place, name)) WITHOUT ROWID;
"""
"""Who calls a person for what. Beside the version: an older program works on the same file without it."""
NOTES_KEPT = 30 * 86400.0
"""Seconds after which a note that nobody sees any more is forgotten."""

_OF_ATTEMPT = (
    "FROM lines l JOIN attempts a ON a.id = l.attempt_id WHERE a.workspace = ? AND a.run = ? AND a.attempt = ?"
)


@dataclass(frozen=True)
class Key:
    """One attempt of one run in one workspace (by the workspace's own id, whatever host mounts it)."""

    workspace: str
    run: str
    attempt: int


class Store:
    """One connection to the file. Not for use from several threads at once."""

    def __init__(self, path: Path) -> None:
        """Raises OSError when the file cannot be used: a read-only or full disk."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # journals and logs are their owner's affair
        self._path = path
        try:
            self._connection = self._connect()
        except sqlite3.OperationalError as problem:
            raise OSError(errno.EIO, str(problem), str(path)) from problem
        except sqlite3.DatabaseError:
            # The file is no database any more: it is a copy, so a new one is as good.
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            self._connection = self._connect()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=30.0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            with _transaction(connection):
                if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
                    for name in ("attempts", "lines", "series", "events"):
                        connection.execute(f"DROP TABLE IF EXISTS {name}")
                    for statement in _TABLES.split(";")[:-1]:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version = {VERSION}")
                connection.execute(_NOTES)
        except sqlite3.DatabaseError:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        self._connection.close()

    def position(self, key: Key) -> tuple[str, int]:
        """Generation and offset of the first byte that is not stored; ("", 0) for an attempt never seen."""
        row = self._connection.execute(
            "SELECT generation, offset FROM attempts WHERE workspace = ? AND run = ? AND attempt = ?",
            (key.workspace, key.run, key.attempt),
        ).fetchone()
        return (str(row[0]), int(row[1])) if row else ("", 0)

    def restart(self, key: Key, generation: str) -> None:
        """Begin a journal of this generation at offset 0; what was stored of another one goes. Idempotent."""
        with _transaction(self._connection):
            row = self._connection.execute(
                "SELECT id, generation FROM attempts WHERE workspace = ? AND run = ? AND attempt = ?",
                (key.workspace, key.run, key.attempt),
            ).fetchone()
            if row and row[1] == generation:
                return
            if row:
                self._connection.execute("DELETE FROM lines WHERE attempt_id = ?", (row[0],))
                self._connection.execute("DELETE FROM series WHERE attempt_id = ?", (row[0],))
                self._connection.execute(
                    "UPDATE attempts SET generation = ?, offset = 0 WHERE id = ?", (generation, row[0])
                )
            else:
                self._connection.execute(
                    "INSERT INTO attempts (workspace, run, attempt, generation, offset) VALUES (?, ?, ?, ?, 0)",
                    (key.workspace, key.run, key.attempt, generation),
                )

    def append(self, key: Key, generation: str, offset: int, data: bytes) -> bool:
        """Store whole lines that start at ``offset``, and move the offset behind them, in one transaction.

        False when the stored position is not (generation, offset): somebody else was first, ask `position` again.
        """
        lines = parse(data, offset)
        with _transaction(self._connection):
            row = self._connection.execute(
                "UPDATE attempts SET offset = ? WHERE workspace = ? AND run = ? AND attempt = ? AND generation = ?"
                " AND offset = ? RETURNING id",
                (offset + len(data), key.workspace, key.run, key.attempt, generation, offset),
            ).fetchone()
            if row is None:
                return False
            self._connection.executemany(
                "INSERT INTO lines VALUES (?, ?, ?, ?)",
                [(row[0], line.offset, line.kind, line.text) for line in lines],
            )
            self._connection.executemany(
                "INSERT OR REPLACE INTO series VALUES (?, ?, ?, ?)",
                [
                    (row[0], name, step, None if math.isnan(value) else value)
                    for line in lines
                    for name, step, value in metric_values(line)
                ],
            )
        return True

    def lines(self, key: Key, without: tuple[str, ...] = ()) -> list[Line]:
        """The stored lines in file order, without those of these kinds."""
        marks = ", ".join("?" * len(without))
        rows = self._connection.execute(
            f"SELECT l.text, l.offset {_OF_ATTEMPT} AND l.kind NOT IN ({marks}) ORDER BY l.offset",
            (key.workspace, key.run, key.attempt, *without),
        )
        return [parse_line(text, offset) for text, offset in rows]

    def last(self, key: Key, kind: str) -> Line | None:
        """The newest stored line of this kind."""
        row = self._connection.execute(
            f"SELECT l.text, l.offset {_OF_ATTEMPT} AND l.kind = ? ORDER BY l.offset DESC LIMIT 1",
            (key.workspace, key.run, key.attempt, kind),
        ).fetchone()
        return parse_line(*row) if row else None

    def series(self, key: Key) -> dict[str, list[tuple[float, float]]]:
        """Every metric of an attempt as (step, value) in step order; NaN where no number was measured."""
        found: dict[str, list[tuple[float, float]]] = {}
        for name, point in self.points(key):
            found.setdefault(name, []).append(point)
        return found

    def points(self, key: Key) -> Iterator[tuple[str, tuple[float, float]]]:
        """The same one after the other, by name: those of a long run are many megabytes together."""
        rows = self._connection.execute(
            "SELECT s.name, s.step, s.value FROM series s JOIN attempts a ON a.id = s.attempt_id"
            " WHERE a.workspace = ? AND a.run = ? AND a.attempt = ? ORDER BY s.name, s.step",
            (key.workspace, key.run, key.attempt),
        )
        for name, step, value in rows:
            yield name, (step, math.nan if value is None else value)

    def clock(self, key: Key, count: int = 500) -> list[tuple[float, float]]:
        """(step, host's wall time) of at most ``count`` metric lines, evenly spread, in step order."""
        offsets = [
            row[0]
            for row in self._connection.execute(
                f"SELECT l.offset {_OF_ATTEMPT} AND l.kind = 'metric' ORDER BY l.offset",
                (key.workspace, key.run, key.attempt),
            )
        ]
        if not offsets:
            return []
        picked = {offsets[place * (len(offsets) - 1) // max(1, count - 1)] for place in range(count)}
        marks = ", ".join("?" * len(picked))
        rows = self._connection.execute(
            f"SELECT l.text, l.offset {_OF_ATTEMPT} AND l.offset IN ({marks})",
            (key.workspace, key.run, key.attempt, *picked),
        )
        lines = (parse_line(text, offset) for text, offset in rows)
        return sorted((values[0][1], line.t) for line in lines if (values := metric_values(line)))

    def attempts(self, workspace: str, run: str) -> list[int]:
        """Attempts of a run of which anything is stored, ascending."""
        rows = self._connection.execute(
            "SELECT attempt FROM attempts WHERE workspace = ? AND run = ? ORDER BY attempt", (workspace, run)
        )
        return [int(row[0]) for row in rows]

    def add_event(self, at: float, source: str, text: str, severity: str, kind: str) -> None:
        """Keep something that happened on the laptop's side, such as a lost link. A full disk costs it, no more."""
        with suppress(sqlite3.OperationalError):
            self._connection.execute(
                "INSERT INTO events (at, source, text, severity, kind) VALUES (?, ?, ?, ?, ?)",
                (at, source, text, severity, kind),
            )

    def events(self, limit: int) -> list[dict[str, Any]]:
        """The newest events, oldest first."""
        rows = self._connection.execute(
            "SELECT at, source, text, severity, kind FROM events ORDER BY id DESC LIMIT ?", (limit,)
        ).fetchall()
        return [dict(zip(("at", "source", "text", "severity", "kind"), row, strict=True)) for row in reversed(rows)]

    def claim_note(self, note: tuple[str, str], owner: str, now: float, *, calm: float, lease: float) -> str:
        """Who tells of ``note`` (its place and its name): "mine", "told" by somebody already, or "theirs" to tell.

        It is anew the first one's who saw it when nobody has seen it for ``calm`` seconds, and becomes ``owner``'s when
        who was to tell it has not kept it (`keep_notes`) for ``lease`` seconds. Times are wall times of this laptop. A
        file that cannot be used keeps nobody from telling.
        """
        try:
            with _transaction(self._connection):
                row = self._connection.execute(
                    "SELECT seen, owner, until, told FROM notes WHERE place = ? AND name = ?", note
                ).fetchone()
                begun = row is None or abs(now - row[0]) > calm
                if not begun and row[3]:
                    self._connection.execute("UPDATE notes SET seen = ? WHERE place = ? AND name = ?", (now, *note))
                    return "told"
                # A clock that was set back makes no claim that lasts for hours; one that began a little later than
                # ``now``, while this one waited for the file, is a claim all the same.
                if not begun and row[1] != owner and now <= row[2] <= now + 2 * lease:
                    return "theirs"
                self._connection.execute("DELETE FROM notes WHERE seen < ?", (now - NOTES_KEPT,))
                self._connection.execute(
                    "INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?, ?, 0)", (*note, now, owner, now + lease)
                )
        except sqlite3.Error:
            pass
        return "mine"

    def note_told(self, note: tuple[str, str], owner: str) -> None:
        """``owner`` has told of it, or has given up telling."""
        with suppress(sqlite3.Error):
            self._connection.execute(
                "UPDATE notes SET told = 1 WHERE place = ? AND name = ? AND owner = ?", (*note, owner)
            )

    def keep_notes(self, place: str, seen: dict[str, float], owner: str, until: float) -> None:
        """What ``owner`` is still to tell stays its own; what is seen (when, by name) is no news if seen again."""
        with suppress(sqlite3.Error), _transaction(self._connection):
            self._connection.execute("UPDATE notes SET until = ? WHERE owner = ? AND told = 0", (until, owner))
            self._connection.executemany(
                "UPDATE notes SET seen = max(seen, ?) WHERE place = ? AND name = ?",
                [(at, place, name) for name, at in seen.items()],
            )


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """IMMEDIATE: the write lock is taken at once, so a second program waits instead of failing half way."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
