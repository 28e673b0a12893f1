"""The acceptance that engines print into their logs, window by window, as a second source beside their counters."""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

from eagle3_backend.engines.log_lines import LineFed
from eagle3_backend.engines.metrics import Drafting

_NUMBER = r"(?:\d+(?:\.\d+)?|nan)"
_VLLM = re.compile(
    rf"SpecDecoding metrics: .*?Accepted: (\d+) tokens, Drafted: (\d+) tokens, "
    rf"Per-position acceptance rate: ({_NUMBER}(?:, {_NUMBER})*)"
)
_SGLANG = re.compile(r"Decode batch\b.*?#running-req: (\d+).*?accept len: (\d+\.?\d*), accept rate: (\d+\.?\d*)")

STEPS_A_LINE = 40
"""Decode steps between two lines of SGLang, as it is shipped (--decode-log-interval)."""


class LogWindows(LineFed):
    """Pools the windows of a log, in bounded memory. ``depth`` is the planned number of draft tokens; None: vLLM's own
    number of positions.

    vLLM's windows are pooled by their counts. SGLang prints means without counts: each line stands for `STEPS_A_LINE`
    decode steps, so the lines are weighted by their running requests and the counts are an estimate. Its printed
    rate is not used: older releases divided by another number.
    """

    def __init__(self, depth: Optional[int] = None) -> None:
        self._depth = depth
        super().__init__()
        self._places: List[float] = []
        self._drafts = self._drafted = self._accepted = 0.0
        self.windows = 0
        self.printed_rate: Optional[float] = None
        self.exact = True

    def feed(self, line: str) -> None:
        """Take one line; those without acceptance figures change nothing."""
        vllm = _VLLM.search(line)
        sglang = None if vllm else _SGLANG.search(line)
        if vllm:
            rates = [float(rate) for rate in vllm.group(3).split(", ")]
            self._take(float(vllm.group(2)) / (self._depth or len(rates)), float(vllm.group(2)), float(vllm.group(1)))
            self._places += [0.0] * (len(rates) - len(self._places))
            for place, rate in enumerate(rates):
                if rate == rate:  # nan: nothing was drafted there
                    self._places[place] += rate * float(vllm.group(2)) / (self._depth or len(rates))
        elif sglang:
            drafts = STEPS_A_LINE * float(sglang.group(1))
            self.exact = False
            self.printed_rate = float(sglang.group(3))
            self._take(drafts, drafts * (self._depth or 0), drafts * (float(sglang.group(2)) - 1.0))

    def _take(self, drafts: float, drafted: float, accepted: float) -> None:
        self.windows += 1
        self._drafts += drafts
        self._drafted += drafted
        self._accepted += accepted

    @property
    def drafting(self) -> Drafting:
        """All windows together. The rates by position are printed rounded, so their counts are not whole numbers."""
        places: Tuple[float, ...] = tuple(self._places)
        return Drafting(self._drafts, self._drafted, self._accepted, places, self.exact)
