"""Runs in an engine's environment: ``engine_parsers.py ENGINE``, commands as JSON on standard input.

Each command is the list of words after the program; the answer is, for each, what the engine's own parser made of it:
``{"values": {...}}`` or ``{"refused": "what it said"}``.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys


def vllm(words: list[str]) -> dict:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parsed = make_arg_parser(FlexibleArgumentParser(prog="vllm serve")).parse_args(words)
    # As the command itself does, before anything else.
    parsed.model = parsed.model_tag
    validate_parsed_serve_args(parsed)
    return vars(AsyncEngineArgs.from_cli_args(parsed)) | {"host": parsed.host, "port": parsed.port}


def sglang(words: list[str]) -> dict:
    from sglang.srt.server_args import ServerArgs, prepare_server_args

    parsed = prepare_server_args(words)
    assert isinstance(parsed, ServerArgs)
    return {name: getattr(parsed, name) for name in dir(parsed) if not name.startswith("_") and is_plain(parsed, name)}


def is_plain(parsed: object, name: str) -> bool:
    try:
        return isinstance(getattr(parsed, name), (str, int, float, bool, type(None)))
    except Exception:
        return False


def answer(parse, words: list[str]) -> dict:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            return {"values": parse(words)}
    except (SystemExit, Exception) as problem:
        return {"refused": f"{said.getvalue()[-2000:]} {problem!r}"}


if __name__ == "__main__":
    parse = {"vllm": vllm, "sglang": sglang}[sys.argv[1]]
    answers = [answer(parse, words) for words in json.load(sys.stdin)]
    print("\n" + json.dumps(answers, default=str))
