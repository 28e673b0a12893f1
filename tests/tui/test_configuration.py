"""The operator's own settings."""

from __future__ import annotations

import pytest

from eagle3_backend.findings import FindingError
from eagle3_tui.configuration import Configuration, read


def test_nothing_written_is_the_defaults(tmp_path) -> None:
    assert read(tmp_path) == Configuration({}, True)


def test_keys_and_bell_are_read(tmp_path) -> None:
    (tmp_path / "config.toml").write_text('bell = false\n[keys]\nstop = "f8"\nopen = ["enter", "o"]\n')
    assert read(tmp_path) == Configuration({"stop": ("f8",), "open": ("enter", "o")}, False)


@pytest.mark.parametrize(
    "text", ["bell = 3", "keys = 1", "[keys]\nstop = 3", "[keys]\nstop = ['']", "colour = 'red'", "= broken"]
)
def test_a_faulty_file_is_a_finding(tmp_path, text) -> None:
    (tmp_path / "config.toml").write_text(text)
    with pytest.raises(FindingError) as refused:
        read(tmp_path)
    assert refused.value.findings[0].code == "configuration_invalid"
