"""First contact with a host: its workspace, an interpreter for the agent, and the payload."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.profile import Environment
from eagle3_backend.remote.link import Completed, Link, shell
from eagle3_backend.remote.payload import Payload, deliver

ON_PATH = ("python3", "python3.13", "python3.12", "python3.11", "python3.10", "python3.9")
"""Interpreters that are tried where the profile names none."""


_PROBE = r"""
umask 077
say() { printf 'eagle3\t%s\t%s\n' "$1" "$2"; }
w=$1; hash=$2; shift 2
case $w in "~") w=$HOME ;; "~/"*) w=$HOME/${w#"~/"} ;; esac
if ! mkdir -p "$w/.eagle3/payload" 2>/dev/null || ! w=$(cd "$w" && pwd -P); then
    say unwritable "$w"; exit 0
fi
say workspace "$w"
if [ -d "$w/.eagle3/payload/$hash" ]; then say payload "$hash"; fi
for python in "$@" "$w/.eagle3/agent-env/bin/python"; do
    case $python in "~/"*) python=$HOME/${python#"~/"} ;; esac
    path=$(command -v "$python" 2>/dev/null) || continue
    if "$path" -c 'import sys, psutil; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
        say python "$path"; exit 0
    fi
    say unfit "$path"
done
"""
"""$1 workspace, $2 payload folder name, then interpreters in order of preference; lines of ours are marked, because
a login shell's start-up files may print as well."""

_BUILD = r"""
umask 077
env=$1/.eagle3/agent-env; shift
if command -v uv >/dev/null 2>&1; then
    uv venv -q --clear --python '>=3.9' "$env" && uv pip install -q --python "$env/bin/python" 'psutil>=5.9' && exit 0
fi
for python in "$@"; do
    command -v "$python" >/dev/null 2>&1 || continue
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || continue
    "$python" -m venv --clear "$env" && "$env/bin/python" -m pip install -q 'psutil>=5.9' && exit 0
done
exit 1
"""

BUILD_TIMEOUT = 300.0
"""Seconds for the agent's environment; the one thing that is built before a supervisor can watch over it."""


@dataclass(frozen=True)
class Foothold:
    """What the agent stands on: the absolute workspace and the interpreter that has psutil."""

    workspace: str
    python: str


def candidates(address: str, environments: Mapping[str, Environment]) -> tuple[str, ...]:
    """Interpreters for the agent in order of preference; one that the profile names for the host stands alone."""
    if address == "embedded":
        return (sys.executable,)
    host = environments.get("host")
    if host and host.python:
        return (host.python,)
    train = environments.get("train")
    return ((train.python,) if train and train.python else ()) + ON_PATH


async def prepare(link: Link, workspace: str, pythons: Sequence[str], payload: Payload) -> Foothold:
    """Find or make what the agent needs, and bring the payload there if it is not there yet.

    Raises LinkLost, FindingError: `host_shell_failed`, `workspace_unwritable`, `host_python_missing`,
    `payload_refused`.
    """
    found = await _probe(link, workspace, pythons, payload)
    root = found["workspace"]
    if "python" not in found:
        # An interpreter that the profile names is not second-guessed.
        built = await link.run(shell(_BUILD, root, *ON_PATH), timeout=BUILD_TIMEOUT) if len(pythons) > 1 else None
        if built is not None and built.exit_status == 0:
            found = await _probe(link, workspace, pythons, payload)
        if "python" not in found:
            raise FindingError(_python_missing(pythons, found.get("unfit", ""), built))
    if "payload" not in found:
        await deliver(link, payload, root, found["python"])
    return Foothold(root, found["python"])


async def _probe(link: Link, workspace: str, pythons: Sequence[str], payload: Payload) -> dict[str, str]:
    done = await link.run(shell(_PROBE, workspace, payload.sha256[:12], *pythons), timeout=60.0)
    found: dict[str, str] = {}
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        mark, _, rest = line.partition("\t")
        if mark == "eagle3":
            key, _, value = rest.partition("\t")
            found[key] = f"{found[key]}, {value}" if key in found else value
    if not found:
        raise FindingError(
            error(
                "host_shell_failed",
                f"The host runs no shell commands (exit {done.exit_status}): {done.complaint() or 'it said nothing'}",
                fix="Run `true` there by the same way. A transport runs the words behind it, as docker exec does.",
            )
        )
    if "workspace" not in found:
        where = found.get("unwritable", workspace)
        raise FindingError(
            error(
                "workspace_unwritable",
                f"The workspace {where} cannot be made or written on the host. {done.complaint()}".strip(),
                path="host.workspace",
                actual=where,
                fix="Name a folder on a durable disk that the login may write to.",
            )
        )
    return found


def _python_missing(pythons: Sequence[str], unfit: str, built: Completed | None) -> Finding:
    reason = f"Found, but older than 3.9 or without psutil: {unfit}." if unfit else "None was found."
    tried = f" Building one failed: {built.complaint()}" if built else ""
    return error(
        "host_python_missing",
        f"The host has no Python 3.9 or newer with psutil for the agent. {reason}{tried}",
        path="environments.host.python",
        expected="Python >= 3.9 with psutil",
        actual=unfit or None,
        fix=f"Install psutil there ({pythons[0]} -m pip install psutil), or name another interpreter: "
        '[environments.host] python = "/opt/venv/bin/python".',
    )
