"""Triton kernels run in Triton's interpreter here, on CPU tensors: it has to be on before Triton is first imported."""

from __future__ import annotations

import importlib
import os
import sys

import pytest

INTERPRETED = "triton" not in sys.modules
os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def triton_path(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Kernels take their Triton path on any device."""
    assert INTERPRETED, "Triton was imported before its interpreter could be chosen"
    from eagle3_kernels.dispatch import Path

    for name in ("draft_loss", "attention"):
        module = importlib.import_module(f"eagle3_kernels.{name}")
        monkeypatch.setattr(module, "kernel_path", lambda device: Path("triton"))
    return monkeypatch
