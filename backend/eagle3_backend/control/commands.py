"""What a face may ask for: small frozen requests, each answered by a future."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Open:
    """Load a profile, reach its host and keep both in the snapshot. Answer: None."""

    profile: Path
    settings: tuple[str, ...] = ()
    smoke: bool = False


@dataclass(frozen=True)
class Start:
    """Start the chain of all stages that are not fresh, up to ``through``. Answer: `snapshot.Started`.

    ``only`` runs that one stage alone; ``restart`` sets its old artifact aside; ``accept`` names overruled finding codes.
    """

    through: str
    only: bool = False
    restart: bool = False
    accept: tuple[str, ...] = ()


@dataclass(frozen=True)
class Stop:
    """Ask the running attempt of ``stage`` to save and leave. Answer: the run's state. Raises FindingError."""

    stage: str


@dataclass(frozen=True)
class Resume:
    """Next attempt of ``stage`` from its newest whole checkpoint, then the rest of the chain. Answer: `Started`."""

    stage: str
    through: str = ""


@dataclass(frozen=True)
class FollowLog:
    """Show the log of this stage's newest attempt in the snapshot. Answer: None."""

    stage: str


@dataclass(frozen=True)
class ReconnectNow:
    """Try the link at once instead of at the end of the back-off. Answer: None."""


@dataclass(frozen=True)
class TrustHostKey:
    """Accept the unknown host key that the snapshot shows, once or for good. Answer: None."""

    save: bool


Command = Open | Start | Stop | Resume | FollowLog | ReconnectNow | TrustHostKey
