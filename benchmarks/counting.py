"""Peak bytes and FLOPs of matrix products in a call whose tensors are shapes only (FakeTensorMode)."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

_aten = torch.ops.aten


class _Held(TorchDispatchMode):
    """Bytes of all storages that were made in this mode and are still held."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Storages of the arguments are there already, made here or before.
        result = func(*args, **(kwargs or {}))
        given = {entry.untyped_storage()._cdata for entry in tree_leaves((args, kwargs)) if _is_tensor(entry)}
        for entry in filter(_is_tensor, tree_leaves(result)):
            storage = entry.untyped_storage()
            if storage._cdata not in given and storage._cdata not in self._known:
                self._hold(storage)
        self.peak = max(self.peak, self.now)
        return result

    def _hold(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self.now += size
        weakref.finalize(storage, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def _is_tensor(entry: Any) -> bool:
    return isinstance(entry, torch.Tensor)


def pairs(rows: int) -> int:
    """Query and key pairs of causal attention."""
    return rows * (rows + 1) // 2


def _flash(query: Any, key: Any, _value: Any, _dropout: float = 0.0, causal: bool = False, **_: Any) -> int:
    """Scores and output; the kernel leaves out the pairs that a causal mask hides."""
    batch, heads, rows, size = query
    return 2 * 2 * batch * heads * size * (pairs(rows) if causal else rows * key[2])


def _flash_backward(
    _grad: Any, query: Any, key: Any, value: Any, _output: Any, _lse: Any, dropout: float, causal: bool, **_: Any
) -> int:
    """Scores once more, then four products."""
    return _flash(query, key, value, dropout, causal) * 5 // 2


FORMULAS = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _flash,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _flash_backward,
}


def counted(call: Callable[[], Any]) -> dict[str, float]:
    """Peak GiB of what ``call`` makes, above what was there before, and its FLOPs in 10^12."""
    flops, held = FlopCounterMode(display=False, custom_mapping=FORMULAS), _Held()
    with flops, held:
        call()
    return {"peak_gib": held.peak / 2**30, "tflop": flops.get_total_flops() / 1e12}
