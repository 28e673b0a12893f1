"""`convert` at the prompt: what is written, what is said, and how it ends. Configs alone; weights are the room's."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from eagle3_backend.drafter.config import Packaging, drafter_for
from eagle3_backend.drafter.layouts import flat_config
from eagle3_tui.cli import app

TARGET = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
}


@pytest.fixture
def place(tmp_path):
    """A folder with a flat drafter's config, as SGLang alone reads its layers, and the target's."""
    config = flat_config(drafter_for(TARGET, (2, 15, 27), 8192), Packaging("bfloat16"), (1, 14, 26))
    del config["eagle_aux_hidden_state_layer_ids"]
    (tmp_path / "drafter.json").write_text(json.dumps(config))
    (tmp_path / "target.json").write_text(json.dumps(TARGET))
    return tmp_path


def convert(place, *options):
    return CliRunner().invoke(app, ["convert", str(place / "drafter.json"), str(place / "out"), *options])


def test_a_config_is_written_in_the_other_layout(place):
    target = ("--target", str(place / "target.json"))
    result = convert(place, "--to", "nested", *target, "--verifier", "org/target", "--depth", "4", "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["from"]["layout"], told["to"]) == ("flat", {"path": str(place / "out"), "layout": "nested"})
    written = json.loads((place / "out" / "config.json").read_text())
    assert written["eagle_aux_hidden_state_layer_ids"] == [2, 15, 27]
    assert written["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 4
    assert written["speculators_config"]["verifier"]["name_or_path"] == "org/target"


def test_a_refusal_writes_nothing_and_says_what_to_do(place):
    result = convert(place, "--to", "nested", "--verifier", "org/target")
    assert result.exit_code == 1
    assert "error aux_layers_target_unknown" in result.stderr
    assert "--target" in result.stderr
    assert not (place / "out").exists()


def test_a_finding_that_is_accepted_goes_on(place):
    result = convert(
        place, "--to", "nested", "--verifier", "org/target", "--accept", "aux_layers_target_unknown", "--json"
    )
    assert result.exit_code == 0
    assert "aux_layers_target_unknown" in {finding["code"] for finding in json.loads(result.stdout)["findings"]}


def test_a_layout_has_to_be_named(place):
    assert convert(place).exit_code == 2
    assert convert(place, "--to", "round").exit_code == 2


@pytest.mark.parametrize("words", [["convert", "~nobody-of-this-name/a", "out"], ["check", "~nobody-of-this-name/a"]])
def test_nobodys_home_is_no_directory_and_no_crash(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    options = ["--to", "nested"] if words[0] == "convert" else []
    ended = CliRunner().invoke(app, [*words, *options])
    assert isinstance(ended.exception, SystemExit) and ended.exit_code == 1, ended.output
    assert "~nobody-of-this-name" in ended.output
