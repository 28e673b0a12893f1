"""What an answer took, in words: the same in the panel and on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def figures_words(figures: Mapping[str, Any]) -> str:
    """One line; what the server does not tell is said to be untold."""
    tokens, speed = figures["tokens"], figures["tokens_per_second"]
    first, length = figures["seconds_to_first_token"], figures["acceptance_length"]
    words = [
        "tokens not told" if tokens is None else f"{tokens} tokens",
        "speed not told" if speed is None else f"{speed:.1f} tokens/s",
        "nothing was said" if first is None else f"first after {first:.2f} s",
        "acceptance not told" if length is None else f"acceptance length {length:.2f}",
    ]
    return ", ".join([*words, str(figures["finish_reason"] or "no end told")])
