"""Known hosts: a small TOML file in the configuration folder, written whenever one is reached."""

from __future__ import annotations

import os
import re
import time
import tomllib
from pathlib import Path
from typing import Any

from eagle3_backend.control.campaign import Campaign, link_lost
from eagle3_backend.control.commands import NEW_KEY
from eagle3_backend.findings import FindingError, error
from eagle3_backend.profile import Host
from eagle3_backend.remote import ssh_config
from eagle3_backend.remote.link import LinkLost
from eagle3_backend.remote.session import HostSession
from eagle3_backend.remote.ssh_config import SshFiles
from eagle3_backend.shipped import whole_name

FILE = "hosts.toml"


def listed(config_dir: Path, files: SshFiles) -> dict[str, Any]:
    """The answer to `Hosts`: known ones, and names of the SSH configuration that no campaign has worked on yet."""
    hosts = known(config_dir)
    used = {host["name"] for host in hosts}
    return {"hosts": hosts, "candidates": [name for name in ssh_config.names(files) if name not in used]}


def known(config_dir: Path) -> list[dict[str, Any]]:
    """What is written, oldest acquaintance first. Raises FindingError for a torn file."""
    return [{"name": name, **values} for name, values in _read(config_dir / FILE).items()]


def remember(config_dir: Path, campaign: Campaign) -> None:
    """Write down a host that is live: its address, the machines met under it, and the workspaces used there."""
    import tomlkit

    path, session = config_dir / FILE, campaign.session
    hosts = _read(path)
    old = hosts.get(session.name, {})
    profile = campaign.profile.host
    entry = {
        "address": profile.address,
        "transport": list(profile.transport),
        "user": profile.user,
        "port": profile.port,
        "jump": profile.jump,
        "identity": profile.identity,
        "machines": sorted({*old.get("machines", ()), str(session.hello.get("host_name") or "")} - {""}),
        "workspaces": sorted({*old.get("workspaces", ()), session.workspace}),
        "profile": str(campaign.profile.path),
        "seen": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    hosts[session.name] = {name: value for name, value in entry.items() if value}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{FILE}.{os.getpid()}")
    temporary.write_text(tomlkit.dumps({"hosts": hosts}), encoding="utf-8")
    os.replace(temporary, path)


def add(profile: Path, name: str, folder: Path) -> str:
    """The answer to `AddHost`: a copy of ``profile`` whose host is ``name``; comments and everything else stay."""
    import tomlkit

    document = tomlkit.parse(profile.read_text(encoding="utf-8"))
    path = folder / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name).strip('.-') or 'host'}.toml"
    if path.exists():
        raise FindingError(
            error("profile_exists", f"There is a profile for {name} already.", path=str(path), fix="Open that one.")
        )
    host = document.setdefault("host", tomlkit.table())
    for key in ("transport", "user", "port", "jump", "identity"):
        host.pop(key, None)
    host["address"] = name
    prompts = document.get("stages", {}).get("prompts", {})
    for kind in ("files", "published"):
        if kind in prompts:
            # They are relative to their profile, and this one lies elsewhere.
            prompts[kind] = [whole_name(profile.parent, entry) for entry in prompts[kind]]
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(tomlkit.dumps(document), encoding="utf-8")
    return str(path)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8")).get("hosts", {}))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as problem:
        raise FindingError(
            error("hosts_unreadable", f"The list of hosts cannot be read: {problem}.", path=str(path))
        ) from problem


async def inspect(config_dir: Path, name: str, path: str) -> dict[str, Any]:
    """The answer to `Inspect` on a known host, over a link of its own. Raises FindingError."""
    session = HostSession(known_host(config_dir, name), {})
    try:
        await session.connect()
        return await session.request("inspect", path=path)
    except LinkLost as problem:
        raise link_lost(session) from problem
    finally:
        await session.close()


def known_host(config_dir: Path, name: str) -> Host:
    """A known host as it was reached last. Raises FindingError."""
    entries = known(config_dir)
    entry = next((entry for entry in entries if entry["name"] == name), None)
    if entry is None:
        raise FindingError(
            error(
                "host_unknown",
                f"No campaign has worked on '{name}' from this laptop yet.",
                path=name,
                expected=[entry["name"] for entry in entries],
                fix=f"Correct the path, or reach the host once: eagle3-tui --profile P hosts add {name}",
            )
        )
    try:
        kept = {key: entry[key] for key in ("address", "user", "port", "jump", "identity", "transport") if key in entry}
        return Host(**kept, workspace=entry["workspaces"][0])
    except (KeyError, IndexError, ValueError) as problem:
        raise FindingError(
            error("hosts_unreadable", f"What is written of '{name}' makes no sense: {problem}.", path=name)
        ) from problem


async def rebind(campaign: Campaign, name: str, confirm: bool, before: dict[str, Any]) -> dict[str, Any]:
    """The answer to `Rebind`; ``before`` is what was known of the host. Raises LinkLost, FindingError.

    The new key replaces the old one in known_hosts first; then the attempts of machines that are gone read as lost:
    of those that were met under this name, for other machines may be at work in a shared workspace. A laptop that met
    none but the present one takes every other machine in this campaign for gone, and the answer names them first.
    """
    session = campaign.session
    if name != session.name:
        raise FindingError(
            error(
                "confirmation_missing",
                f"The open profile works on {session.name}, not on '{name}'.",
                path="host",
                expected=session.name,
                actual=name,
            )
        )
    problem = session.problem
    another_key = problem is not None and problem.code in NEW_KEY
    answer: dict[str, Any] = {
        "host": name,
        "old_fingerprint": problem.expected if problem is not None and another_key else None,
        "new_fingerprint": problem.actual if problem is not None and another_key else None,
    }
    if confirm and another_key:
        await session.rebind()
    if not campaign.live:
        return answer
    await campaign.next_survey(look=True)
    here = str(session.hello.get("host_name"))
    owners = {f"{run['run']}/{run['attempt']}": _elsewhere(run) for run in campaign.survey.runs if _elsewhere(run)}
    met = {str(name) for name in before.get("machines", ())} - {here}
    lost = met or set(owners.values())
    answer["attempts"] = [attempt for attempt, owner in owners.items() if owner in lost]
    answer["lost"] = sorted(lost)
    if confirm and lost:
        await session.request("adopt_host", lost=sorted(lost))
        await campaign.next_survey(look=True)
        answer["adopted"] = answer["attempts"]
    return answer


def _elsewhere(run: dict[str, Any]) -> str:
    """The machine that an attempt belongs to where it is not the present one, else an empty word."""
    found = (finding["actual"] for finding in run.get("findings") or () if finding.get("code") == "run_elsewhere")
    return str(next(found, ""))
