"""What a face may know: immutable pictures of hosts, stages, series and logs, newest wins."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from eagle3_backend.findings import Finding
from eagle3_backend.runs.loglines import LogLine
from eagle3_backend.states import LinkState, RunState

ALERT = "alert"
"""Kind of an event for which a person is called; its data has `alert`, what it is, and `quiet`, whether it is night."""


@dataclass(frozen=True)
class Gpu:
    """One GPU: utilisation in percent, memory in bytes, temperature in Celsius, power in watts; None is unknown."""

    index: int
    name: str
    utilisation: float | None
    memory_used: int | None
    memory_total: int | None
    temperature: float | None
    power: float | None
    uuid: str | None = None


@dataclass(frozen=True)
class Machine:
    """Gauges of a host: percent, bytes, and the host's load average over one minute."""

    cpu_percent: float | None = None
    cpu_count: int | None = None
    load: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    disk_free: int | None = None
    disk_total: int | None = None
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True)
class HostView:
    """The link to a host. ``since`` and ``data_at`` are laptop monotonic seconds; ``latency`` and ``skew`` seconds.

    ``agent`` says what answers there: protocol and interpreter.
    """

    name: str
    link: LinkState = LinkState.OFFLINE
    since: float = 0.0
    data_at: float | None = None
    latency: float | None = None
    skew: float | None = None
    attempt: int = 0
    retry_at: float | None = None
    machine: Machine = Machine()
    offered_key: str = ""
    problem: Finding | None = None
    agent: str = ""


@dataclass(frozen=True)
class StageView:
    """One stage of the campaign.

    ``state`` is the run's; ``fresh`` says the artifact is there and whole; ``outdated_by`` names what changed above;
    ``remark`` is one line of evidence ("exit 137, SIGKILL", "host rebooted"). Durations in seconds of the host's clock.
    A state from before the link was lost is ``unknown`` with ``last_state`` and its laptop monotonic time ``as_of``.
    ``metrics`` holds the newest value of each series, ``launch`` how long a service's start took (`engines.startup`,
    empty until it is ready). ``needs`` are the stages that it stands on, itself last.
    """

    name: str
    title: str
    state: RunState
    fresh: bool = False
    outdated_by: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    run: str = ""
    attempt: int = 0
    done: float | None = None
    total: float | None = None
    unit: str = ""
    rate: float | None = None
    eta: float | None = None
    elapsed: float | None = None
    heartbeat_age: float | None = None
    remark: str = ""
    findings: tuple[Finding, ...] = ()
    summary: dict[str, Any] = field(default_factory=dict)
    as_of: float | None = None
    last_state: RunState | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    output: str = ""
    needs: tuple[str, ...] = ()
    launch: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ServiceView:
    """An endpoint of the campaign that is at work; ``planned`` when its parameters are those of the open profile."""

    run: str
    attempt: int
    state: RunState
    planned: bool = False


@dataclass(frozen=True)
class LogView:
    """The tail of a stage's log, decoded and split, newest last; remote text with its colours, never markup.

    ``generation`` is one life of the log file on its host: with another one, places in the log mean something else.
    """

    stage: str = ""
    attempt: int = 0
    bytes: int = 0
    lines: tuple[LogLine, ...] = ()
    generation: str = ""


@dataclass(frozen=True)
class Event:
    """Something that happened: wall time in seconds, where, and a severity word for its glyph.

    ``kind`` names it for programs (`state`, `checkpoint`, `artifact`, `finding`, `note`, `link`, `alert`, `webhook`);
    ``data`` is its JSON.
    """

    at: float
    source: str
    text: str
    severity: str = "info"
    kind: str = ""
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """Everything a face draws. ``series`` maps a metric name to (step, value) pairs in step order.

    ``spent_seconds`` is how long attempts of the campaign were at work; the price is that of the profile.
    ``gauges`` are the host's of the newest hour by name, as (seconds since the campaign was opened, value) pairs.
    ``others`` are the known hosts beside the one that is worked on, once somebody has asked to watch them.
    """

    version: int = 0
    campaign: str = ""
    profile: str = ""
    workspace: str = ""
    host: HostView = HostView("")
    stages: tuple[StageView, ...] = ()
    series: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    gauges: dict[str, tuple[tuple[float, float], ...]] = field(default_factory=dict)
    log: LogView = LogView()
    events: tuple[Event, ...] = ()
    findings: tuple[Finding, ...] = ()
    price_per_hour: float = 0.0
    spent_seconds: float = 0.0
    services: tuple[ServiceView, ...] = ()
    others: tuple[HostView, ...] = ()

    def stage(self, name: str) -> StageView | None:
        return next((view for view in self.stages if view.name == name), None)

    def needed(self, through: str) -> tuple[str, ...]:
        """The stages that ``through`` stands on, itself last, in pipeline order."""
        view = self.stage(through)
        if view and view.needs:
            return view.needs
        # Loaded on demand: a panel is on the screen before it knows a stage.
        from eagle3_backend.pipeline.stages import needed

        return needed(through)


@dataclass(frozen=True)
class Started:
    """What a start did: the runs of the chain in order, and the stages that were fresh already.

    ``already_running`` says that a run of the chain was active before; ``same_chain`` that what is active there leads
    to the same last stage, so that waiting for it is as good as having started it.
    """

    runs: tuple[str, ...]
    fresh: tuple[str, ...]
    already_running: bool = False
    same_chain: bool = False
    stages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a chain ended: ``stage`` is the last that was at work, ``summary`` the manifest's of ``through`` when done.

    ``reached`` is True when ``through`` itself is done; ``findings`` are the last attempt's.
    """

    through: str
    stage: str
    state: RunState
    reached: bool
    summary: dict[str, Any] = field(default_factory=dict)
    remark: str = ""
    findings: tuple[Finding, ...] = ()
    stages: dict[str, str] = field(default_factory=dict)
