"""How much of a test text stands in the training text: shared word 13-grams.

Thirteen words is the usual length for contamination checks (GPT-3, arXiv:2005.14165, appendix C).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Iterable, Set

LENGTH = 13
"""Words in a gram."""

_WORD = re.compile(r"\w+")


def grams(text: str) -> Set[str]:
    """The distinct 13-grams of a text, in lower case and without punctuation.

    A text of fewer words is one gram, the whole of it: a short question that training had word for word is found too.
    """
    words = _WORD.findall(text.lower())
    if not words:
        return set()
    return {" ".join(words[start : start + LENGTH]) for start in range(max(1, len(words) - LENGTH + 1))}


def seen(texts: Iterable[str], training: Iterable[str]) -> Set[str]:
    """The grams of ``texts`` that stand in ``training``, which is read once and not kept: it may be large."""
    wanted: Set[str] = set().union(*map(grams, texts))
    found: Set[str] = set()
    for text in training:
        found |= wanted & grams(text)
    return found


@dataclass(frozen=True)
class Overlap:
    """``texts`` compared, how many of them share a gram with training, and the same in distinct grams of each text."""

    texts: int
    texts_sharing: int
    grams: int
    grams_shared: int

    def to_json(self) -> Dict[str, float]:
        return {
            "texts": self.texts,
            "texts_sharing": self.texts_sharing,
            "share_of_texts": round(self.texts_sharing / self.texts, 4) if self.texts else 0.0,
            "share_of_grams": round(self.grams_shared / self.grams, 4) if self.grams else 0.0,
        }


def overlap(texts: Iterable[str], training: Set[str]) -> Overlap:
    """Compare each text with the grams of the training text, or with those of them that were `seen`."""
    found = [(len(own), len(own & training)) for own in map(grams, texts)]
    return Overlap(
        texts=len(found),
        texts_sharing=sum(shared > 0 for _, shared in found),
        grams=sum(count for count, _ in found),
        grams_shared=sum(shared for _, shared in found),
    )
