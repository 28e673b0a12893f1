"""A host for the snapshot: from its session, and from one sample of its telemetry."""

from __future__ import annotations

from typing import Any

from eagle3_backend.control.snapshot import Gpu, HostView, Machine
from eagle3_backend.remote.session import HostSession


def machine_of(telemetry: dict[str, Any]) -> Machine:
    """The gauges of one telemetry sample; what the host does not know stays None."""
    gpus = tuple(
        Gpu(**{name: gpu.get(name) for name in Gpu.__dataclass_fields__}) for gpu in telemetry.get("gpus") or ()
    )
    values = {name: telemetry.get(name) for name in Machine.__dataclass_fields__ if name != "gpus"}
    return Machine(**values, gpus=gpus)


def host_view(session: HostSession, machine: Machine, name: str = "") -> HostView:
    """A host as its session knows it."""
    hello = session.hello
    told = [f"protocol {hello.get('protocol')}", f"Python {hello.get('python')}", f"psutil {hello.get('psutil')}"]
    return HostView(
        name=name or session.name,
        link=session.state,
        since=session.since,
        data_at=session.heard_at,
        latency=session.latency,
        skew=session.skew,
        machine=machine,
        attempt=session.attempt,
        retry_at=session.retry_at,
        offered_key=session.offered.fingerprint if session.offered else "",
        problem=session.problem,
        agent=", ".join(told) if hello else "",
    )
