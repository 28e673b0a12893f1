"""Who may import whom on a host, read from the syntax trees; what import-linter cannot say."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import eagle3_backend

ROOT = Path(eagle3_backend.__file__).parent
PURE = ("findings", "states", "drafter", "pipeline", "engines")
"""The pure rooms; each may import those before it and itself."""


def _files(room: str) -> list[Path]:
    single = ROOT / f"{room}.py"
    return [single] if single.exists() else sorted((ROOT / room).rglob("*.py"))


def _imports(path: Path) -> set[str]:
    """Modules that a file names; of ours as `eagle3_backend.<room>`, of others the first part."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            inner = node.module == "eagle3_backend"
            names = [f"{node.module}.{alias.name}" for alias in node.names] if inner else [str(node.module)]
        else:
            continue
        for name in names:
            parts = name.split(".")
            found.add(".".join(parts[:2]) if parts[0] == "eagle3_backend" else parts[0])
    return found


def _foreign(path: Path, rooms: tuple[str, ...], packages: frozenset[str] = frozenset()) -> set[str]:
    allowed = sys.stdlib_module_names | packages | {f"eagle3_backend.{room}" for room in rooms}
    return _imports(path) - allowed


HOST_FILES = [(room, path) for room in (*PURE, "agent") for path in _files(room)]
NAMES = [str(path.relative_to(ROOT)) for _, path in HOST_FILES]


@pytest.mark.parametrize(("room", "path"), HOST_FILES, ids=NAMES)
def test_host_code_imports_what_its_room_may(room: str, path: Path) -> None:
    if room == "agent":
        assert _foreign(path, (*PURE, "agent"), frozenset({"psutil"})) == set()
    else:
        assert _foreign(path, PURE[: PURE.index(room) + 1]) == set()


@pytest.mark.parametrize("path", [path for _, path in HOST_FILES], ids=NAMES)
def test_host_code_has_the_syntax_of_python_3_9(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))
    imported = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert "annotations" in imported or not imported, "annotations have to stay text under 3.9"
    keywords = {
        keyword.arg
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dataclass"
        for keyword in node.keywords
    }
    assert keywords <= {"frozen", "order", "eq", "repr", "init", "unsafe_hash"}


def test_the_rule_sees_a_foreign_import(tmp_path: Path) -> None:
    path = tmp_path / "x.py"
    path.write_text(
        "import os\nimport torch.nn\nfrom eagle3_backend import runs\nfrom eagle3_backend.findings import error\n"
    )
    assert _foreign(path, ("findings",)) == {"torch", "eagle3_backend.runs"}
