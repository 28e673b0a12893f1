"""`inspect`: training data, hidden states and trainings that other tools left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eagle3_backend.findings import FindingError, Severity, error, worst
from eagle3_tui.commands.campaign import JsonOption
from eagle3_tui.commands.output import OK, REFUSED, clean, command

if TYPE_CHECKING:
    from eagle3_backend.pipeline.judgement import Judgement

PathArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="A JSONL file of rows, a chat template (.jinja), a directory of hidden states, or a training's folder.",
    ),
]
PlanOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="What hidden states were planned: samples, layers, width, as JSON.")
]
LogOption = Annotated[Path | None, typer.Option(metavar="FILE", help="The training's log.")]
BosOption = Annotated[int | None, typer.Option(metavar="ID", help="The token that begins a text, for rows of tokens.")]
LengthOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Rows of tokens are cut at this length in training.")
]
HeaderOption = Annotated[
    str, typer.Option(metavar="TEXT", help=r"What begins an assistant's turn in finished texts; \n is a new line.")
]
EndOption = Annotated[str, typer.Option(metavar="TEXT", help="What ends a turn in finished texts.")]


def inspect(
    path: PathArgument,
    plan: PlanOption = None,
    log: LogOption = None,
    bos: BosOption = None,
    max_length: LengthOption = None,
    assistant_header: HeaderOption = "",
    end_of_turn: EndOption = "",
    as_json: JsonOption = False,
) -> None:
    """Whether data, hidden states or a training that another tool made can be used; exit 1 when not."""
    with command(as_json) as output:
        if path.is_dir():
            judged = _judge_directory(path, plan, log)
        elif path.suffix == ".jinja":
            judged = _judge_template(path)
        else:
            texts = [text.replace("\\n", "\n") for text in (assistant_header, end_of_turn)]
            judged = _judge_rows(path, bos, max_length, *texts)
        output.findings(judged.findings)
        # Texts by id are for programs; people get the figures.
        figures = {name: value for name, value in judged.values.items() if not isinstance(value, str)}
        width = max(map(len, figures), default=0)
        lines = [f"{name.ljust(width)}  {clean(json.dumps(value))}" for name, value in figures.items()]
        findings = [finding.to_json() for finding in judged.findings]
        output.give({"findings": findings, "values": judged.values}, "\n".join(lines))
        raise typer.Exit(REFUSED if worst(judged.findings) is Severity.ERROR else OK)


def _judge_directory(path: Path, plan: Path | None, log: Path | None) -> Judgement:
    from eagle3_backend.pipeline.run_folders import judge_run
    from eagle3_backend.pipeline.state_files import judge_state_files, planned

    if plan is not None or any(path.glob("hs_*.safetensors")):
        wanted = planned(path) if plan is None else _object(plan.read_text(encoding="utf-8"), plan)
        return judge_state_files(path, wanted)
    return judge_run(path, log.read_text(encoding="utf-8", errors="replace") if log else "")


def _judge_template(path: Path) -> Judgement:
    from eagle3_backend.pipeline.judgement import Judgement
    from eagle3_backend.pipeline.rows import template_findings

    return Judgement(tuple(template_findings(str(path), path.read_text(encoding="utf-8"))))


def _judge_rows(path: Path, bos: int | None, max_length: int | None, header: str, end: str) -> Judgement:
    from eagle3_backend.pipeline import rows

    entries = list(_rows(path))
    if all("choices" in entry for entry in entries):
        return rows.judge_answers(entries)
    if all("input_ids" in entry and "loss_mask" in entry for entry in entries):
        return rows.judge_tokens(entries, bos, max_length)
    if header and all("text" in entry for entry in entries):
        return rows.judge_texts(entries, header, end)
    raise FindingError(
        error(
            "rows_unknown",
            f"{path.name} holds no rows of a known kind.",
            path=str(path),
            expected='"choices", or "input_ids" and "loss_mask", or "text" with --assistant-header',
            actual=sorted(entries[0])[:8],
        )
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSONL file, at least one."""
    lines = [line for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]
    if not lines:
        raise FindingError(error("rows_unknown", f"{path.name} is empty.", path=str(path)))
    for number, line in enumerate(lines, 1):
        yield _object(line, f"{path}:{number}")


def _object(text: str, place: Path | str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as problem:
        raise FindingError(error("not_json", f"{place} is no JSON: {problem}.", path=str(place))) from problem
    if not isinstance(value, dict):
        raise FindingError(error("not_json", f"{place} is no JSON object.", path=str(place)))
    return value
