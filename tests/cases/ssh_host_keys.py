"""Keys that hosts offer, judged by a known_hosts file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runner import Answer

from eagle3_backend.remote import hostkeys


def run(known_hosts: Path, offered: list[dict[str, Any]]) -> Answer:
    before = known_hosts.read_bytes()
    text = hostkeys.read_text([known_hosts])
    judged = {entry["host"]: hostkeys.judge(text, entry["host"], entry["port"], entry["key"]) for entry in offered}
    return Answer(
        tuple(finding for finding in judged.values() if finding is not None),
        {
            "connects": [host for host, finding in judged.items() if finding is None],
            "known_hosts_modified": known_hosts.read_bytes() != before,
        },
    )
