"""`diff`: two drafters side by side, aligned by what their configs mean."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle3_tui.commands.campaign import JsonOption, NoInputOption, ProfileOption, choose
from eagle3_tui.commands.output import OK, REFUSED, clean, command

if TYPE_CHECKING:
    from eagle3_backend.drafter.diff import Row

VALUE, PATH = 44, 100
"""Most characters of a value and of a key's path in a line of text."""

WORDS = {
    "breaking": "breaks something",
    "unknown": "unknown",
    "harmless": "harmless",
    "spelling": "other spelling",
    "default": "by default",
    "same": "same",
}

LeftArgument = Annotated[str, typer.Argument(metavar="A", help="A drafter's directory, a config.json, or HOST:PATH.")]
RightArgument = Annotated[str, typer.Argument(metavar="B", help="The other drafter, or a reference config.")]
TargetOption = Annotated[
    str | None,
    typer.Option(metavar="T", help="The target's directory or config.json: it settles how layers are counted."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every row: spellings, defaults and what is the same, too.")]


def diff(
    context: typer.Context,
    left: LeftArgument,
    right: RightArgument,
    target: TargetOption = None,
    everything: AllOption = False,
    profile: ProfileOption = None,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compare two drafters by meaning, across layouts; exit 0 when they are equal in effect, 1 when not."""
    from eagle3_backend.drafter.diff import compare, summary
    from eagle3_backend.drafter.diff_tensors import compare_weights
    from eagle3_backend.drafter.reading import layout_of
    from eagle3_tui.commands.models import open_models

    with command(as_json) as output:
        places = [left, right, *([target] if target else [])]
        models = open_models(choose(context, profile, no_input=no_input), output, *places)
        one, other = models[:2]
        goal = models[2].config if target else None
        rows = [*compare(one.config, other.config, goal), *compare_weights(one.inventory, other.inventory)]
        told = summary(rows)
        findings = [finding for model in models for finding in model.findings]
        output.findings(findings)
        shown = [row for row in rows if everything or row.kind.differs]
        sides = [{"path": model.path, "layout": layout_of(model.config)} for model in (one, other)]
        data: dict[str, Any] = {
            "left": sides[0],
            "right": sides[1],
            **told,
            "rows": [row.to_json() for row in shown],
            "findings": [finding.to_json() for finding in findings],
        }
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        output.give(data, text_of(sides, rows, shown, told["equal_in_effect"], width))
        raise typer.Exit(OK if told["equal_in_effect"] else REFUSED)


def text_of(
    sides: Sequence[dict[str, str]], rows: Sequence[Row], shown: Sequence[Row], equal: bool, width: int | None = None
) -> str:
    """The comparison for people: a table, or on a terminal too narrow for it (``width`` cells) row under row."""
    lines = [clean(f"{name:<5}  {side['path']} ({side['layout']})") for name, side in zip("AB", sides, strict=True)]
    cells = [
        (row.kind.value, _short(row.path, PATH), _short(row.left.words), _short(row.right.words), row.words)
        for row in shown
    ]
    if cells:
        widths = [max(len(cell[column]) for cell in cells) for column in range(4)]
        table = ["  ".join([*map(str.ljust, cell[:4], widths), cell[4]]).rstrip() for cell in cells]
        if width is not None and max(map(len, table)) > width:
            table = [
                line
                for kind, path, left, right, why in cells
                for line in (f"{kind}  {path}", f"  A     {left}", f"  B     {right}", *([f"  {why}"] if why else []))
            ]
        lines += ["", *map(clean, table), ""]
    counted = Counter(row.kind.value for row in rows)
    more = " (--all shows them)" if len(shown) < len(rows) else ""
    lines.append(", ".join(f"{counted[kind]} {words}" for kind, words in WORDS.items() if counted[kind]) + more)
    lines.append("equal in effect" if equal else "not equal in effect")
    return "\n".join(lines)


def _short(words: str, most: int = VALUE) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"
