"""The prompt set `long_context`: questions about a detail of a long document, of some 1k to 6k tokens.

The documents are minutes, a log, an inventory and a diary, written here as sentence forms; names, numbers and dates are
drawn by a seeded generator, so that a page of text stands for 24 prompts. They are the same on every machine.
"""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from typing import Any, Callable, Dict, List, Tuple

NAME = "long_context"

LENGTHS = (1000, 2000, 3000, 4000, 5000, 6000)
"""Tokens of a prompt, about: they depend on the tokenizer, mostly on what it makes of numbers."""

SOURCES = tuple(f"{tokens // 1000}k tokens" for tokens in LENGTHS)
"""What the prompts of each length are called."""

PEOPLE = (
    "Agnes Brandvold", "Tomas Querido", "Irena Maslak", "Owen Ferris", "Leila Haddad", "Piet Verstraten",
    "Noor Anand", "Gustav Lindqvist", "Maeve Corrigan", "Samir Boukhari", "Edda Holm", "Rosa Tanner",
)  # fmt: skip

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip

_Page = Tuple[str, str, str]
"""A document, what it is called, and a question about a detail of it."""


def _minutes(draw: random.Random, characters: int) -> _Page:
    things = (
        "the boiler in the east wing", "the fence along the allotments", "the lease of the boathouse",
        "the cargo bicycle", "the damp wall of the reading room", "the accounts of the summer fair",
        "the lift in the old mill", "the beehives on the roof", "the insurance of the minibus",
        "the noise of the joinery", "the playground's climbing frame", "the rainwater tank",
    )  # fmt: skip
    troubles = (
        "had given more trouble than anyone expected since the last meeting",
        "could no longer be put off, as two members had written letters about it",
        "was cheaper than feared but would take a good deal longer",
        "had been looked at by a surveyor, whose report was passed round the table",
        "needed a decision before the grant from the council lapsed",
    )
    remedies = (
        "to ask three firms for quotes and take the second cheapest", "to repair it with the help of volunteers",
        "to leave it as it is for one more winter", "to replace it, provided that the reserve stays above its floor",
        "to hand it over to the neighbouring cooperative for a token price", "to vote by letter later",
    )  # fmt: skip
    remarks = (
        "Nobody objected, though {b} asked that the tenants be told first.",
        "{b} wished it to be recorded that the same had been promised a year ago.",
        "There was some laughter when {b} produced the original invoice.",
        "{b} offered to lend the tools, which was gladly accepted.",
    )
    day = date(2031, 1, 14)
    parts: List[str] = []
    asked: List[str] = []
    while sum(map(len, parts)) < characters:
        present = draw.sample(PEOPLE, 5)
        parts.append(f"Minutes of {_day(day)}. Present: {', '.join(present)}. {present[0]} took the chair.")
        for number, thing in enumerate(draw.sample(things, 3), 1):
            if sum(map(len, parts)) >= characters:
                break
            a, b = draw.sample(present, 2)
            cost, until = 20 * draw.randrange(4, 190), day + timedelta(draw.randrange(5, 60))
            parts.append(
                f"{number}. {a} reported that {thing} {draw.choice(troubles)}. It was agreed "
                f"{draw.choice(remedies)}; {b} will see to it by {_day(until)} and may spend up to {cost} euros. "
                + draw.choice(remarks).format(b=draw.choice(present))
            )
            asked.append(f"What was agreed about {thing} on {_day(day)}, who sees to it by when, and what may it cost?")
        day += timedelta(7 * draw.randrange(2, 6))
    return "\n".join(parts), "the minutes of a housing cooperative", f"{_middle(draw, asked)} Then say what led to it."


def _log(draw: random.Random, characters: int) -> _Page:
    units = ("pump 1", "pump 2", "vent north", "vent south", "boiler 1", "mist line", "shade motor", "tank gauge")
    forms = (
        "pressure {x}.{y} bar, below the limit of 3.0; retry in {z} s", "started by schedule, runs for {z} minutes",
        "stopped by hand at the panel, reason given: inspection", "temperature {z}.{y} C, set point raised by {x}",
        "no answer for {z} s, then back without a restart", "door contact open for {z} s while running",
        "filter warning acknowledged, {x} hours left", "level {z} percent, filling at {x}.{y} litres a minute",
    )  # fmt: skip
    now = datetime(2031, 5, 2, 4, 30)
    lines: List[str] = []
    asked: List[str] = []
    while sum(map(len, lines)) < characters:
        now += timedelta(seconds=draw.randrange(20, 900))
        unit = draw.choice(units)
        words = draw.choice(forms).format(x=draw.randrange(1, 9), y=draw.randrange(10), z=draw.randrange(11, 60))
        lines.append(f"{now:%Y-%m-%d %H:%M:%S} {unit}: {words}")
        asked.append(f"What did {unit} report at {now:%H:%M:%S} on {now:%Y-%m-%d}, and what do the next two lines say?")
    question = f"{_middle(draw, asked[:-2])} Explain it to somebody who has never seen the plant."
    return "\n".join(lines), "the log of a greenhouse controller", question


def _inventory(draw: random.Random, characters: int) -> _Page:
    goods = (
        "brass hinge", "cordless drill", "canvas sheet", "oak dowel", "hand plane", "wood glue", "sanding belt",
        "door closer", "paint roller", "steel bracket", "work lamp", "spirit level", "chisel set", "cable reel",
    )  # fmt: skip
    makes = ("light", "heavy", "small", "large", "old pattern", "new pattern", "left", "right")
    firms = ("Halvorsen", "Petrakis & Sons", "Nordwerk", "Dunmore Supply", "Atelier Roux", "Kestrel Trading")
    lines = ["shelf | article | pieces | supplier | counted | by | reorder below"]
    asked: List[str] = []
    while sum(map(len, lines)) < characters:
        shelf = f"{'ABCDEFGH'[len(lines) // 40 % 8]}-{len(lines):03d}"
        article = f"{draw.choice(goods)}, {draw.choice(makes)}"
        counted = date(2030, 9, 1) + timedelta(draw.randrange(200))
        left, floor = draw.randrange(12, 400), draw.randrange(2, 12)
        by = draw.choice(PEOPLE).split()[0]
        lines.append(f"{shelf} | {article} | {left} | {draw.choice(firms)} | {counted} | {by} | {floor}")
        asked.append(
            f"What lies on shelf {shelf}, who delivers it, and how many pieces can be handed out before it is ordered "
            "again?"
        )
    return "\n".join(lines), "the inventory of a joinery", f"{_middle(draw, asked)} Answer in whole sentences."


def _diary(draw: random.Random, characters: int) -> _Page:
    skies = (
        "Fog until noon, then a thin sun", "A hard frost and no wind at all", "Rain on the roof the whole night",
        "Clear, with the glacier so near that one could count its cracks", "Snow again, up to the second step",
        "Warm wind from the south, and everything drips",
    )  # fmt: skip
    guests = (
        "a school class from the valley", "two surveyors with more instruments than food",
        "a baker on his first holiday in nine years", "an old couple who had met here as students",
        "four climbers who spoke of nothing but knots", "nobody, for which I was not ungrateful",
    )  # fmt: skip
    works = (
        "The stove smoked, so I took down the pipe and found a jackdaw's nest in it",
        "I split wood until my hands refused, and stacked it under the eaves",
        "The cable of the goods lift had frayed, and I spliced it by lamplight",
        "The spring had frozen, so I carried water from the lower hut, eleven turns with two cans",
        "I mended the shutter that bangs, with the last of the leather",
        "The wireless fell silent; it was the battery, as always when help is wanted",
    )
    thoughts = (
        "My predecessor wrote that one learns here to be slow. I have learned mainly to be stubborn.",
        "In the evening I read aloud to the dog, who prefers travel books.",
        "If the mule does not come by the end of the week, it will be lentils again.",
        "I counted the blankets and am one short, or I cannot count.",
    )
    day = date(2031, 2, 3)
    parts: List[str] = []
    dates: List[str] = []
    while sum(map(len, parts)) < characters:
        pair = draw.sample(works, 2)
        parts.append(
            f"{_day(day)}. {draw.choice(skies)}; {draw.randrange(1, 19)} degrees at six. {pair[0]}. {pair[1]}. "
            f"The guests: {draw.choice(guests)}. {draw.choice(thoughts)}"
        )
        dates.append(f"What did the warden repair or carry on {_day(day)}, and who came?")
        day += timedelta(draw.randrange(1, 4))
    question = f"{_middle(draw, dates)} Tell it in three sentences, as if to a friend."
    return "\n\n".join(parts), "the diary of the warden of a mountain hut", question


def _day(day: date) -> str:
    # Not by strftime, which speaks the language of the machine.
    return f"{day.day} {_MONTHS[day.month - 1]} {day.year}"


def _middle(draw: random.Random, asked: List[str]) -> str:
    """One of the questions, not about the very beginning or end."""
    return asked[draw.randrange(len(asked) // 4, max(len(asked) * 3 // 4, len(asked) // 4 + 1))]


_KINDS: Dict[str, Tuple[Callable[[random.Random, int], _Page], float]] = {
    "minutes": (_minutes, 3.1),
    "log": (_log, 1.88),
    "inventory": (_inventory, 1.68),
    "diary": (_diary, 3.4),
}
"""Each kind with the characters that make a token of it, or a little less: what is called 2k has to fit into 2048."""


def rows() -> List[Dict[str, Any]]:
    """The prompts as records of a prompt file: 4 of each length, the shortest first; ``source`` is the length."""
    found = []
    for tokens, source in zip(LENGTHS, SOURCES):
        for kind, (write, density) in _KINDS.items():
            draw = random.Random(f"{kind} {tokens}")
            document, title, question = write(draw, round(tokens * density))
            text = f"Read {title}.\n\n{document}\n\nNow answer from it: {question}"
            label = f"{tokens // 1000}k"
            found.append({"id": f"long-{label}-{kind}", "source": source, "turns": [text]})
    return found
