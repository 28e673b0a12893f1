"""Profiles are written whole, and never over what somebody else wrote meanwhile."""

from __future__ import annotations

import pytest

from eagle3_backend.control.profiles import write
from eagle3_backend.findings import FindingError

TEXT = '[host]\naddress = "embedded"\n[target]\nmodel = "demo:smollm2-135m"\n'


def test_a_link_stays_a_link_and_rights_stay_as_they_are(tmp_path):
    file, link = tmp_path / "kept" / "a.toml", tmp_path / "a.toml"
    file.parent.mkdir()
    file.write_text(TEXT)
    file.chmod(0o640)
    link.symlink_to(file)
    changed = TEXT + "[stages.train]\r\nepochs = 7 # \u00e4\r\n"
    assert write(link, changed, TEXT) == str(link)
    assert file.read_bytes().decode() == changed and link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in file.parent.iterdir()] == ["a.toml"]


@pytest.mark.parametrize("before", ["", TEXT + "# mine"])
def test_a_file_that_changed_is_left_alone(tmp_path, before):
    file = tmp_path / "a.toml"
    file.write_text(TEXT)
    with pytest.raises(FindingError) as problem:
        write(file, TEXT, before)
    assert problem.value.findings[0].code == "profile_changed_meanwhile"
    assert file.read_text() == TEXT


def test_a_faulty_profile_is_not_written(tmp_path):
    for text, code in ((TEXT + "[stages.train]\nepochs = 0\n", "profile_value_invalid"), ("[", "profile_invalid")):
        with pytest.raises(FindingError) as problem:
            write(tmp_path / "new" / "a.toml", text, "")
        assert problem.value.findings[0].code == code
    assert not (tmp_path / "new").exists()


def test_a_new_file_gets_its_folder(tmp_path):
    write(tmp_path / "new" / "a.toml", "\ufeff" + TEXT, "")
    assert (tmp_path / "new" / "a.toml").read_bytes().startswith(b"\xef\xbb\xbf[host]")
