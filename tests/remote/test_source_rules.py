"""asyncssh decodes strict UTF-8 unless told otherwise, and one 0xff byte closes the whole connection then."""

from __future__ import annotations

import ast
from pathlib import Path

import eagle3_backend

REMOTE = Path(eagle3_backend.__file__).parent / "remote"
DECODING = {"create_process", "create_session", "create_subprocess", "open_session"}


def calls():
    for path in sorted(REMOTE.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield path, node


def test_every_session_of_ours_is_opened_undecoded():
    found = [(path, node) for path, node in calls() if node.func.attr in DECODING]
    assert found
    for path, node in found:
        encodings = [keyword.value for keyword in node.keywords if keyword.arg == "encoding"]
        assert encodings and ast.literal_eval(encodings[0]) is None, f"{path.name}:{node.lineno}"


def test_the_link_never_runs_commands_by_asyncssh_run_or_signals_them():
    """``run`` hides a lost link, and OpenSSH ignores ``terminate`` and ``kill`` (ronf/asyncssh#112)."""
    for path, node in calls():
        owner = ast.unparse(node.func.value)
        assert not (owner.endswith("_connection") and node.func.attr == "run"), f"{path.name}:{node.lineno}"
        assert not (owner.endswith("process") and node.func.attr in ("terminate", "kill")), f"{path.name}:{node.lineno}"
