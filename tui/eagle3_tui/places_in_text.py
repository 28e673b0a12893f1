"""Where in a file's own text a dotted name stands: for JSON and for TOML, without changing a character of either."""

from __future__ import annotations

import json
import re

_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:\n]')
_SECTION = re.compile(r"^\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(r"""^\s*([A-Za-z0-9_.\-"' ]+?)\s*=""")


def lines_of(text: str) -> dict[str, int]:
    """The line, counted from 0, on which each key stands, by its dotted name."""
    return _lines_of_json(text) if text.lstrip().startswith("{") else _lines_of_toml(text)


def _lines_of_json(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    # Of each open object or list: its name, and whether it is an object.
    stack: list[tuple[str, bool]] = []
    line, name, awaiting_key = 0, "", True
    for match in _JSON.finditer(text):
        token = match.group()
        if token == "\n":
            line += 1
        elif token in "{[":
            stack.append((name, token == "{"))
            awaiting_key = token == "{"
        elif token in "}]":
            if stack:
                name, _ = stack.pop()
            awaiting_key = False
        elif token == ",":
            awaiting_key = bool(stack) and stack[-1][1]
        elif token == ":":
            awaiting_key = False
        elif awaiting_key and stack:
            outer = stack[-1][0]
            key = _unquoted(token)
            name = f"{outer}.{key}" if outer else key
            found.setdefault(name, line)
        line += token.count("\n") if token[0] == '"' else 0
    return found


def _unquoted(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token.strip('"')


def _lines_of_toml(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    section = ""
    for line, words in enumerate(text.split("\n")):
        if heading := _SECTION.match(words):
            section = heading.group(1).replace('"', "")
        elif key := _KEY.match(words):
            name = key.group(1).strip().replace('"', "")
            found.setdefault(f"{section}.{name}" if section else name, line)
    return found
