"""A real OpenSSH server on a loopback port with its own keys and configuration."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path

import asyncssh
import psutil

from eagle3_backend.profile import Host
from eagle3_backend.remote.ssh_config import SshFiles

PROGRAM = "/usr/sbin/sshd"


NAMESPACES = ("unshare", "--mount", "--uts")

ANOTHER_MACHINE = """
hostname "$1" && mount --bind "$2" /proc/sys/kernel/random/boot_id &&
mount -t tmpfs -o mode=0700 tmpfs "$3" && shift 3 && exec "$@"
"""
"""What makes a new machine of a mount and a UTS namespace: host name, boot id, and an empty directory for locks."""


class Sshd:
    """``start`` and ``kill`` may be called again and again; port and keys stay.

    With ``machine`` it and all that it starts see another host name and boot id, and none of the local locks. ``login``
    is the folder of an earlier server whose client key is let in.
    """

    def __init__(self, folder: Path, extra: str = "", machine: str = "", login: Path | None = None) -> None:
        folder.mkdir()
        self.folder = folder
        self.extra = extra
        self.machine = machine
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.new_host_key()
        if login is not None:
            for name in ("id", "authorized"):
                shutil.copy(login / name, folder / name)
        else:
            key = asyncssh.generate_private_key("ssh-ed25519")
            key.write_private_key(folder / "id")
            key.write_public_key(folder / "authorized")
        (folder / "id").chmod(0o600)
        (folder / "config").write_text("IdentityAgent none\nIdentitiesOnly yes\n")
        self.trust()

    def new_host_key(self) -> None:
        self.host_key = asyncssh.generate_private_key("ssh-ed25519")
        self.host_key.write_private_key(self.folder / "host_key")
        (self.folder / "host_key").chmod(0o600)

    @property
    def public_key(self) -> str:
        return self.host_key.export_public_key("openssh").decode().strip()

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    def trust(self) -> None:
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {self.public_key}\n")

    @property
    def files(self) -> SshFiles:
        return SshFiles(config=self.folder / "config", known_hosts=self.known_hosts)

    def host(self, **rest: object) -> Host:
        values = {
            "address": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "identity": str(self.folder / "id"),
            "workspace": str(self.folder / "workspace"),
        }
        return Host(**{**values, **rest})

    def start(self) -> Sshd:
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        lines = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.folder}/host_key",
            f"AuthorizedKeysFile {self.folder}/authorized",
            f"PidFile {self.folder}/pid",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin prohibit-password",
            "MaxStartups 100",
            self.extra,
        ]
        (self.folder / "sshd_config").write_text("\n".join(lines) + "\n")
        with open(self.folder / "log", "ab") as log:
            command = [*self._elsewhere(), PROGRAM, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self._process = subprocess.Popen(command, stderr=log)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return self
            time.sleep(0.02)
        raise RuntimeError((self.folder / "log").read_text())

    def _elsewhere(self) -> list[str]:
        """Words before a command that run it on the other machine."""
        if not self.machine:
            return []
        boot_id, locks = self.folder / "boot_id", Path(f"/tmp/eagle3-{os.getuid()}")
        boot_id.write_text(f"{uuid.uuid4()}\n")
        locks.mkdir(mode=0o700, exist_ok=True)
        return [*NAMESPACES, "sh", "-c", ANOTHER_MACHINE, "sh", self.machine, str(boot_id), str(locks)]

    def kill(self) -> None:
        """SIGKILL for the listener and for every session process, not for what the sessions run."""
        if self._process is None:
            return
        listener = psutil.Process(self._process.pid)
        servers = [listener, *(child for child in listener.children(recursive=True) if "sshd" in child.name())]
        for server in servers:
            try:
                server.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        self._process.wait()
        self._process = None
