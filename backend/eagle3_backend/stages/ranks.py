"""Several processes that train one drafter: each takes its share of a step, and sums are made of all of them.

The processes find each other through torchrun's environment variables and nothing else (RANK, LOCAL_RANK, WORLD_SIZE,
MASTER_ADDR, MASTER_PORT). Where none are set, the stage's own process becomes the first rank and starts the others on
its host; so `torchrun -m eagle3_backend.stages RUN_DIRECTORY` works as well.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, distributed

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.stages.context import StageContext
from eagle3_backend.states import EXIT_FINDING

GRACE = 20.0
"""Seconds in which the first rank may tell by itself what went wrong, after another rank failed; then in which others
may end after it."""


@dataclass(frozen=True)
class Ranks:
    """This process among ``size`` of them; ``rank`` 0 writes what is written, and one process alone is rank 0 of 1."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009

    @property
    def first(self) -> bool:
        return self.rank == 0

    def sum(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks; every rank calls it with the same shapes."""
        if self.size > 1:
            for work in [distributed.all_reduce(tensor, async_op=True) for tensor in tensors]:
                work.wait()

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Replace each tensor by that of the first rank."""
        if self.size > 1:
            for tensor in tensors:
                distributed.broadcast(tensor, src=0)

    def any(self, flag: bool) -> bool:
        """Whether it is true on one of the ranks."""
        if self.size == 1:
            return flag
        found = torch.tensor(float(flag), device=self.device)
        self.sum([found])
        return bool(found)

    def place(self, value: Any) -> Any:
        """A tensor, or a dataclass of tensors and of such, on this rank's device."""
        if isinstance(value, Tensor):
            return value.to(self.device)
        if not hasattr(value, "__dataclass_fields__") or self.device.type == "cpu":
            return value
        return replace(value, **{entry.name: self.place(getattr(value, entry.name)) for entry in fields(value)})


def use_all_cores(processes: int = 1) -> None:
    """One thread for each core that this process may use, or its share of them: sums depend on the number.

    OMP_NUM_THREADS, where somebody has set it, stands.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // processes))


def usual_processes() -> int:
    """One for each GPU, and one on a host without."""
    return max(1, torch.cuda.device_count())


def too_many(processes: int, gpus: int) -> Finding | None:
    """What is wrong where more processes are asked for than there are GPUs: two cannot share one."""
    if processes <= gpus:
        return None
    return error(
        "processes_exceed_gpus",
        f"{processes} processes were asked for, each on a GPU of its own, and {gpus} are to be had.",
        path="stages.train.processes",
        expected=f"<= {gpus}",
        actual=processes,
        fix="Lower train.processes, or leave it at 0 for one on each GPU.",
    )


@contextmanager
def joined(context: StageContext, processes: int) -> Iterator[Ranks]:
    """This process among the ranks; ``processes`` is how many there shall be where torchrun has not said it.

    Raises FindingError where they are more than the GPUs.
    """
    wanted = int(os.environ.get("WORLD_SIZE", processes or usual_processes()))
    rank, local = (int(os.environ.get(name, "0")) for name in ("RANK", "LOCAL_RANK"))
    device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    if device.type == "cuda" and (crowded := too_many(processes, torch.cuda.device_count())):
        raise FindingError(crowded)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if wanted == 1:
        yield Ranks(device=device)
        return
    others = None if "RANK" in os.environ else Others(context, wanted)
    variables = {name: os.environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT")}
    address = others.address if others else f"tcp://{variables['MASTER_ADDR']}:{variables['MASTER_PORT']}"
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        distributed.init_process_group(backend, init_method=address, rank=rank, world_size=wanted)
        yield Ranks(rank, wanted, device)
        distributed.destroy_process_group()
    except BaseException:
        if others:
            others.end(seconds=0.0)
        raise
    if others:
        others.end(GRACE)


class Others:
    """The ranks after the first, as processes of this one; when one of them fails, so does the training."""

    def __init__(self, context: StageContext, size: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self._context = context
        self._ending = threading.Event()
        self._processes = [self._start(rank, size, port) for rank in range(1, size)]
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()

    def _start(self, rank: int, size: int, port: int) -> subprocess.Popen[bytes]:
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
        environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", **{key: str(each) for key, each in variables.items()}}
        argv = [sys.executable, "-m", "eagle3_backend.stages", str(self._context.run_directory)]
        return subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL)

    def _watch(self) -> None:
        """A rank that failed leaves the first one waiting for it, on a GPU for minutes: say so and leave."""
        while not self._ending.wait(0.5):
            failed = [rank for rank, process in enumerate(self._processes, 1) if process.poll() == EXIT_FINDING]
            failed += [rank for rank, process in enumerate(self._processes, 1) if (process.returncode or 0) < 0]
            if failed and not self._ending.wait(GRACE):
                self._context.report(_failed(failed[0]))
                for process in self._processes:
                    process.kill()
                os._exit(EXIT_FINDING)
                return

    def end(self, seconds: float) -> None:
        """Wait for the other ranks that long, then end them."""
        self._ending.set()
        deadline = time.monotonic() + seconds
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _failed(rank: int) -> Finding:
    return error(
        "rank_failed",
        f"Process {rank} of the training ended; the others wait for it in vain.",
        path=f"rank {rank}",
        fix=f"The log and journal-{rank}.jsonl in the run's folder say why. Then resume.",
    )
