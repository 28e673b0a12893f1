"""Parts of the documentation are made from the code; set EAGLE3_WRITE_DOCS to renew them."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import tomllib
from pathlib import Path

import pytest

from eagle3_backend.pipeline.stages import STAGES
from eagle3_backend.profile import parameter_schema
from eagle3_tui.commands.check import capabilities_markdown
from eagle3_tui.commands.output import exit_code
from eagle3_tui.commands.settings import reference_markdown
from eagle3_tui.keymap import keys_table

REPOSITORY = Path(__file__).parents[2]


def parameters():
    return reference_markdown(parameter_schema())


@pytest.mark.parametrize(
    ("file", "mark", "make"),
    [
        ("README.md", "keys", keys_table),
        ("docs/profiles.md", "parameters", parameters),
        ("docs/drafters.md", "capabilities", capabilities_markdown),
    ],
)
def test_generated_parts_are_those_of_the_code(file, mark, make):
    path = REPOSITORY / file
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    text = path.read_text(encoding="utf-8")
    head, rest = text.split(begin)
    _, tail = rest.split(end)
    wanted = f"{head}{begin}\n\n{make().strip()}\n\n{end}{tail}"
    if os.environ.get("EAGLE3_WRITE_DOCS"):
        path.write_text(wanted, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == wanted


@pytest.fixture
def screenshots(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    spec = importlib.util.spec_from_file_location("screenshots", REPOSITORY / "docs" / "screenshots.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_picture_is_drawn_by_the_script_and_shown_in_the_documentation(screenshots):
    kept = {path.stem for path in (REPOSITORY / "docs" / "pictures").glob("*.svg")}
    pages = [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]
    shown = {name for page in pages for name in re.findall(r"pictures/([\w-]+)\.svg", page.read_text(encoding="utf-8"))}
    assert kept == shown == set(screenshots.PICTURES)


async def test_a_picture_is_the_same_each_time_and_needs_nothing_from_elsewhere(screenshots):
    drawn = await screenshots.draw("first-run")
    assert drawn == await screenshots.draw("first-run")
    assert re.findall(r"https?://[^\"]+", drawn) == ["http://www.w3.org/2000/svg"] and len(drawn) < 100_000
    words = re.sub(r"<[^>]+>|&#160;", " ", drawn)
    assert "trains" in words and "First" in words


def test_every_runtime_dependency_is_explained_with_its_pin():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    table = (REPOSITORY / "docs" / "dependencies.md").read_text(encoding="utf-8")
    entries = [*project["dependencies"], *project["optional-dependencies"]["hub"]]
    declared = {re.sub(r"([a-z_-]+)(.*)", r"| \1 | `\2` |", entry) for entry in entries}
    assert {row for row in declared if row in table} == declared
    assert table.count("\n| ") == len(declared) + 2


def test_every_stage_is_described():
    text = (REPOSITORY / "docs" / "campaign.md").read_text(encoding="utf-8")
    assert [name for name in STAGES if f"\n| {name} |" not in text] == []


def test_documented_findings_exist_and_end_as_documented():
    files = [path for room in ("backend", "tui") for path in (REPOSITORY / room).rglob("*.py")]
    source = "".join(path.read_text(encoding="utf-8") for path in files)
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \|", (REPOSITORY / "docs" / "findings.md").read_text("utf-8"), re.M)
    assert len(rows) > 10
    assert [code for code, _ in rows if f'"{code}"' not in source] == []
    from eagle3_backend.findings import error

    for code, status in rows:
        if status in "1345":
            assert (code, str(exit_code([error(code, "")]))) == (code, status)


def test_every_finding_about_a_drafter_is_documented():
    room = REPOSITORY / "backend" / "eagle3_backend" / "drafter"
    source = "".join(path.read_text(encoding="utf-8") for path in room.rglob("*.py"))
    table = (REPOSITORY / "docs" / "drafters.md").read_text(encoding="utf-8").split("<!-- capabilities")[0]
    documented = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.+?) \|", table, re.M))))
    places = [*(room / "checks").glob("*.py"), room / "reading.py", room / "rope.py"]
    told = {code for path in places for code in _codes(path)}
    assert told - documented == set()
    assert [code for code in documented if f'"{code}"' not in source and code.split("_")[-1] != "unsupported"] == []


def _codes(path):
    """The codes that a module's findings begin with."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        makers = {"error", "warning", "info"}
        if (
            isinstance(node, ast.Call)
            and node.args
            and makers & {part.id for part in ast.walk(node.func) if isinstance(part, ast.Name)}
        ):
            first = node.args[0]
            choices = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
            yield from (choice.value for choice in choices if isinstance(choice, ast.Constant))


def test_relative_links_lead_somewhere():
    for page in [REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), (page.name, link)
