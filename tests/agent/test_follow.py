"""Following an attempt: every byte once, whatever dies in between, and no reader that holds anybody up."""

from __future__ import annotations

import base64
import queue
import random
import time

import pytest

MAX_FRAME = 1 << 20


def _follow(client, spec, file, sub, **position):
    position = {"generation": None, "offset": 0, "tail": None, **position}
    return client.request("follow", sub=sub, run=spec["run"], attempt=1, file=file, **position)


def _next(client, sub, timeout=20):
    deadline = time.monotonic() + timeout
    while sub not in client.pushes:
        assert time.monotonic() < deadline, "no push came"
        time.sleep(0.02)
    return client.pushes[sub].get(timeout=timeout)


class Copy:
    """What a client has stored of one file; refuses bytes that do not continue it."""

    def __init__(self):
        self.data, self.generation, self.skipped = b"", None, []

    def take(self, push):
        if "skipped" in push:
            start, end = push["skipped"]
            assert start == len(self.data)
            self.skipped.append((start, end))
            self.data += b"\0" * (end - start)
            return
        assert push["offset"] == len(self.data)
        assert push["generation"] == self.generation
        self.data += base64.b64decode(push["data"])

    def drain(self, client, sub):
        while True:
            try:
                self.take(client.pushes[sub].get_nowait())
            except (KeyError, queue.Empty):
                return


def test_new_bytes_are_pushed_as_they_are_written(gateway, stages, until):
    spec = stages.spec("a", "print('one', flush=True)\nwhile not (here/'go').exists(): time.sleep(0.02)\nprint('two')")
    gateway.start(spec)
    until(lambda: gateway.read_all(spec["run"], 1, "output.log"))
    answer = _follow(gateway, spec, "output.log", 5)
    assert answer["offset"] == 0
    assert base64.b64decode(_next(gateway, 5)["data"]) == b"one\n"
    (stages.directory(spec) / "go").touch()
    push = _next(gateway, 5)
    assert (push["offset"], base64.b64decode(push["data"])) == (4, b"two\n")
    assert push["generation"] == answer["generation"]


def test_a_gateway_killed_at_random_moments_loses_and_doubles_no_byte(connect, stages):
    code = """
        import random
        chance = random.Random(5)
        log = os.open(here / "x", os.O_WRONLY | os.O_CREAT)
        number = 0
        while not (here / "enough").exists():
            number += 1
            os.write(1, bytes(chance.randrange(256) for _ in range(chance.randrange(1, 400))) + b"\\n")
            say("metric", step=number, values={"loss": number})
            time.sleep(0.004)
    """
    spec = stages.spec("a", code)
    client = connect()
    client.start(spec)
    chance = random.Random(11)
    copies = {"output.log": Copy(), "journal.jsonl": Copy()}
    for kill in range(22):
        for sub, (file, copy) in enumerate(copies.items()):
            answer = _follow(client, spec, file, sub, generation=copy.generation, offset=len(copy.data))
            copy.generation = answer["generation"]
            assert answer["offset"] == len(copy.data)
        time.sleep(chance.random() * 0.3)
        if kill == 21:
            (stages.directory(spec) / "enough").touch()
            client.wait_for(spec["run"], "done")
        else:
            client.kill()
        for sub, copy in enumerate(copies.values()):
            copy.drain(client, sub)
        if kill != 21:
            client = connect()
    for sub, (file, copy) in enumerate(copies.items()):
        whole = (stages.directory(spec) / file).read_bytes()
        while len(copy.data) < len(whole):
            copy.take(_next(client, sub))
        assert copy.data == whole
        assert copy.skipped == []


def test_a_burst_with_a_long_line_and_odd_bytes_skips_in_the_log_and_never_in_the_journal(gateway, stages):
    code = """
        while not (here / "go").exists(): time.sleep(0.02)
        sys.stdout.buffer.write(b"\\xff\\xfe half \\xe2\\x82\\n" + b"x" * 10_000_000 + b"\\n")
        for number in range(6000): sys.stdout.buffer.write(b"line %d\\n" % number)
        sys.stdout.flush()
        for number in range(6000): say("note", text="n" * 500, number=number)
    """
    spec = stages.spec("a", code)
    gateway.start(spec)
    copies = {"output.log": Copy(), "journal.jsonl": Copy()}
    for sub, (file, copy) in enumerate(copies.items()):
        copy.generation = _follow(gateway, spec, file, sub)["generation"]
    # The reader sleeps: the gateway has to hold nothing for it and to answer afterwards.
    gateway.reading.clear()
    (stages.directory(spec) / "go").touch()
    time.sleep(2)
    gateway.reading.set()
    gateway.wait_for(spec["run"], "done")
    for sub, (file, copy) in enumerate(copies.items()):
        whole = (stages.directory(spec) / file).read_bytes()
        while len(copy.data) < len(whole):
            copy.take(_next(gateway, sub))
    journal, log = copies["journal.jsonl"], copies["output.log"]
    assert journal.data == (stages.directory(spec) / "journal.jsonl").read_bytes()
    assert journal.skipped == [] and log.skipped
    whole = (stages.directory(spec) / "output.log").read_bytes()
    assert len(whole) > 10_000_000
    # A skip leaves the last 256 KiB to be read, so that the view has something to show.
    assert len(whole) - log.skipped[-1][1] >= 256 * 1024
    filled = bytearray(log.data)
    for start, end in log.skipped:
        piece = gateway.read_all(spec["run"], 1, "output.log")[start:end]
        filled[start:end] = piece
    assert bytes(filled) == whole
    assert gateway.longest <= MAX_FRAME


def test_a_first_look_starts_at_the_tail(gateway, stages):
    spec = stages.spec("a", "print('x' * 999)")
    gateway.start(spec)
    gateway.wait_for(spec["run"], "done")
    assert _follow(gateway, spec, "output.log", 1, tail=100)["offset"] == 900
    assert len(base64.b64decode(_next(gateway, 1)["data"])) == 100


def test_another_generation_starts_over(gateway, stages):
    spec = stages.spec("a", "print('x' * 999)")
    gateway.start(spec)
    gateway.wait_for(spec["run"], "done")
    assert _follow(gateway, spec, "output.log", 1, generation="of another life", offset=500)["offset"] == 0


def test_unfollow_ends_the_pushes(gateway, stages):
    spec = stages.spec("a", "while not (here/'go').exists(): time.sleep(0.02)\nprint('late', flush=True)")
    gateway.start(spec)
    _follow(gateway, spec, "output.log", 1)
    _follow(gateway, spec, "output.log", 2)
    gateway.request("unfollow", sub=1)
    (stages.directory(spec) / "go").touch()
    assert base64.b64decode(_next(gateway, 2)["data"]) == b"late\n"
    assert 1 not in gateway.pushes


@pytest.mark.parametrize("file", ["../1/claim", "endpoint.json", "/etc/passwd"])
def test_other_files_are_not_handed_out(gateway, stages, refused, file):
    spec = stages.spec("a", "")
    gateway.start(spec)
    with pytest.raises(refused) as problem:
        _follow(gateway, spec, file, 1)
    assert problem.value.code == "request_invalid"


def test_following_what_never_was_is_a_finding(gateway, refused):
    with pytest.raises(refused) as problem:
        gateway.request("follow", sub=1, run="campaign-x", attempt=1, file="output.log")
    assert problem.value.code == "run_unknown"
