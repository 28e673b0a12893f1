from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_backend.drafter import jsonfile
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.jsonfile import parse_object, read_object


@pytest.fixture
def read(tmp_path: Path):
    """What is read of a config.json with this content: the object, and findings as (severity, code)."""

    def of(content: bytes):
        (tmp_path / "config.json").write_bytes(content)
        value, findings = read_object(LocalFolder(tmp_path), "config.json")
        assert all(finding.path == str(tmp_path / "config.json") for finding in findings)
        return value, [(finding.severity.value, finding.code) for finding in findings]

    return of


def test_an_object_is_read_without_remarks(read) -> None:
    assert read('{"a": {"b": [1, 2.5, null, "é"]}}'.encode()) == ({"a": {"b": [1, 2.5, None, "é"]}}, [])


def test_escaped_characters_are_read(read) -> None:
    assert read(b'{"a\\u00e9": "\\ud83d\\ude00"}') == ({"aé": "\U0001f600"}, [])


def test_a_missing_file_is_a_finding(tmp_path) -> None:
    value, (finding,) = read_object(LocalFolder(tmp_path), "config.json")
    assert (value, finding.code) == (None, "file_missing")


def test_a_link_out_of_the_folder_is_a_finding(tmp_path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").symlink_to("/etc/hostname")
    value, (finding,) = read_object(LocalFolder(tmp_path / "model"), "config.json")
    assert (value, finding.code) == (None, "file_outside")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "json_invalid"),
        (b"{", "json_invalid"),
        (b"[1]", "json_invalid"),
        (b"null", "json_invalid"),
        (b'{"a": "\xff"}', "json_invalid"),
        (b'{"a": ' + b"[" * 100_000, "json_invalid"),
        (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", "json_invalid"),
        (b'{"a": ' + b"9" * 5000 + b"}", "json_invalid"),
        (b'{"a": "\\ud83d"}', "json_invalid"),
        (b"\xef\xbb\xbf{}", "json_bom"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "lfs_pointer"),
    ],
)
def test_what_is_no_object_is_one_error(read, content, code) -> None:
    assert read(content) == (None, [("error", code)])


def test_a_file_larger_than_any_config_is_not_read(read, monkeypatch) -> None:
    monkeypatch.setattr(jsonfile, "MAX_JSON", 100)
    assert read(b"{" + b" " * 100 + b"}") == (None, [("error", "json_oversized")])


def test_lists_that_would_fill_the_memory_are_not_made(read) -> None:
    assert read(b'{"a": [' + b"[]," * (1 << 20) + b"0]}") == (None, [("error", "json_invalid")])


def test_a_key_that_occurs_twice_is_a_warning_and_the_last_one_counts(read) -> None:
    assert read(b'{"a": {"b": 1, "b": 2}}') == ({"a": {"b": 2}}, [("warning", "json_key_duplicate")])


def test_a_number_that_is_none_is_a_warning_and_becomes_text(read) -> None:
    assert read(b'{"a": NaN}') == ({"a": "NaN"}, [("warning", "json_not_finite")])


def test_infinity_which_configs_of_state_space_models_have_is_a_mere_remark(read) -> None:
    assert read(b'{"time_step_limit": [0.0, Infinity]}') == (
        {"time_step_limit": [0.0, "Infinity"]},
        [("info", "json_not_finite")],
    )


@pytest.mark.parametrize("levels", [100, 20_000])
def test_deep_nesting_is_called_that(levels):
    value, (finding,) = parse_object(b'{"a":' + b"[" * levels + b"]" * levels + b"}", "config.json", "config.json")
    assert value is None
    assert "deeper" in finding.message
