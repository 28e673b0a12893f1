"""Building one virtual environment step by step, and the commands this takes. Python ≥ 3.9, standard library alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline.environments import TORCH_CPU_INDEX, RequirementSet
from eagle3_backend.stages.context import StageContext, Stopped

NO_VERSION = "No matching distribution found"
"""What pip says when the index that it is configured for lacks the wanted build."""

_VERIFY = """
import importlib, json, sys
versions = {}
for name in sys.argv[2:]:
    module = importlib.import_module(name)
    versions[name] = str(getattr(module, "__version__", ""))
if "torch" in versions:
    import torch
    if sys.argv[1] == "cpu" and torch.cuda.is_available():
        sys.exit("torch sees a GPU, so it is not the CPU build")
    if sys.argv[1] == "cuda" and torch.version.cuda is None:
        sys.exit("torch " + torch.__version__ + " is not a CUDA build")
print("VERSIONS " + json.dumps(versions))
"""

_SHIM = """
import pathlib, sys, sysconfig
name, version = sys.argv[1:]
folder = pathlib.Path(sysconfig.get_paths()["purelib"]) / f"{name}-{version}.dist-info"
folder.mkdir(exist_ok=True)
(folder / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
(folder / "INSTALLER").write_text("eagle3\\n")
(folder / "RECORD").write_text("".join(f"{folder.name}/{file},,\\n" for file in ("METADATA", "INSTALLER", "RECORD")))
"""


class Commands:
    """Runs commands as children that end with the stage; their output goes to the run's log."""

    def __init__(self, context: StageContext) -> None:
        self._context = context

    def run(self, argv: Sequence[str]) -> tuple[int, str]:
        """Exit code and output (both streams). Raises Stopped when the stage is asked to leave."""
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        parts: list[bytes] = []
        try:
            while True:
                ended = process.poll() is not None
                block = process.stdout.read()
                if block:
                    parts.append(block)
                    os.write(sys.stdout.fileno(), block)
                elif ended:
                    return process.returncode, b"".join(parts).decode("utf-8", "replace")
                else:
                    time.sleep(0.1)
                if self._context.stopping:
                    raise Stopped
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()

    def output(self, argv: Sequence[str]) -> tuple[str, str]:
        """The output, and in words what went wrong (empty when nothing did)."""
        code, text = self.run(argv)
        last = text.strip().splitlines()[-1] if text.strip() else ""
        return text, f"exit code {code}: {last[:300]}" if code else ""

    def verify(self, python: str, imports: Sequence[str], device: str) -> tuple[dict[str, str], str]:
        """Import modules in an environment: their versions, and what went wrong (empty when nothing did)."""
        text, problem = self.output([python, "-c", _VERIFY, device or "any", *imports])
        for line in text.splitlines():
            if line.startswith("VERSIONS "):
                return dict(json.loads(line[len("VERSIONS ") :])), problem
        return {}, problem or "no versions were printed"


def find_python(requirements: RequirementSet, commands: Commands) -> list[str]:
    """The command that makes a virtual environment of a fitting Python, without its folder. Raises FindingError."""
    low, high = requirements.python
    if low <= sys.version_info[:2] < high:
        return [sys.executable, "-m", "venv"]
    for minor in range(low[1], high[1]):
        path = shutil.which(f"python{low[0]}.{minor}")
        # A Python of the system may lack ensurepip, without which its venvs have no pip.
        if path and not commands.output([path, "-c", "import venv, ensurepip"])[1]:
            return [path, "-m", "venv"]
    uv = shutil.which("uv")
    if uv:
        return [uv, "venv", "--seed", "--python", f"{low[0]}.{low[1]}"]
    raise FindingError(
        error(
            "python_missing",
            f"{requirements.name} needs a Python of at least {low[0]}.{low[1]} and below {high[0]}.{high[1]}; "
            f"this host has {sys.version.split()[0]}.",
            path="environments",
            expected=f">={low[0]}.{low[1]},<{high[0]}.{high[1]}",
            actual=sys.version.split()[0],
            fix='Install one (or uv) on the host, or adopt an environment with python = "/path/bin/python".',
        )
    )


class Build:
    """The steps of one environment in their order, each with a title; afterwards its ``versions`` are known.

    A directory that is there is unfinished and is removed by the first step. Steps raise FindingError and Stopped.
    """

    def __init__(self, directory: Path, requirements: RequirementSet, base: Sequence[str], commands: Commands) -> None:
        self._directory = directory
        self._set = requirements
        self._base = base
        self._commands = commands
        self.python = str(directory / "bin/python")
        self.versions: dict[str, str] = {}

    def steps(self) -> list[tuple[str, Callable[[], None]]]:
        wanted = self._set
        found = [("virtual environment", self._create)]
        if wanted.first:
            found.append((wanted.first, self._install_first))
        if wanted.device == "cpu":
            found.append(("check of what would be installed", self._check_plan))
        found.append((", ".join(wanted.packages), self._install_packages))
        if wanted.remove:
            found.append(("removal of " + ", ".join(wanted.remove), self._remove))
        if wanted.shim:
            found.append(("metadata of " + wanted.shim[0], self._write_shim))
        found.append(("compiled modules", self._compile))
        return [(f"{wanted.name}: {title}", step) for title, step in [*found, ("verification by import", self._verify)]]

    def _pip(self, *arguments: str) -> tuple[int, str]:
        if arguments[0] == "install":
            arguments = ("install", "--no-compile", *arguments[1:])
        return self._commands.run([self.python, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments])

    def _must(self, result: tuple[int, str], what: str) -> str:
        code, text = result
        if code:
            lines = [line for line in text.splitlines() if line.startswith("ERROR")] or text.splitlines()[-1:]
            raise FindingError(
                error(
                    "environment_build_failed",
                    f"{self._set.name}: {what} failed: {' '.join(lines)[:400]}",
                    path=f"environments ({self._set.name})",
                    actual=code,
                    fix="Read the lines above in this run's log; most often the package index or the disk is at fault.",
                )
            )
        return text

    def _create(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.parent.mkdir(parents=True, exist_ok=True)
        self._must(self._commands.run([*self._base, str(self._directory)]), "creating the virtual environment")

    def _install_first(self) -> None:
        """The CPU index of PyTorch is asked only where the usual one has no such build."""
        result = self._pip("install", self._set.first)
        if result[0] and NO_VERSION in result[1] and self._set.device == "cpu":
            result = self._pip("install", "--index-url", TORCH_CPU_INDEX, self._set.first)
        self._must(result, f"installing {self._set.first}")

    def _check_plan(self) -> None:
        """No second torch and no CUDA libraries: either would replace the CPU build by one of several GB."""
        report = self._directory / "plan.json"
        arguments = ("install", "--dry-run", "--quiet", "--report", str(report), *self._set.packages)
        self._must(self._pip(*arguments), "planning the installation")
        names = [entry["metadata"]["name"].lower() for entry in json.loads(report.read_text())["install"]]
        report.unlink()
        unwanted = sorted(name for name in names if name == "torch" or name.startswith("nvidia-"))
        if unwanted:
            raise FindingError(
                error(
                    "environment_build_failed",
                    f"{self._set.name}: pip would also install {', '.join(unwanted)[:300]}, a CUDA build.",
                    path=f"environments ({self._set.name})",
                    expected=[],
                    actual=unwanted,
                    fix="Look at pip's configuration on the host: extra indexes or constraints bring the CUDA build.",
                )
            )

    def _install_packages(self) -> None:
        self._must(self._pip("install", *self._set.packages), f"installing {', '.join(self._set.packages)}")

    def _remove(self) -> None:
        self._must(self._pip("uninstall", "--yes", *self._set.remove), "removing packages that need CUDA")

    def _write_shim(self) -> None:
        self._must(self._commands.run([self.python, "-c", _SHIM, *self._set.shim]), "writing metadata")

    def _compile(self) -> None:
        """All modules at once, on all cores: pip compiles one after the other, which takes as long as it unpacks.

        Not left to the first import: where `PYTHONDONTWRITEBYTECODE` is set, each start of an engine would do it again.
        A template among the modules, which is no Python yet, is no reason to stop.
        """
        self._commands.run([self.python, "-m", "compileall", "-qq", "-j", "0", str(self._directory / "lib")])

    def _verify(self) -> None:
        versions, problem = self._commands.verify(self.python, self._set.imports, self._set.device)
        self.versions.update(versions)
        if not problem and self._set.command:
            _, problem = self._commands.output([self.python, "-m", *self._set.command])
        if problem:
            raise FindingError(broken(self._set.name, self.python, problem))


def broken(name: str, python: str, problem: str) -> Finding:
    """An environment that is there and does not work."""
    return error(
        "environment_broken",
        f"The environment '{name}' ({python}) does not work: {problem}",
        path=f"environments.{name}",
        actual=problem,
        fix="Read the lines above in this run's log; delete the environment's folder to have it built anew.",
    )
