from __future__ import annotations

import random
from pathlib import Path

import pytest

from eagle3_backend.engines.log_lines import MAX_LINE, LineReader, Mask
from eagle3_backend.engines.log_metrics import LogWindows
from eagle3_backend.engines.metrics import parse
from eagle3_backend.engines.server_log import ServerLog
from eagle3_backend.engines.training_log import TrainingLog


def lines_of(*pieces):
    reader = LineReader()
    return [line for piece in pieces for line in reader.feed(piece)] + reader.close()


def test_every_cut_of_a_log_gives_the_same_lines():
    data = "Größe: 1\r\n 10%|█ | 1/2\r 20%|██| 2/2\nEnde ohne Ende".encode()
    whole = lines_of(data)
    assert whole == ["Größe: 1", " 10%|█ | 1/2", " 20%|██| 2/2", "Ende ohne Ende"]
    assert all(lines_of(data[:cut], data[cut:]) == whole for cut in range(len(data)))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_other_encodings_of_plain_text_are_read(encoding):
    data = "one\ntwo\n".encode(encoding)
    assert [line.strip("\ufffd") for line in lines_of(data)] == ["one", "two"]


def test_bytes_that_are_no_text_are_replaced_and_escapes_removed():
    assert lines_of(b"\x1b[31mERROR\x1b[0m \xff\xfe\x07 x\n") == ["ERROR \ufffd\ufffd x"]


def test_a_line_without_an_end_takes_bounded_memory():
    reader = LineReader()
    for _ in range(100):
        assert reader.feed(b"x" * MAX_LINE) == []
    assert len(reader.close()[0]) == MAX_LINE


def test_a_secret_is_taken_out_wherever_the_stream_is_cut():
    data, secret = b"key=s3s3cret, s3s3 s3s3cret s3s3c", "s3s3cret"
    for first in range(len(data)):
        for second in range(first, len(data)):
            mask = Mask(secret)
            pieces = [mask.feed(data[:first]), mask.feed(data[first:second]), mask.feed(data[second:]), mask.close()]
            assert b"".join(pieces) == b"key=***, s3s3 *** s3s3c"
            assert not any(secret.encode() in piece for piece in pieces)


READERS = [ServerLog, lambda: ServerLog("sglang"), TrainingLog, LogWindows]
HOSTILE = [
    b"9" * MAX_LINE,
    b"('a', 1) " * 7000,
    b"1%|" * 20000,
    b"loss=" * 12000 + b"1e999",
    b"SpeculativeConfig(" * 3500,
    b"SpecDecoding metrics: Accepted: 1 tokens, Drafted: 0 tokens, Per-position acceptance rate: 0..5, 1.2.3, nan",
    b"Decode batch, #running-req: 1, accept len: 1.2.3, accept rate: ..",
    b"Epoch: 100%|x| 9999999999999999999999/0 [0s/it",
    b"avail mem=... GB Load weight end",
    b"KV cache size: " + b"9" * 9000 + b" tokens, #tokens: " + b"9" * 9000,
    b"KV cache size: ,,, tokens",
    b"Using auxiliary layers from speculative config: (,,, )",
]


@pytest.mark.parametrize("reader", READERS)
def test_no_line_stops_a_reader(reader):
    log = reader()
    for line in HOSTILE:
        log.feed_bytes(line + b"\n")
    log.close()
    for line in HOSTILE:
        parse(line.decode())


@pytest.mark.parametrize("reader", READERS)
def test_a_log_with_any_damage_is_read(reader):
    whole = (Path(__file__).parent / "vllm-0.32.0-start.log").read_bytes()
    chance = random.Random(1)
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(30):
            place = chance.randrange(len(data))
            data[place : place + chance.randrange(4)] = chance.randbytes(chance.randrange(4))
        log = reader()
        for begin in range(0, len(data), 997):
            log.feed_bytes(bytes(data[begin : begin + 997]))
        log.close()
        if hasattr(log, "diagnose"):
            assert log.diagnose().state in ("starting", "ready", "failed", "running")
