"""What is checked: one command of one engine, with what is known of drafter, target and host."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Tuple

from eagle3_backend.drafter.capabilities import CURRENT, TITLES, Version
from eagle3_backend.drafter.inventory import Inventory
from eagle3_backend.drafter.target import Target
from eagle3_backend.engines.plan import Plan, options_of

TENSOR_PARALLEL = {"vllm": ("--tensor-parallel-size", "-tp"), "sglang": ("--tp-size", "--tensor-parallel-size", "--tp")}
CONTEXT = {"vllm": ("--max-model-len",), "sglang": ("--context-length",)}
SPECULATIVE = "--speculative-config"
SINGLE = {"--spec-method": "method", "--spec-model": "model", "--spec-tokens": "num_speculative_tokens"}
"""Flags of vLLM that write one key of the speculative config; giving a key in both ways is refused."""
CAPTURE = "extract_hidden_states"


@dataclass(frozen=True)
class Host:
    """What is known of the machine; None or empty is not known. ``gpus`` are mappings with ``index``, ``name`` and
    bytes ``total`` and ``free``; ``ports`` are taken ports with their owner in words."""

    gpus: Tuple[Mapping[str, Any], ...] = ()
    nvlink: Optional[bool] = None
    iommu_translates: Optional[bool] = None
    ports: Mapping[int, str] = field(default_factory=dict)
    shared_memory_free: Optional[int] = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Host:
        """From facts as a host tells them: sizes in MiB, the topology matrix and the kernel's command line."""
        gpus = tuple(_gpu(place, entry) for place, entry in enumerate(facts.get("gpus") or ()))
        topology = [str(link) for link in (facts.get("topology") or {}).values()]
        nvlink = facts.get("nvlink")
        if nvlink is None and topology:
            nvlink = all(link.startswith("NV") for link in topology)
        return cls(
            gpus,
            nvlink,
            _iommu(facts),
            {int(port): str(owner) for port, owner in (facts.get("ports") or {}).items()},
            facts.get("shm_free_bytes"),
        )


def _gpu(place: int, entry: Mapping[str, Any]) -> Dict[str, Any]:
    total = entry.get("memory_total", (entry.get("memory_mib") or 0) << 20) or None
    used = entry.get("memory_used")
    free = entry.get("memory_free", total - used if total is not None and used is not None else None)
    return {"index": entry.get("index", place), "name": entry.get("name", ""), "total": total, "free": free}


def _iommu(facts: Mapping[str, Any]) -> Optional[bool]:
    """Whether an IOMMU translates addresses between devices, as one does unless the kernel is told otherwise."""
    words = str(facts.get("kernel_cmdline", "")).split()
    if {"iommu=pt", "iommu=off", "amd_iommu=off", "intel_iommu=off", "iommu.passthrough=1"} & set(words):
        return False
    groups = facts.get("iommu_groups")
    return None if groups is None else bool(groups)


@dataclass(frozen=True)
class Launch:
    """A command of an engine by its flags.

    ``options`` maps a flag to its value, True for a bare flag, and JSON values read. ``drafter`` and ``target`` are the
    config.json of each; ``inventory`` None: only the drafter's config is known. ``version`` empty is the current
    release. ``last_is_teacher`` says of a capture that its last layer is what the drafter is to predict.
    """

    engine: str
    options: Mapping[str, Any]
    env: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    drafter: Optional[Mapping[str, Any]] = None
    target: Optional[Mapping[str, Any]] = None
    inventory: Optional[Inventory] = None
    host: Optional[Host] = None
    device: str = "cuda"
    last_is_teacher: bool = True

    @classmethod
    def of(cls, plan: Plan, **facts: Any) -> Launch:
        """From a launch plan (`engines.plan`); ``facts`` are further fields."""
        return cls(plan["engine"], options_of(plan["argv"]), plan["env"], device=plan["device"], **facts)

    @property
    def release(self) -> str:
        """The engine and its release in words."""
        return f"{TITLES[self.engine]} {self.number}"

    @property
    def number(self) -> Version:
        return Version(self.version or CURRENT[self.engine])

    def option(self, *names: str) -> Any:
        """The value of the first of these flags that is there, else None."""
        return next((self.options[name] for name in names if name in self.options), None)

    @property
    def speculative(self) -> Optional[Mapping[str, Any]]:
        """vLLM's speculative config with what flags of their own add to it, None without any."""
        if self.engine != "vllm":
            return None
        value = self.options.get(SPECULATIVE)
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                return None
        single = {key: self.options[flag] for flag, key in SINGLE.items() if flag in self.options}
        if value is None and single:
            value = {}
        return {**value, **single} if isinstance(value, Mapping) else None

    @property
    def capture(self) -> bool:
        """Whether the server is there to give hidden states out."""
        return bool(self.speculative) and (self.speculative or {}).get("method") == CAPTURE

    @property
    def drafts(self) -> bool:
        """Whether a drafter is asked for."""
        if self.engine == "vllm":
            return self.speculative is not None and not self.capture
        return any(name.startswith("--speculative-") for name in self.options)

    @property
    def tensor_parallel(self) -> int:
        return int(self.option(*TENSOR_PARALLEL[self.engine]) or 1)

    @property
    def text(self) -> Optional[Target]:
        """The target's facts, None where it is not known."""
        return Target.of(self.target) if self.target else None

    @property
    def context(self) -> Optional[int]:
        """The longest sequence that will be served: as the command says, else the target's own."""
        value = self.option(*CONTEXT[self.engine])
        if isinstance(value, int) and value > 0:
            return value
        return self.text.max_position_embeddings if self.text else None
