"""The setup stage with a requirement set of one tiny wheel that needs no network."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from eagle3_backend.findings import FindingError
from eagle3_backend.pipeline.environments import SETS, RequirementSet, directory_of
from eagle3_backend.stages import environment_build, setup
from eagle3_backend.stages.context import Stopped


def wheel(directory: Path, name: str) -> str:
    path = directory / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "__version__ = '1.0'\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return str(path)


@pytest.fixture
def requirements(tmp_path, monkeypatch):
    """The set `tiny`, known to the stage beside the real ones."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    made = RequirementSet(
        name="tiny",
        packages=(wheel(tmp_path, "tinything"),),
        imports=("tinything",),
        python=((3, 9), (4, 0)),
        bytes_needed=1,
        shim=("tinyname", "1.0+cpu"),
        command=("platform",),
        device="cpu",
    )
    monkeypatch.setitem(SETS, "tiny", made)
    return made


@pytest.fixture
def tiny(requirements, monkeypatch):
    """The same, built with this interpreter's pip: bringing one into every environment takes most of a build."""

    def pip(self, *arguments):
        return self._commands.run([sys.executable, "-m", "pip", "--python", self.python, "--no-input", *arguments])

    monkeypatch.setattr(setup, "find_python", lambda *_: [sys.executable, "-m", "venv", "--without-pip"])
    monkeypatch.setattr(environment_build.Build, "_pip", pip)
    return requirements


def run(attempt, **environments):
    context = attempt("setup", {}, environments=environments)
    setup.run(context)
    return context


def python(context, name="train"):
    return context.summary["environments"][name]["python"]


def notes(context):
    return [line["text"] for line in context.lines("note")]


def test_a_missing_environment_is_built_step_by_step_and_works(attempt, requirements, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    context = run(attempt, train={"set": "tiny"})
    entry = context.summary["environments"]["train"]
    assert entry["built"]
    assert entry["versions"] == {"tinything": "1.0"}
    assert entry["python"] == f"{directory_of('train', 'tiny', str(context.workspace))}/bin/python"
    ask = "import tinything; print(tinything.__cached__)"
    compiled = subprocess.run([entry["python"], "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    assert Path(compiled).is_file()
    progress = [line["done"] for line in context.lines("progress")]
    assert progress == list(range(len(notes(context)) + 1))


def test_the_shim_answers_for_the_other_name_in_the_metadata(attempt, tiny):
    context = run(attempt, train={"set": "tiny"})
    script = "from importlib.metadata import version; print(version('tinyname'))"
    done = subprocess.run([python(context), "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1.0+cpu"


def test_a_second_run_builds_nothing(attempt, tiny):
    first = run(attempt, train={"set": "tiny"})
    again = run(attempt, train={"set": "tiny"})
    assert python(again) == python(first)
    assert not again.summary["environments"]["train"]["built"]
    assert notes(again) == []


def test_a_linked_environment_without_marker_is_used_when_it_works(attempt, tiny, tmp_path):
    context = attempt("setup", {}, environments={})
    built = tmp_path / "elsewhere"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(built)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(built / "bin/python")]
    subprocess.run([*pip, "install", "--quiet", *tiny.packages], check=True)
    place = Path(directory_of("train", "tiny", str(context.workspace)))
    place.parent.mkdir(parents=True)
    place.symlink_to(built)
    context = run(attempt, train={"set": "tiny"})
    assert not context.summary["environments"]["train"]["built"]
    assert place.is_symlink()


def test_an_unfinished_environment_is_built_anew(attempt, tiny):
    context = attempt("setup", {}, environments={})
    place = Path(directory_of("train", "tiny", str(context.workspace)))
    (place / "bin").mkdir(parents=True)
    (place / "bin/python").symlink_to(sys.executable)
    context = run(attempt, train={"set": "tiny"})
    assert context.summary["environments"]["train"]["built"]


def test_other_pins_are_built_beside_the_old_ones(attempt, tiny, monkeypatch):
    first = python(run(attempt, train={"set": "tiny"}))
    monkeypatch.setitem(SETS, "tiny", replace(tiny, shim=("tinyname", "1.1+cpu")))
    second = python(run(attempt, train={"set": "tiny"}))
    assert second != first
    assert Path(first).exists()


def test_an_adopted_environment_is_verified_and_left_as_it_is(attempt):
    context = run(attempt, spare={"python": sys.executable})
    assert context.summary["environments"]["spare"] == {
        "python": sys.executable,
        "set": "",
        "built": False,
        "versions": {},
    }


def test_an_adopted_environment_that_is_not_there_is_a_finding(attempt):
    with pytest.raises(FindingError) as raised:
        run(attempt, train={"python": "/nowhere/bin/python"})
    finding = raised.value.findings[0]
    assert (finding.code, finding.path) == ("environment_missing", "environments.train.python")


def test_an_adopted_environment_without_its_packages_is_a_finding(attempt, tiny):
    empty = python(run(attempt, other={"set": "tiny"}), "other")
    with pytest.raises(FindingError) as raised:
        run(attempt, train={"python": empty})
    assert raised.value.findings[0].code == "environment_broken"
    assert "torch" in raised.value.findings[0].message


def test_too_little_disk_is_told_before_anything_is_built(attempt, tiny, monkeypatch):
    monkeypatch.setitem(SETS, "tiny", replace(tiny, bytes_needed=2**60))
    with pytest.raises(FindingError) as raised:
        run(attempt, train={"set": "tiny"})
    assert raised.value.findings[0].code == "disk_space_insufficient"


def test_an_unknown_set_is_a_finding_with_the_known_ones(attempt):
    with pytest.raises(FindingError) as raised:
        run(attempt, train={"set": "train-tpu"})
    assert raised.value.findings[0].code == "environment_set_unknown"
    assert "train-cpu" in raised.value.findings[0].expected


def test_a_package_that_cannot_be_had_fails_with_what_pip_said(attempt, tiny, monkeypatch):
    monkeypatch.setitem(SETS, "tiny", replace(tiny, packages=("no-such-thing-here==1",)))
    with pytest.raises(FindingError) as raised:
        run(attempt, train={"set": "tiny"})
    assert raised.value.findings[0].code == "environment_build_failed"
    assert "no-such-thing-here" in raised.value.findings[0].message


def test_a_plan_of_pip_that_brings_another_torch_fails_the_stage(attempt, tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(SETS, "tiny", replace(tiny, packages=(*tiny.packages, wheel(tmp_path, "torch"))))
    with pytest.raises(FindingError) as raised:
        run(attempt, train={"set": "tiny"})
    assert raised.value.findings[0].actual == ["torch"]


def test_an_import_that_fails_leaves_no_marker(attempt, tiny, monkeypatch):
    monkeypatch.setitem(SETS, "tiny", replace(tiny, imports=("tinything", "otherthing")))
    with pytest.raises(FindingError) as raised:
        run(attempt, train={"set": "tiny"})
    assert raised.value.findings[0].code == "environment_broken"
    context = attempt("setup", {}, environments={})
    assert not (Path(directory_of("train", "tiny", str(context.workspace))) / setup.MARKER).exists()


def test_the_cpu_index_is_asked_only_after_the_usual_one(attempt, tiny, monkeypatch):
    asked = []

    def pip(self, *arguments):
        asked.append(arguments)
        return (1, environment_build.NO_VERSION) if len(asked) == 1 else (0, "")

    context = attempt("setup", {}, environments={})
    build = environment_build.Build(context.output, replace(tiny, first="torch==9+cpu"), [], None)
    monkeypatch.setattr(environment_build.Build, "_pip", pip)
    build._install_first()
    assert asked == [
        ("install", "torch==9+cpu"),
        ("install", "--index-url", environment_build.TORCH_CPU_INDEX, "torch==9+cpu"),
    ]


def test_a_stop_ends_the_running_command_and_the_stage(attempt):
    context = attempt("setup", {}, environments={})
    context.ask_to_leave()
    with pytest.raises(Stopped):
        environment_build.Commands(context).run([sys.executable, "-c", "import time; time.sleep(600)"])


def test_a_host_without_a_fitting_python_is_a_finding(attempt, tiny, monkeypatch):
    monkeypatch.setenv("PATH", "")
    context = attempt("setup", {}, environments={})
    commands = environment_build.Commands(context)
    with pytest.raises(FindingError) as raised:
        environment_build.find_python(replace(tiny, python=((3, 98), (3, 99))), commands)
    assert raised.value.findings[0].code == "python_missing"


def test_versions_that_do_not_match_the_pins_are_not_taken_over():
    assert setup._pins_match(SETS["train-cpu"], {"torch": "2.13.0+cpu", "transformers": "5.19.0"})
    assert not setup._pins_match(SETS["train-cpu"], {"torch": "2.12.0+cpu"})


def test_the_marker_names_set_and_pins(attempt, tiny):
    context = run(attempt, train={"set": "tiny"})
    marker = json.loads((Path(python(context)).parents[1] / setup.MARKER).read_text())
    assert marker["set"] == "tiny"
    assert marker["versions"] == {"tinything": "1.0"}
