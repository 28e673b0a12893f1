"""The whole link with the real payload and agent, over a real sshd that is killed again and again."""

from __future__ import annotations

import asyncio
import json
import textwrap
import uuid
from pathlib import Path

import psutil

from eagle3_backend.remote.link import LinkLost
from eagle3_backend.runs.follower import JournalFollower, LogFollower
from eagle3_backend.runs.segments import Segments
from eagle3_backend.runs.store import Key, Store
from eagle3_backend.states import LinkState

STAGE = textwrap.dedent(
    """
    import os, sys, time
    from pathlib import Path
    from eagle3_backend.agent.journal import Journal

    here = Path(sys.argv[1])
    journal = Journal(here / "journal.jsonl", "stage")
    for step in range(600):
        journal.metric(step, **{"train/loss": 1.0 / (step + 1)})
        os.write(1, b"\\xff\\xc3 step %d\\n" % step)
        time.sleep(0.01)
    journal.note("last line")
    time.sleep(600)
    """
)


async def follow_on(session, make):
    """As the panel does: a new follower at the stored offset after every lost link."""
    while True:
        try:
            await make().follow(session)
        except LinkLost:
            await asyncio.sleep(0.05)


async def test_journal_and_log_are_complete_after_sshd_was_killed_again_and_again(
    make_sshd, open_session, until, quick_retry, tmp_path
):
    server = make_sshd()
    session = open_session(server.host(), files=server.files)
    await session.connect()
    spec = {
        "protocol": 1,
        "run": "case-train-1",
        "stage": "train",
        "stage_version": 1,
        "fingerprint": "f" * 12,
        "parameters": {},
        "inputs": {},
        "output": f"{session.workspace}/case/train/{'f' * 12}",
        "argv": [session.python, "-c", STAGE, "{run_directory}"],
        "engine": None,
        "environment": "host",
        "payload": session.payload,
    }
    started = await session.request("start", spec=spec, request=uuid.uuid4().hex)
    assert started["started"]
    directory = Path(session.workspace) / ".eagle3" / "runs" / "case-train-1" / "1"
    key = Key(session.hello["workspace_id"], "case-train-1", 1)
    store, segments = Store(tmp_path / "runs.sqlite"), Segments(tmp_path / "log")
    lines: list[object] = []
    followers = [
        asyncio.create_task(follow_on(session, lambda: JournalFollower(store, key, lines.extend))),
        asyncio.create_task(follow_on(session, lambda: LogFollower(segments, key, lambda at, data: None))),
    ]
    for kill in range(3):
        await until(lambda seen=len(lines): len(lines) > seen + 20)
        server.kill()
        await until(lambda: session.state is LinkState.RECONNECTING)
        server.start()
        await until(lambda wanted=kill + 2: session.generation == wanted)
    await until(lambda: b'"last line"' in (directory / "journal.jsonl").read_bytes())

    def complete():
        size = (directory / "journal.jsonl").stat().st_size
        return store.position(key)[1] == size and segments.end() == (directory / "output.log").stat().st_size

    await until(complete)
    for follower in followers:
        follower.cancel()
    (state,) = (run["state"] for run in (await session.request("runs"))["runs"])
    assert state == "running"
    written = [json.loads(line) for line in (directory / "journal.jsonl").read_bytes().splitlines()]
    assert [(line.writer, line.seq) for line in store.lines(key)] == [(line["w"], line["seq"]) for line in written]
    kept = b"".join(path.read_bytes() for path in sorted((tmp_path / "log").iterdir()) if path.stat().st_size)
    assert kept == (directory / "output.log").read_bytes()
    await session.request("stop", run="case-train-1", attempt=1)
    supervisor = json.loads((directory / "supervisor.json").read_text())["supervisor"]["pid"]
    await until(lambda: (directory / "exit.json").exists() and not psutil.pid_exists(supervisor))
