"""Hidden states to disk on a CPU engine: vLLM's own connector with its CUDA copy replaced.

The stock `ExampleHiddenStatesConnector` copies through a CUDA stream into pinned memory and so kills a CPU engine at
its first request. Only that one method is replaced. It uses private names of the parent, so it is pinned to one version
of vLLM: another version is refused when the engine starts instead of writing wrong states.

Selected by the launch plan (`engines.vllm.with_capture`) with this module's name as `kv_connector_module_path`.
"""

from __future__ import annotations

import fcntl
import os
from functools import partial
from typing import Any

import torch
import vllm
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import (
    ExampleHiddenStatesConnector,
    extract_from_kv_cache,
)

TESTED = "0.32.0"
"""The version of vLLM whose private names are used here."""


class _Copied:
    """Stands where the parent keeps a CUDA event: on the CPU a copy is complete when it returns."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        pass


class CaptureConnector(ExampleHiddenStatesConnector):
    """Writes one safetensors file a request: ``token_ids`` [T] and ``hidden_states`` [T, slots, hidden]."""

    def __init__(self, *arguments: Any, **values: Any) -> None:
        if vllm.__version__.split("+")[0] != TESTED:
            raise RuntimeError(f"The capture connector is made for vLLM {TESTED}, this is {vllm.__version__}.")
        super().__init__(*arguments, **values)

    def _submit_async_write(self, pending: Any) -> None:
        """Copy the states of a finished request out of the cache, and hand them to a writer thread.

        The lock file was made and locked by the parent before the client could learn the path; the writer thread
        releases it after the file is written.
        """
        if not self._is_tp_rank_zero:
            return
        size = self._block_size
        blocks = torch.tensor(pending.block_ids, dtype=torch.long)
        slots = (torch.arange(size).reshape(1, size) + blocks.reshape(-1, 1) * size).flatten()
        tokens = pending.token_ids.shape[0]
        # A copy: the blocks are freed and written over as soon as the request is reported as finished.
        states = extract_from_kv_cache(self._kv_cache, slots[:tokens], tokens).contiguous().clone()

        os.makedirs(os.path.dirname(pending.filename), exist_ok=True)
        descriptor = self._lock_fds.pop(pending.req_id, None)
        if descriptor is None and self.use_lock:
            descriptor = os.open(pending.filename + ".lock", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o644)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        copied = _Copied()
        tensors = {"hidden_states": states, "token_ids": pending.token_ids.clone()}
        future = self._executor.submit(self._write_tensors, tensors, copied, pending.filename, descriptor)
        self._req_copy_events[pending.req_id] = copied
        self._req_futures[pending.req_id] = future
        future.add_done_callback(partial(self._on_write_done, pending.req_id))
