"""Commands that touch no host, and what the command line loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eagle3_backend.pipeline.stages import STAGES
from eagle3_tui import places
from eagle3_tui.cli import app

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def config_home(tmp_path, monkeypatch):
    """The user's own profiles folder, empty."""
    folder = tmp_path / "config"
    monkeypatch.setattr(places, "user_profiles", lambda: folder / "profiles")
    (folder / "profiles").mkdir(parents=True)
    return folder / "profiles"


def call(*argv):
    return CliRunner().invoke(app, argv)


def test_importing_the_command_line_loads_no_panel_no_link_and_no_validation():
    script = (
        "import sys, eagle3_tui.cli\n"
        "heavy = {'textual', 'asyncssh', 'pydantic', 'sqlite3', 'rich', 'torch', 'platformdirs'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_help_names_every_command_and_the_exit_codes():
    text = call("--help").stdout
    for name in (
        "run",
        "status",
        "attach",
        "stop",
        "resume",
        "logs",
        "metrics",
        "endpoint",
        "doctor",
        "hosts",
        "profiles",
        "demo",
    ):
        assert f"\n  {name} " in text
    assert "130 interrupted" in text


def test_a_mistyped_key_of_a_profile_is_refused_with_the_nearest_one(tmp_path):
    profile = tmp_path / "mine.toml"
    profile.write_text('[host]\naddress = "embedded"\n[target]\nmodel = "m"\n[stages.train]\nlearning_rat = 1\n')
    result = call("profiles", "check", str(profile), "--json")
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["code"], finding["path"]) == ("profile_key_unknown", "stages.train.learning_rat")
    assert "learning_rate" in result.stderr


def test_a_mistyped_profile_name_is_refused_with_the_nearest_one():
    result = call("profiles", "show", "locl")
    assert result.exit_code == 1
    assert "profile_unknown" in result.stderr and "'local'" in result.stderr


def test_a_profile_that_is_not_there_is_refused(tmp_path):
    assert call("profiles", "check", str(tmp_path / "none.toml")).exit_code == 1


def test_the_users_profile_wins_over_a_shipped_one_of_the_same_name(config_home):
    (config_home / "local.toml").write_text('[host]\naddress = "mine"\n[target]\nmodel = "m"\n')
    listed = {entry["name"]: entry for entry in json.loads(call("profiles", "list", "--json").stdout)["profiles"]}
    assert listed["local"]["shipped"] is False
    assert listed["llama-3.1-8b-1x-h100"]["shipped"] is True
    assert json.loads(call("profiles", "show", "local", "--json").stdout)["host"]["address"] == "mine"


def test_settings_are_shown_in_effect_and_checked():
    shown = json.loads(call("config", "show", "--set", "train.epochs=2", "--json").stdout)
    assert shown["train"]["epochs"] == 2
    assert call("config", "show", "--set", "train.epoch=2").exit_code == 1


def test_the_schema_describes_every_parameter_of_every_stage():
    schema = json.loads(call("config", "schema", "--json").stdout)
    assert list(schema) == list(STAGES)
    for stage in schema.values():
        assert all(entry["description"] for entry in stage["properties"].values())


def test_the_profile_comes_from_the_environment_unless_a_flag_names_one(monkeypatch):
    monkeypatch.setenv("EAGLE3_PROFILE", "llama-3.1-8b-1x-h100")
    assert json.loads(call("profiles", "show", "--json").stdout)["host"]["address"] == "h100"
    assert json.loads(call("--profile", "local", "profiles", "show", "--json").stdout)["host"]["address"] == "embedded"


@pytest.mark.parametrize("argv", [(), ("--mock",)])
def test_the_panel_without_a_terminal_is_refused_with_what_works_there(argv):
    result = call(*argv)
    assert result.exit_code == 1
    assert "terminal_missing" in result.stderr and "eagle3-tui status" in result.stderr
