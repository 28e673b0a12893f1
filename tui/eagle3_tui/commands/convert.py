"""`convert`: a drafter in the other layout, with its weights, as a new directory."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from eagle3_tui.commands.campaign import JsonOption
from eagle3_tui.commands.check import Engine
from eagle3_tui.commands.output import clean, command


class Layout(str, Enum):
    """The two layouts of a drafter's config."""

    FLAT = "flat"
    NESTED = "nested"


class Embedding(str, Enum):
    """What becomes of the drafter's embedding."""

    KEEP = "keep"
    DROP = "drop"
    ADD = "add"


DrafterArgument = Annotated[
    Path, typer.Argument(metavar="DRAFTER", help="A drafter's directory, or its config.json alone.")
]
OutArgument = Annotated[Path, typer.Argument(metavar="OUT", help="The directory to make; it must not be there yet.")]
LayoutOption = Annotated[
    Layout, typer.Option("--to", help="flat for vLLM and SGLang, nested for vLLM and speculators.")
]
TargetOption = Annotated[
    Path | None,
    typer.Option(metavar="T", help="The target's directory or config.json: it settles how layers are counted."),
]
VerifierOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="The target's name on the hub, for a nested config.")
]
DepthOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="K", help="Draft tokens that a nested config proposes; else as it was, or 3."),
]
EngineOption = Annotated[Engine, typer.Option(help="The engine that must be able to serve what is written.")]
EmbeddingOption = Annotated[
    Embedding, typer.Option(help="Keep the drafter's embedding, leave it to the target, or copy the target's.")
]
AcceptOption = Annotated[
    list[str] | None, typer.Option("--accept", metavar="CODE", help="Go on past findings of this code; repeatable.")
]


def convert(
    drafter: DrafterArgument,
    out: OutArgument,
    to: LayoutOption,
    target: TargetOption = None,
    verifier: VerifierOption = None,
    depth: DepthOption = None,
    engine: EngineOption = Engine.ALL,
    embedding: EmbeddingOption = Embedding.KEEP,
    accept: AcceptOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a drafter in the other layout, bit for bit; what an engine could not serve is refused. Needs no host."""
    from eagle3_backend.drafter.capabilities import ENGINES
    from eagle3_backend.drafter.convert_directory import convert_directory

    with command(as_json) as output:
        conversion = convert_directory(
            _expanded(drafter),
            _expanded(out),
            to.value,
            target=_expanded(target) if target else None,
            verifier=verifier,
            depth=depth,
            engines=ENGINES if engine is Engine.ALL else (engine.value,),
            embedding=embedding.value,
            accepted=tuple(accept or ()),
        )
        output.findings(conversion.findings)
        data = {
            "from": {"path": str(drafter), "layout": conversion.source.layout},
            "to": {"path": str(out), "layout": to.value},
            "findings": [finding.to_json() for finding in conversion.findings],
        }
        output.give(data, clean(f"{drafter} ({conversion.source.layout}) is written to {out} ({to.value})"))


def _expanded(path: Path) -> Path:
    """As a shell does: nobody's home is left as it stands."""
    return Path(os.path.expanduser(path))
