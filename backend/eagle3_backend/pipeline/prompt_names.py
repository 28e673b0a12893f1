"""Prompt sets that go by a name instead of a path: nothing is sent for them, the stage reads them where it runs."""

from __future__ import annotations

import hashlib
import json

from eagle3_backend.pipeline import hub_sets, long_context


def is_named(name: str) -> bool:
    """Whether this is a data set of a hub, or the documents that are written by the program."""
    return name == long_context.NAME or hub_sets.is_hub(name)


def identity(name: str) -> str:
    """What enters a fingerprint for it: the content where it is known, else the name.

    A data set without a revision is what it was when the stage read it: the commit stands in the manifest.
    """
    if name != long_context.NAME:
        return name
    return hashlib.sha256(json.dumps(long_context.rows()).encode("utf-8")).hexdigest()
