"""An artifact's name: a hash of everything that decides its content."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from typing import Any, Dict, Mapping

from eagle3_backend.pipeline.parameters import StageParameters
from eagle3_backend.pipeline.stages import Stage

LENGTH = 16
"""Hex digits of a fingerprint: 64 bits, plenty for the artifacts of one workspace."""


def output_parameters(parameters: StageParameters) -> Dict[str, Any]:
    """The parameters that change what comes out, as plain values by field name.

    A field that came later is left out at its default: what was made without it is the same still.
    """
    return {
        entry.name: getattr(parameters, entry.name)
        for entry in fields(parameters)
        if entry.metadata.get("affects_output", True)
        and not (entry.metadata.get("later") and getattr(parameters, entry.name) == entry.default)
    }


def fingerprint(stage: Stage, parameters: StageParameters, inputs: Mapping[str, Any]) -> str:
    """Hash of the stage's name and version, its output parameters, and ``inputs`` (fingerprints or content hashes)."""
    text = json.dumps(
        {"stage": stage.name, "version": stage.version, "parameters": output_parameters(parameters), "inputs": inputs},
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
    )
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:LENGTH]
