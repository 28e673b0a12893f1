"""`diff` as a command: two files in, a table or JSON out, and an exit status that scripts can use."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from eagle3_backend.drafter.diff import compare
from eagle3_backend.drafter.tensorfile import header_bytes
from eagle3_tui.cli import app
from eagle3_tui.commands.diff import text_of

CONFIG = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "vocab_size": 512,
    "draft_vocab_size": 256,
    "rope_theta": 10000,
    "torch_dtype": "bfloat16",
    "eagle_aux_hidden_state_layer_ids": [2, 8, 13],
}


def call(*argv):
    return CliRunner().invoke(app, ["diff", *map(str, argv)])


@pytest.fixture
def drafter(tmp_path):
    """Write a drafter's directory: ``drafter(name, **changes)``; `...` leaves a key out."""

    def write(name, **changes):
        config = {key: value for key, value in {**CONFIG, **changes}.items() if value is not ...}
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
        return tmp_path / name

    return write


def test_two_spellings_of_a_drafter_are_equal_and_end_with_0(drafter):
    left = drafter("a")
    right = drafter("b", rope_theta=..., rope_parameters={"rope_theta": 10000.0}, torch_dtype=..., dtype="bfloat16")
    result = call(left, right / "config.json")
    assert result.exit_code == 0
    assert "equal in effect" in result.stdout
    assert "2 other spelling" in result.stdout and "rope_theta" not in result.stdout
    assert "spelling  rope_theta" in call(left, right, "--all").stdout


def test_what_breaks_is_told_with_engine_and_ends_with_1(drafter):
    result = call(drafter("a"), drafter("b", norm_before_residual=True))
    assert result.exit_code == 1
    assert "absent = false" in result.stdout
    assert "breaks the residual stream on vllm" in result.stdout


def test_a_narrow_terminal_gets_row_under_row():
    other = {**CONFIG, "rope_theta": 500000.0}
    rows = compare(CONFIG, other)
    shown = [row for row in rows if row.kind.differs]
    sides = [{"path": name, "layout": "flat"} for name in "ab"]
    lines = text_of(sides, rows, shown, False, 60).splitlines()
    assert lines[3:6] == ["breaking  rope_theta", "  A     10000", "  B     500000.0"]
    assert max(map(len, lines)) <= 60
    assert any("10000" in line and "500000.0" in line for line in text_of(sides, rows, shown, False).splitlines())


def test_all_shows_what_is_the_same_too(drafter):
    result = call(drafter("a"), drafter("b"), "--all")
    assert result.exit_code == 0
    assert "same" in result.stdout and "hidden_size" in result.stdout


def test_json_is_one_object_with_every_row_that_differs(drafter):
    result = call(drafter("a"), drafter("b", hidden_size=32, fancy=1), "--json")
    data = json.loads(result.stdout)
    assert result.exit_code == 1
    assert data["equal_in_effect"] is False
    assert data["effective_differences"] == {"hidden_size": [64, 32], "fancy": [None, 1]}
    assert {row["field"]: row["kind"] for row in data["rows"]} == {"hidden_size": "breaking", "fancy": "unknown"}
    assert data["left"]["layout"] == "flat"


def test_weights_of_two_directories_are_compared_too(drafter):
    left, right = drafter("a"), drafter("b")
    for folder, width in ((left, 192), (right, 256)):
        header = header_bytes({"fc.weight": ("bfloat16", (64, width))}, {})
        (folder / "model.safetensors").write_bytes(header + bytes(2 * 64 * width))
    result = call(left, right)
    assert result.exit_code == 1
    assert "fc.weight" in result.stdout and "[64, 256]" in result.stdout


def test_the_target_settles_what_an_absent_list_of_layers_means(drafter, tmp_path):
    left, right = drafter("a"), drafter("b", eagle_aux_hidden_state_layer_ids=...)
    (tmp_path / "target.json").write_text(json.dumps({"num_hidden_layers": 16, "architectures": ["LlamaForCausalLM"]}))
    assert "name the target" in call(left, right).stdout
    assert call(left, right, "--target", tmp_path / "target.json").exit_code == 0


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (None, "file_missing"),
        (b"", "json_invalid"),
        (b"[1]", "json_invalid"),
        (b"\xef\xbb\xbf{}", "json_bom"),
        (b"\xff\xfe", "json_invalid"),
        (b"version https://git-lfs.github.com/spec/v1\n", "lfs_pointer"),
        (b'{"a": ' + b"[" * 100_000, "json_invalid"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_finding(drafter, tmp_path, content, code):
    bad = tmp_path / "bad"
    bad.mkdir()
    if content is not None:
        (bad / "config.json").write_bytes(content)
    result = call(drafter("a"), bad, "--json")
    assert result.exit_code == 1
    assert [finding["code"] for finding in json.loads(result.stdout)["findings"]] == [code]
    assert "Traceback" not in result.stderr


def test_values_that_are_no_json_do_not_spoil_the_json(drafter):
    left = drafter("a")
    right = drafter("b", hidden_size=float("nan"), vocab_size=float("inf"))
    data = json.loads(call(left, right, "--json").stdout)
    assert data["effective_differences"]["hidden_size"] == [64, "NaN"]
    assert "json_not_finite" in {finding["code"] for finding in data["findings"]}


def test_escape_sequences_of_a_config_do_not_reach_the_terminal(drafter):
    result = call(drafter("a"), drafter("b", **{"\x1b[2Jkey": "\x1b]52;c;aGk=\x07"}))
    assert "\x1b" not in result.stdout + result.stderr
