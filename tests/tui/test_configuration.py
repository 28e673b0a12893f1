"""The operator's own settings."""

from __future__ import annotations

import pytest

from eagle3_backend.control.alerts import Notices, Quiet
from eagle3_backend.findings import FindingError
from eagle3_tui.configuration import Configuration, read


def test_nothing_written_is_the_defaults(tmp_path) -> None:
    assert read(tmp_path) == Configuration({}, True)


def test_keys_and_bell_are_read(tmp_path) -> None:
    (tmp_path / "config.toml").write_text('bell = false\n[keys]\nstop = "f8"\nopen = ["enter", "o"]\n')
    assert read(tmp_path) == Configuration({"stop": ("f8",), "open": ("enter", "o")}, False)


@pytest.mark.parametrize(
    "text",
    [
        "bell = 3",
        "desktop = 1",
        "webhook = 1",
        "webhook = false",
        "webhook = 'ftp://a/b'",
        "webhook = 'http://'",
        "webhook = 'http://a:b/'",
        "webhook = 'https://a b/'",
        "quiet = 7",
        "quiet = '24:00-07:00'",
        "quiet = '22:60-07:00'",
        "quiet = '22-7'",
        "keys = 1",
        "[keys]\nstop = 3",
        "[keys]\nstop = ['']",
        "colour = 'red'",
        "= broken",
    ],
)
def test_a_faulty_file_is_a_finding(tmp_path, text) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(FindingError) as refused:
        read(tmp_path)
    assert refused.value.findings[0].code == "configuration_invalid"


def test_how_a_person_is_called_is_read(tmp_path) -> None:
    (tmp_path / "config.toml").write_text(
        'desktop = false\nquiet = "22:00-07:30"\nwebhook = "https://hooks.example.org/T0/secret?x=1"\n'
    )
    notices = Notices("https://hooks.example.org/T0/secret?x=1", Quiet(22 * 60, 7 * 60 + 30))
    assert read(tmp_path) == Configuration({}, True, False, notices)


def test_a_faulty_webhook_is_not_repeated_as_it_may_hold_a_token(tmp_path) -> None:
    (tmp_path / "config.toml").write_text("webhook = 'htps://hooks.example.org/s3cr3t'")
    with pytest.raises(FindingError) as refused:
        read(tmp_path)
    assert "s3cr3t" not in str(refused.value.findings)
