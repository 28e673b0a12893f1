"""`bench` of a campaign: its drafter at several depths and loads, beside what it has to beat."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from eagle3_tui.commands import runs
from eagle3_tui.commands.campaign import Choice, opened
from eagle3_tui.commands.output import Output, command

if TYPE_CHECKING:
    from eagle3_backend.control.snapshot import Outcome


@dataclass(frozen=True)
class Table:
    """What is to be measured: depths, requests in flight, other ways to draft, and tokens of an answer; what is
    not given is as in the profile."""

    depths: tuple[int, ...] = ()
    concurrencies: tuple[int, ...] = ()
    against: tuple[str, ...] = ()
    max_new_tokens: int | None = None

    @property
    def settings(self) -> tuple[str, ...]:
        """The same as settings of the profile. The deepest is measured in full: it tells the acceptance of the others
        by position."""
        values: dict[str, Any] = {}
        if self.depths:
            deepest = max(self.depths)
            values["depth"] = deepest
            values["depths"] = sorted(set(self.depths) - {deepest})
        if self.concurrencies:
            values["concurrencies"] = sorted(set(self.concurrencies))
        if self.against:
            values["against"] = [name for name in dict.fromkeys(self.against) if name != "none"]
        if self.max_new_tokens:
            values["max_new_tokens"] = self.max_new_tokens
        return tuple(f"bench.{name}={json.dumps(value)}" for name, value in values.items())


def numbers(text: str, option: str) -> tuple[int, ...]:
    """ "1,3,5" as numbers, each at least 1. Raises a usage error."""
    words = [word.strip() for word in text.split(",")] if text else []
    if not all(word.isascii() and word.isdigit() and int(word) >= 1 for word in words):
        raise typer.BadParameter(f"'{text}' is no list of numbers such as 1,3,5", param_hint=option)
    return tuple(map(int, words))


def names(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def bench(choice: Choice, table: Table, *, smoke: bool, accept: tuple[str, ...], as_json: bool, markdown: bool) -> None:
    """Measure what the table asks for, after everything that it stands on; leaves with the exit code of its end."""
    asked = Choice(choice.profile, (*choice.settings, *table.settings), choice.ask)
    with command(as_json, asked.options, smoke) as output:
        _announce(asked, output)
        with opened(asked, output, smoke=smoke) as control:
            tell = partial(_markdown, asked.profile) if markdown else runs.result_text
            runs.run_through(control, "bench", output, accept=accept, text=tell)


def _announce(choice: Choice, output: Output) -> None:
    """What will be started and measured. Raises FindingError for a value that cannot be."""
    from eagle3_backend.pipeline.forecast import bench_starts

    values = asdict(choice.load().parameters["bench"])
    depths = sorted({values["depth"], *values["depths"]})
    loads = sorted({1, *values["concurrencies"]})
    ways = ["none", *(f"depth {depth}" for depth in depths), *values["against"]]
    output.say(
        f"bench: {bench_starts(values)} engine starts; {', '.join(ways)} at {', '.join(map(str, loads))} in flight, "
        "each beside none."
    )


def _markdown(title: str, through: str, outcome: Outcome, totals: dict[str, Any]) -> str:
    from eagle3_tui.loadtable import as_markdown

    return as_markdown(outcome.summary, f"{through} of {title}").rstrip("\n")
