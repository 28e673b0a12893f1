"""What may be done now: each rule answers with the reason why not, or with an empty string."""

from __future__ import annotations

from collections.abc import Callable

from eagle3_backend.control.snapshot import Snapshot, StageView
from eagle3_backend.states import RESUMABLE, LinkState, RunState


def active(snapshot: Snapshot) -> StageView | None:
    """The stage that is at work, the furthest one of a chain."""
    at_work = [view for view in snapshot.stages if view.state.is_active and view.state is not RunState.QUEUED]
    return at_work[-1] if at_work else None


def no_link(snapshot: Snapshot) -> str:
    link = snapshot.host.link
    if link in (LinkState.LIVE, LinkState.STALE):
        return ""
    if link is LinkState.KEY_CHANGED:
        return "the host key has changed"
    return f"the link is {link.value}; runs go on on the host"


def cannot_start(snapshot: Snapshot, stage: str = "") -> str:
    if reason := no_link(snapshot):
        return reason
    view = snapshot.stage(stage) if stage else None
    if view is not None and view.state.is_active:
        return f"{view.name} is {view.state.value} already"
    return "" if snapshot.stages else "no stages are known yet"


def cannot_stop(snapshot: Snapshot, stage: str) -> str:
    if reason := no_link(snapshot):
        return reason
    view = snapshot.stage(stage)
    if view is not None and view.state is RunState.QUEUED:
        return f"{stage} is only queued {view.remark}".rstrip()
    if view is None or not view.state.is_active:
        return f"{stage} is not running"
    return f"{stage} is stopping already" if view.state is RunState.STOPPING else ""


def cannot_kill(snapshot: Snapshot, stage: str) -> str:
    view = snapshot.stage(stage)
    stopping = view is not None and view.state is RunState.STOPPING
    return no_link(snapshot) if stopping else cannot_stop(snapshot, stage)


def cannot_resume(snapshot: Snapshot, stage: str) -> str:
    if reason := no_link(snapshot):
        return reason
    view = snapshot.stage(stage)
    if view is None or not view.attempt:
        return f"{stage} has not run yet"
    return "" if view.state in RESUMABLE else f"{stage} is {view.state.value}"


def cannot_restart(snapshot: Snapshot, stage: str) -> str:
    if reason := no_link(snapshot):
        return reason
    view = snapshot.stage(stage)
    if view is not None and view.state.is_active:
        return f"{stage} is {view.state.value}; stop it first"
    return "" if view is not None and (view.attempt or view.fresh) else f"{stage} has not run yet; start it"


def cannot_delete(snapshot: Snapshot, stage: str) -> str:
    """What of a stage is in use is the host's to say: it sees the runs of other campaigns, too."""
    return no_link(snapshot)


RULES: dict[str, Callable[[Snapshot, str], str]] = {
    "start": cannot_start,
    "stop": cannot_stop,
    "kill": cannot_kill,
    "resume": cannot_resume,
    "restart": cannot_restart,
    "delete": cannot_delete,
}
"""By key id, for the footer and for the refusals."""
