"""Whether an engine took what its launch plan says: its own words in the log against what the plan expects."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping

from eagle3_backend.findings import Finding, error, warning

_WORDS = {"method": "method", "depth": "number of draft tokens", "aux_layers": "aux layers"}


def check_taken(expects: Mapping[str, Any], facts: Mapping[str, Any]) -> List[Finding]:
    """``expects`` of a plan against ``facts`` of the log of its start (`ServerLog.facts`), once the server is ready."""
    return [*_compared(expects, facts)]


def _compared(expects: Mapping[str, Any], facts: Mapping[str, Any]) -> Iterator[Finding]:
    for name, words in _WORDS.items():
        if name not in expects:
            continue
        wanted, found = expects[name], facts.get(name)
        if found is None and name != "method":
            yield warning(
                f"{name}_not_told",
                f"The engine's log names no {words}; the plan has {wanted}.",
                path="engine",
                expected=wanted,
                actual=None,
                fix="Judge by the acceptance by position, or by a replay of the engine's own drafts.",
            )
        elif found != wanted:
            yield error(
                "plan_not_taken",
                f"The engine took another {words} than the plan has: {found} in place of {wanted}.",
                path=name,
                expected=wanted,
                actual=found,
                fix="The drafter's config or the engine's version reads the launch in another way; do not measure it.",
            )
