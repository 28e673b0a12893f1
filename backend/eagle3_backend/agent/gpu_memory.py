"""Whether an attempt gave back the memory of its GPUs: what was used before it, against what is used after it."""

from __future__ import annotations

import time
from typing import Dict, List, Optional, Sequence

from eagle3_backend.agent.gpus import GpuReader
from eagle3_backend.findings import Finding, warning

SETTLE_SECONDS = 5.0
"""A driver frees memory a moment after the process that held it has ended."""
POLL = 0.25
SLACK = 256 << 20
"""Bytes by which the memory may differ: contexts of monitors, rounding of the driver."""


class GpuMemory:
    """Looks at the GPUs of an attempt before its stage starts, and once nothing of it is left."""

    def __init__(self, uuids: Sequence[str], reader: Optional[GpuReader] = None) -> None:
        self._uuids = frozenset(uuids)
        self._reader = (reader or GpuReader()) if uuids else None
        self._before = self._used()

    def _used(self) -> Dict[str, int]:
        """Bytes in use by uuid, of the GPUs whose driver tells."""
        if self._reader is None:
            return {}
        found, _ = self._reader.read()
        return {
            gpu.uuid: gpu.memory_used
            for gpu in found
            if gpu.uuid is not None and gpu.uuid in self._uuids and gpu.memory_used is not None
        }

    def findings(self) -> List[Finding]:
        """What is not free again after `SETTLE_SECONDS`; nothing where it was not known before."""
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            after = self._used()
            held = {
                uuid: after[uuid] - used for uuid, used in self._before.items() if after.get(uuid, 0) > used + SLACK
            }
            if not held or time.monotonic() > end:
                return [_not_freed(uuid, self._before[uuid], more) for uuid, more in sorted(held.items())]
            time.sleep(POLL)


def _not_freed(uuid: str, before: int, more: int) -> Finding:
    return warning(
        "gpu_memory_not_freed",
        f"GPU {uuid} has {more / 2**30:.1f} GiB more in use than before this attempt, though no process of it is left: "
        "somebody else has come, or the driver holds it.",
        path=uuid,
        expected=before,
        actual=before + more,
        fix="Look at the machine screen for who uses it, before the next start is planned with it.",
    )
