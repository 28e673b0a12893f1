from __future__ import annotations

import pytest

from eagle3_backend.engines.log_lines import MAX_LINE, LineReader, Mask


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
