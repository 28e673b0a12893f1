"""`check` and `engines`: a drafter before the engines, without a profile, a host or a GPU."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from platformdirs import user_config_path
from typer.testing import CliRunner

from eagle3_tui.cli import app


def call(*argv):
    return CliRunner().invoke(app, [str(word) for word in argv])


@pytest.fixture
def target(drafters, tmp_path):
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(drafters.TARGET), encoding="utf-8")
    return folder


@pytest.fixture
def drafter(drafters, tmp_path):
    checkpoint = drafters.checkpoint()
    checkpoint.write(tmp_path / "drafter")
    return tmp_path / "drafter"


@pytest.fixture
def change(drafter):
    def run(**settings):
        path = drafter / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **settings}), encoding="utf-8")

    return run


def test_a_right_drafter_is_ok_on_every_engine(drafter, target):
    result = call("check", drafter, "--target", target)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split()[-1] for line in result.stdout.splitlines()[1:]] == ["ok", "ok"]


def test_what_was_not_looked_at_is_said(drafter):
    result = call("check", drafter / "config.json")
    assert result.exit_code == 0
    assert "not judged without --target" in result.stderr
    assert "not judged without the drafter's directory" in result.stderr


def test_values_are_shown_as_the_file_writes_them(drafter, target, change):
    change(tie_word_embeddings=True)
    result = call("check", drafter, "--target", target, "--engine", "sglang")
    assert "(expected false, found true)" in result.stderr


def test_what_a_file_says_at_great_length_is_cut(drafter, change):
    change(architectures=["A" * 100_000], **{"k" * 100_000: 1})
    for result in (call("check", drafter), call("diff", drafter, drafter / "config.json", "--all")):
        assert max(map(len, (result.stdout + result.stderr).splitlines())) < 5000


def test_a_path_without_a_config_is_told_with_what_to_name(tmp_path):
    result = call("check", tmp_path)
    assert result.exit_code == 1
    assert "file_missing" in result.stderr and "next: Name a model's directory" in result.stderr


def test_the_json_has_findings_by_engine_and_what_was_read(drafter, target, change):
    change(norm_before_residual=True)
    result = call("check", drafter, "--target", target, "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code == 1
    assert answer["engines"]["vllm"] == {"version": "0.32.0", "findings": []}
    (finding,) = answer["engines"]["sglang"]["findings"]
    assert (finding["code"], finding["severity"]) == ("norm_before_residual_unsupported", "error")
    assert answer["facts"]["detected_format"] == "flat"
    assert answer["facts"]["target"]["hidden_size"] == 32


def test_only_the_engine_that_was_asked_for_decides(drafter, target, change):
    change(norm_before_residual=True)
    assert call("check", drafter, "--target", target, "--engine", "vllm").exit_code == 0
    result = call("check", drafter, "--target", target)
    assert result.exit_code == 1
    assert "on SGLang 0.5.23:" in result.stderr and "next:" in result.stderr


def test_warnings_do_not_fail(drafter, target, change):
    change(max_position_embeddings=128)
    result = call("check", drafter, "--target", target, "--engine", "sglang")
    assert result.exit_code == 0
    assert "warning max_position_too_short" in result.stderr and "1 warning" in result.stdout


def test_a_context_and_a_release_are_judged(drafter, target, change):
    change(max_position_embeddings=128)
    short = ("check", drafter, "--target", target, "--context", 400, "--engine", "vllm", "--engine-version")
    assert [call(*short, version).exit_code for version in ("0.24.0", "0.32.0")] == [1, 0]


def test_a_config_alone_is_judged_without_weights(drafter, target):
    assert call("check", drafter / "config.json", "--target", target / "config.json").exit_code == 0


def test_faults_of_the_files_are_told_once(drafter, target):
    (drafter / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    result = call("check", drafter, "--target", target)
    assert result.exit_code == 1
    assert result.stderr.count("lfs_pointer") == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"hidden_size": NaN}', "\ufeff{}"])
def test_a_config_that_is_none_is_a_finding(drafter, text):
    (drafter / "config.json").write_text(text, encoding="utf-8")
    result = call("check", drafter, "--json")
    assert result.exit_code == 1
    assert "Traceback" not in result.output and json.loads(result.stdout)


@pytest.mark.parametrize(
    "argv", [("--engine-version", "0.5.10"), ("--engine", "vllm", "--engine-version", "new"), ("--engine", "trt")]
)
def test_wrong_usage(drafter, argv):
    assert call("check", drafter, *argv).exit_code == 2


def test_a_place_that_is_not_there_is_refused(tmp_path):
    assert call("check", tmp_path / "nothing").exit_code == 1


def test_a_place_on_another_host_than_the_profiles_is_refused():
    result = call("check", "elsewhere:/models/drafter", "--profile", "llama-3.1-8b-1x-h100")
    assert result.exit_code == 3
    assert "host_unknown" in result.stderr and "--profile" in result.stderr


def test_a_place_on_a_known_host_needs_no_profile(drafter, target, tmp_path, monkeypatch):
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    known = user_config_path("eagle3-tui") / "hosts.toml"
    known.parent.mkdir(parents=True)
    known.write_text(f'[hosts.box]\ntransport = ["env"]\nworkspaces = ["{tmp_path / "workspace"}"]\n')
    result = call("check", f"box:{drafter}", "--target", target, "--json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["drafter"] == str(drafter) and answer["engines"]["vllm"]["findings"] == []


def test_the_table_of_engines(tmp_path):
    assert "SGLang 0.5.23" in call("engines").stdout.splitlines()[0]
    answer = json.loads(call("engines", "--json").stdout)
    assert answer["engines"]["vllm"]["current"] == "0.32.0"
    rows = {row["title"]: row for row in answer["rows"]}
    assert rows["reads the nested layout (speculators)"]["sglang"] == "no"


def test_options_are_searched_on_a_host_only():
    assert call("engines", "--search", "kv cache").exit_code == 2


def test_the_host_of_installed_options_must_be_a_profiles():
    result = call("engines", "--host", "elsewhere", "--profile", "llama-3.1-8b-1x-h100")
    assert result.exit_code == 1
    assert "host_not_in_profile" in result.stderr


def test_tokenizers_beside_both_are_compared(drafter, target):
    for folder, number in ((drafter, 1), (target, 2)):
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": number}}}), encoding="utf-8")
    result = call("check", drafter, "--target", target, "--engine", "vllm")
    assert result.exit_code == 1
    assert "tokenizer_mismatch" in result.stderr
