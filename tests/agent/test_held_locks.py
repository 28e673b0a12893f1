"""Who holds which lock: told by the kernel, never by trying the lock."""

from __future__ import annotations

import json
import os
import signal
import threading
import uuid
from pathlib import Path

import pytest

from eagle3_backend.agent import held_locks, locks, processes
from eagle3_backend.agent.workspace import local_directory

pytestmark = pytest.mark.skipif(not processes.LINUX, reason="only Linux tells who holds a lock")

WAIT = "print('up', flush=True); time.sleep(600)"


def of_run(gateway, spec):
    """Locks of its run; tests name theirs uniquely, since all workspaces of a machine share one folder of locks."""
    return [lock for lock in gateway.request("locks")["locks"] if lock["run"] == spec["run"]]


def pids(lock):
    return {process["pid"] for process in lock["processes"]}


@pytest.fixture
def lock_file():
    """The name of a GPU that no machine has, and its lock's file."""
    gpu = f"GPU-{uuid.uuid4()}"
    path = local_directory() / f"gpu-{gpu}.lock"
    yield gpu, path
    path.unlink(missing_ok=True)


def seen(gpu, proc=held_locks.PROC):
    return [lock for lock in held_locks.held(proc)[0] if lock["thing"] == gpu]


def test_a_running_attempt_holds_its_output_and_its_gpus_until_it_ends(gateway, stages, until):
    gpus = [f"GPU-{uuid.uuid4()}" for _ in range(2)]
    spec = stages.spec(uuid.uuid4().hex, WAIT, gpus=gpus)
    gateway.start(spec)
    until(lambda: gateway.read_all(spec["run"], 1, "output.log"))
    record = json.loads((stages.directory(spec) / "supervisor.json").read_text())
    held = of_run(gateway, spec)
    things = {(lock["kind"], lock["thing"]) for lock in held}
    assert things == {("artifact", spec["output"]), *(("gpu", gpu) for gpu in gpus)}
    for lock in held:
        assert pids(lock) == {record["supervisor"]["pid"], record["stage"]["pid"]} and not lock["orphaned"]
        assert lock["user"] and lock["since"] and lock["seconds"] >= 0
        assert any("eagle3_backend.agent.supervisor" in process["command"] for process in lock["processes"])
    gateway.request("stop", run=spec["run"], attempt=1)
    gateway.wait_for(spec["run"], "stopped")
    until(lambda: not of_run(gateway, spec))


def test_a_lock_that_outlived_its_supervisor_is_told_with_the_process_that_still_holds_it(connect, stages, until):
    first = connect()
    spec = stages.spec(uuid.uuid4().hex, WAIT, stage="train")
    first.start(spec)
    until(lambda: first.read_all(spec["run"], 1, "output.log"))
    record = json.loads((stages.directory(spec) / "supervisor.json").read_text())
    first.kill()
    os.kill(record["supervisor"]["pid"], signal.SIGKILL)
    second = connect()
    until(lambda: processes.read(record["supervisor"]["pid"]) is None)
    (lock,) = of_run(second, spec)
    assert pids(lock) == {record["stage"]["pid"]} and lock["orphaned"]


def test_a_look_never_makes_a_start_fail(lock_file):
    gpu, path = lock_file
    done = threading.Event()

    def look():
        while not done.is_set():
            held_locks.held()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(100):
            locks.release(locks.take([(path.name, gpu)], "a-run"))
    finally:
        done.set()
        looking.join()
    assert not seen(gpu)


@pytest.mark.parametrize("content", [b'{"run": "old", "user": "ana", "since": 5.0}', b"", b"[3]", b'{"run": [7]}'])
def test_a_file_that_does_not_say_what_it_stands_for_is_told_by_its_name(lock_file, content):
    gpu, path = lock_file
    descriptors = locks.take([(path.name, gpu)], "new")
    path.write_bytes(content)
    (lock,) = seen(gpu)
    assert (lock["kind"], lock["thing"]) == ("gpu", gpu) and pids(lock) == {os.getpid()}
    if b"old" in content:
        assert (lock["run"], lock["user"], lock["since"]) == ("old", "ana", 5.0)
    locks.release(descriptors)


@pytest.fixture
def other_proc(tmp_path):
    """A /proc that shows no process of ours, as where a holder lives in another container."""
    proc = tmp_path / "proc"
    (proc / "self" / "fdinfo").mkdir(parents=True)
    (proc / "self" / "ns").mkdir()
    return proc


def test_a_lock_whose_holder_cannot_be_looked_at_is_told_without_processes(lock_file, other_proc):
    gpu, path = lock_file
    (other_proc / "self" / "ns" / "pid").symlink_to(held_locks.FIRST_NAMESPACE)
    descriptors = locks.take([(path.name, gpu)], "a-run")
    (other_proc / "locks").write_bytes(Path("/proc/locks").read_bytes())
    ((lock,), problem) = seen(gpu, other_proc), held_locks.held(other_proc)[1]
    assert (lock["run"], lock["processes"], problem) == ("a-run", [], None)
    locks.release(descriptors)
    (other_proc / "locks").write_bytes(Path("/proc/locks").read_bytes())
    assert not seen(gpu, other_proc)


def test_what_cannot_be_seen_is_said(lock_file, other_proc, tmp_path):
    (other_proc / "self" / "ns" / "pid").symlink_to("pid:[4026532177]")
    assert held_locks.held(other_proc)[1].code == "locks_partly_seen"
    (other_proc / "locks").write_text("1: POSIX ADVISORY WRITE 7 fe:00:9 0 EOF\n1: -> FLOCK\nrubbish\n")
    assert held_locks.held(other_proc) == ([], held_locks.held(other_proc)[1])
    assert held_locks.held(other_proc)[1].code == "locks_partly_seen"
    found, problem = held_locks.held(tmp_path / "no-proc")
    assert (found, problem.code) == ([], "locks_unreadable")
