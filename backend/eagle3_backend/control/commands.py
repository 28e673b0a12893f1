"""What a face may ask for: small frozen requests, each answered by a future.

Every answer is plain: None, a dataclass of `snapshot`, or a dict of JSON values. A refused or failed request raises
`FindingError`. Cancelling a future, or closing a face, never touches a run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Open:
    """Load a profile, reach its host and keep both in the snapshot. Answer: None, once the host's stages are known.

    The link, and tunnels with it, stay as they are when the same profile is opened again with the same host.

    Raises FindingError when the profile is faulty or the first try to reach the host fails; after the latter the
    link goes on trying, unless it was refused for its keys. ``smoke`` shrinks every stage to 10 samples.
    """

    profile: Path
    settings: tuple[str, ...] = ()
    smoke: bool = False


@dataclass(frozen=True)
class Start:
    """Start the chain of all stages that are not fresh, up to ``through``. Answer: `snapshot.Started`.

    ``only`` runs that one stage alone; ``restart`` sets its old artifact aside; ``accept`` names overruled codes;
    ``also`` are other last stages of the same chain, each with all that it needs; ``asked`` is when the operator gave
    the word, monotonic seconds.
    """

    through: str
    only: bool = False
    restart: bool = False
    accept: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    asked: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True)
class Stop:
    """Ask the running attempt of ``stage`` to save and leave. Answer: the run's state. Raises FindingError.

    ``run`` names a run of that stage under other parameters, such as a second endpoint; empty: the planned one.
    ``kill`` ends every process of it at once: what is not saved yet is lost.
    """

    stage: str
    run: str = ""
    kill: bool = False


@dataclass(frozen=True)
class Swap:
    """Serve with other settings in the place of ``run``: the host has that one end and starts the new one by itself.

    ``settings`` ("serve.layout=nested", "serve.engine=sglang", "export.adopt=/drafter") count on top of those that the
    profile was opened with, from now on. What stands against the new launch, but for memory that the old one holds, is
    found before anything is stopped. ``run`` empty: the one that is at work, if it is one alone beside the new one.
    Answer: `Started`. Raises FindingError. ``asked`` as for `Start`.
    """

    settings: tuple[str, ...] = ()
    run: str = ""
    accept: tuple[str, ...] = ()
    asked: float = field(default_factory=time.monotonic, compare=False)


@dataclass(frozen=True)
class Resume:
    """Next attempt of ``stage`` from its newest whole checkpoint, then the rest of the chain. Answer: `Started`."""

    stage: str
    through: str = ""
    accept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Await:
    """Wait for the chain up to ``through``. Answer: `snapshot.Outcome`, when its last stage is done or it has stopped.

    A lost link is waited out: only the host says that a run has ended.
    """

    through: str


@dataclass(frozen=True)
class FollowLog:
    """Show the log of this stage's newest attempt in the snapshot, or of an earlier one. Answer: None."""

    stage: str
    attempt: int = 0


@dataclass(frozen=True)
class ReconnectNow:
    """Try the link at once instead of at the end of the back-off. Answer: None."""


@dataclass(frozen=True)
class TrustHostKey:
    """Accept the unknown host key that the snapshot shows, once or for good. Answer: None."""

    save: bool


@dataclass(frozen=True)
class Status:
    """Answer: {"campaign", "profile", "workspace", "host": {...}, "stages": [...], "services": [...], "findings"}.

    ``services`` are the endpoints at work: {"run", "attempt", "state", "planned"}.
    """


@dataclass(frozen=True)
class Logs:
    """A stretch of a stage's log, read from the host. ``attempt`` 0 is the newest; ``offset`` None reads the tail.

    Answer: {"stage", "run", "attempt", "generation", "offset", "next_offset", "size", "data", "lines", "partial"}:
    ``data`` are the raw bytes (offset + len(data) is where a byte-exact copy goes on), ``lines`` are whole display
    lines, ``partial`` the unfinished one behind them, ``next_offset`` where the next call for lines goes on.
    """

    stage: str
    attempt: int = 0
    offset: int | None = None
    length: int = 64 * 1024


@dataclass(frozen=True)
class ReadLog:
    """Lines of a stored log. Answer: `runs.logreader.LogBlock`. Raises FindingError.

    ``count`` lines that end at ``at`` (None: the end), or with ``ahead`` begin there; with ``match`` only lines that
    match the regular expression, however far away. ``fetch`` first brings what lies there from the host.
    """

    stage: str
    attempt: int = 0
    at: int | None = None
    ahead: bool = False
    count: int = 400
    match: str = ""
    fetch: bool = False


@dataclass(frozen=True)
class FindLogTime:
    """Where the first line at or after a time of day begins ("14:02"). Answer: its offset. Raises FindingError."""

    stage: str
    attempt: int
    clock: str


@dataclass(frozen=True)
class Metrics:
    """Stored series of a stage's attempt. ``names`` empty: all; ``columns`` 0: every point, else two points a column.

    ``run`` names another run than the campaign's, with ``attempt``. Answer: {"stage", "run", "attempt", "series":
    {name: [[step, value or null], ...]}, "clock": [[step, wall time], ...]}, the clock in at most 500 places.
    """

    stage: str
    attempt: int = 0
    names: tuple[str, ...] = ()
    columns: int = 0
    run: str = ""


@dataclass(frozen=True)
class Doctor:
    """Check link, host and workspace. Answer: {"checks": [{"area", "name", "level", "message", "fix"}, ...]}.

    ``level`` is ok, warn or fail.
    """


@dataclass(frozen=True)
class DryRun:
    """What each stage up to ``through``, and to the stages of ``also``, would execute.

    Answer: {"script", "stages": [...], "launches", "fresh", "findings"}; ``launches`` holds for each stage that starts
    an engine with a drafter {"engine", "line", "reasons": [{"name", "value", "reason"}]}.
    """

    through: str
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Forecast:
    """Time, disk and money of a chain, as `Start` has it. Answer: {"stages": [...], "total": {...}}."""

    through: str
    also: tuple[str, ...] = ()


NEW_KEY = ("ssh_host_key_changed", "ssh_host_key_unknown")
"""How a replaced machine is met: under the old port its key is another one, under a new port nothing is known of it."""


@dataclass(frozen=True)
class Rebind:
    """The host was replaced: trust its new key and take over the attempts of its workspace. Answer: {"adopted", ...}.

    ``host`` is the host's name as typed by the operator; it must be the open profile's. Without ``confirm`` the answer
    only tells what would be replaced.
    """

    host: str
    confirm: bool = False


@dataclass(frozen=True)
class Hosts:
    """Known hosts, whether a profile is open or not, and names of `~/.ssh/config` that were not used yet.

    Answer: {"hosts": [{"name", "address", "workspaces", "profile", ...}], "candidates": [name, ...]}; ``profile`` is
    the one that was opened there last. With ``watch`` the known ones are linked to from now on, and stand in the
    snapshot's ``others``.
    """

    watch: bool = False


@dataclass(frozen=True)
class Attempts:
    """Every attempt of the campaign that its host knows, of other parameters too, newest first.

    Answer: {"attempts": [{"stage", "run", "attempt", "fingerprint", "state", "started"}, ...]}.
    """


@dataclass(frozen=True)
class Specification:
    """What an attempt was started with. Answer: its spec.json as an object. Raises FindingError."""

    run: str
    attempt: int


@dataclass(frozen=True)
class Inspect:
    """What a model directory on a host holds, from its config and the headers of its weights.

    ``host`` is a known one (`Hosts`), which no profile need be open for; empty is the open profile's. A relative path
    begins in the host's workspace. Answer: `drafter.inspection.Inspection.to_json`, with what is wrong with the files.
    """

    path: str
    host: str = ""


@dataclass(frozen=True)
class EngineOptions:
    """The options of the profile's environment ``engine`` (vllm, sglang), as installed on its host.

    Answer: {"engine", "python", "identity", "version", "packaged", "cached", "flags", "fields", "findings"}; options as
    `engines.options.Option`. Raises FindingError where the engine is not there.
    """

    engine: str


@dataclass(frozen=True)
class Artifact:
    """What a stage made. Answer: {"path", "kind", "fingerprint", "bytes", "made_by", "files": [{"path", "bytes",
    "sha256"}, ...], "file_count"}, or None while nothing whole is there.
    """

    stage: str


@dataclass(frozen=True)
class Artifacts:
    """What lies in the campaign's folder on the host: planned or not, whole or not, set aside by a restart or not.

    Answer: {"artifacts": [{"path", "stage", "name", "fingerprint", "planned", "aside", "whole", "bytes", "run",
    "attempt", "modified", "needed_by"}, ...], "left_off"}, in the order of the stages, the planned one first;
    ``needed_by`` are the stages that would lose an input with it.
    """


@dataclass(frozen=True)
class DeleteArtifact:
    """Delete one of them for good. Answer: {"path", "deleted", "bytes"}; ``deleted`` is false for what is gone.

    Raises FindingError: `artifact_in_use` while a run writes or reads it, `artifact_path_invalid`, `artifact_is_link`,
    `artifact_unknown`, `artifact_adopted`.
    """

    path: str


@dataclass(frozen=True)
class Processes:
    """Who uses the host. Answer: {"processes": [{"pid", "user", "command", "cpu_percent", "memory", "gpus", "run",
    "attempt"}, ...]}.
    """


@dataclass(frozen=True)
class Locks:
    """Which locks of our user are held on the host, of any workspace, and by which living processes.

    Answer: {"locks": [{"kind" ("artifact", "gpu", "stop", "place"), "thing", "run", "user", "since" (wall time
    of the host), "seconds", "orphaned" (its supervisor is gone), "processes": [{"pid", "command"}]}, ...], "problem"};
    ``thing`` is empty and ``run``, ``user``, ``since``, ``seconds`` are None where a lock's file does not tell them.
    Without processes a lock is held by somebody whom the agent cannot see. ``problem`` is None or the finding that
    says which locks are not told: `locks_partly_seen`, `locks_unreadable`.
    """


@dataclass(frozen=True)
class Orphans:
    """Attempts in the workspace, of any campaign, whose processes work on without a supervisor.

    Answer: {"orphans": [{"stage", "run", "attempt", "campaign", "remark", "processes": [{"pid", "command"}]}, ...]}.
    """


@dataclass(frozen=True)
class EndOrphan:
    """End the processes of such an attempt, by the steps of a stop. Answer: None. Raises FindingError."""

    run: str
    attempt: int


@dataclass(frozen=True)
class AddHost:
    """Write a profile like the open one for another host, beside the user's own. Answer: its path. Raises FindingError.

    ``name`` is a host name or a name of `~/.ssh/config`.
    """

    name: str
    folder: Path


@dataclass(frozen=True)
class Results:
    """Every whole artifact of a stage in this campaign, of other parameters too: the planned one, then the newest.

    Answer: {"artifacts": [{"fingerprint", "path", "planned", "run", "attempt", "ended", "inputs", "summary"}, ...]}.
    """

    stage: str


@dataclass(frozen=True)
class WriteProfile:
    """Write a profile as a whole; no profile need be open. Answer: its path. Raises FindingError.

    ``before`` is the text that the change began with, empty where there must be no file yet: what somebody else has
    written meanwhile is not overwritten.
    """

    path: Path
    text: str
    before: str


@dataclass(frozen=True)
class Shell:
    """A shell where ``stage`` runs, for a person's own terminal, also without a link. Answer: {"argv", "directory"}."""

    stage: str = ""


@dataclass(frozen=True)
class Endpoint:
    """Tunnel to the running ``serve``. Answer: {"base_url", "api_key", "port", "model", "host_port", "run"}.

    ``run`` names another endpoint of the campaign (`Services`); empty is the planned one.
    """

    run: str = ""


@dataclass(frozen=True)
class Services:
    """Every endpoint of the campaign that is at work, of other parameters too, the planned one first.

    Answer: {"services": [{"run", "attempt", "state", "planned", "ready", "engine", "layout", "depth", "drafter",
    "host_port", "launch", "base_url", "api_key", "model"}, ...]}; with ``tunnels`` off, and until one is ready, without
    the last three. ``launch`` is how long its start took (`engines.startup`).
    """

    tunnels: bool = True


@dataclass(frozen=True)
class Diagnose:
    """Replay what a running server answered, with a drafter's directory and its target's, both on the host.

    ``record`` is {"depth", "dtype" (None: not told), "requests": [{"id", "prompt_tokens", "tokens", "accepted"}]}.
    Answer, once the run on the host has ended: {"verdict", "equal_share", "steps", "replay", "controls", "run",
    "report", "findings"}. Raises FindingError.
    """

    record: dict[str, Any]
    drafter: str
    target: str


@dataclass(frozen=True)
class Tunnel:
    """A port of this machine that reaches ``port`` of the host's loopback. Answer: {"port"}. Raises FindingError."""

    port: int


Command = (
    Open
    | Start
    | Stop
    | Swap
    | Resume
    | Await
    | FollowLog
    | ReconnectNow
    | TrustHostKey
    | Status
    | Logs
    | ReadLog
    | FindLogTime
    | Metrics
    | Doctor
    | DryRun
    | Forecast
    | Rebind
    | Hosts
    | Attempts
    | Specification
    | Inspect
    | EngineOptions
    | Artifact
    | Artifacts
    | DeleteArtifact
    | Processes
    | Locks
    | Orphans
    | EndOrphan
    | AddHost
    | Results
    | WriteProfile
    | Endpoint
    | Services
    | Diagnose
    | Shell
    | Tunnel
)
