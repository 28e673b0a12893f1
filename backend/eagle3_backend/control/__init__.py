"""The one facade that both faces talk to: commands in, snapshots out."""

from eagle3_backend.control.engine import Control

__all__ = ["Control"]
