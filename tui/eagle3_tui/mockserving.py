"""What the mock answers about serving and benches, and how its service looks while it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eagle3_backend.control.commands import Command, DryRun, Endpoint, Results, Services, WriteProfile
from eagle3_backend.control.snapshot import Event, ServiceView, StageView
from eagle3_backend.findings import warning
from eagle3_backend.states import RunState

ASKED = (DryRun, Endpoint, Results, Services, WriteProfile)
PARAMETERS = {"engine": "vllm", "layout": "flat", "depth": 3, "context": 2048, "dtype": "bfloat16", "options": {}}
_OWN, _OTHER = "qwen3-8b-serve-51c0", "qwen3-8b-serve-9b1f"


def answer(command: Command, scene: str, wall: float) -> Any:
    """The answer to one of `ASKED`."""
    if isinstance(command, DryRun):
        return _plan(command.through, scene)
    if isinstance(command, Endpoint):
        port = 41873 if command.run != _OTHER else 41999
        return {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "made-up", "port": port, "model": "target"}
    if isinstance(command, Services):
        return {"services": [_service(_OWN, "flat", 3, 41873), _service(_OTHER, "nested", 2, 41999)]}
    if isinstance(command, WriteProfile):
        return str(command.path)  # nothing is written: all of this is made up
    assert isinstance(command, Results)
    return {"artifacts": _results(command.stage, wall) if scene == "done" else []}


def services() -> tuple[ServiceView, ...]:
    """The endpoint of the profile, and one of other parameters."""
    return (ServiceView(_OWN, 1, RunState.RUNNING, True), ServiceView(_OTHER, 1, RunState.RUNNING))


def _service(run: str, layout: str, depth: int, port: int) -> dict[str, Any]:
    return {"run": run, "attempt": 1, "state": "running", "planned": run == _OWN, "ready": True, "engine": "vllm",
            "layout": layout, "depth": depth, "host_port": port, "base_url": f"http://127.0.0.1:{port}/v1",
            "api_key": "made-up", "model": "target"}  # fmt: skip


@dataclass(frozen=True)
class Took:
    """What a made-up answer took."""

    tokens: int | None = 12
    tokens_per_second: float | None = 87.5
    seconds_to_first_token: float | None = 0.08
    acceptance_length: float | None = 2.31
    finish_reason: str = "stop"


class MockTalk:
    """Says the same to everybody; ``hold`` lets it stop in the middle until it is cancelled."""

    hold = False

    def __init__(self) -> None:
        self.figures = Took()
        self._cancelled = threading.Event()

    def say(self, messages: Sequence[Mapping[str, str]], max_tokens: int) -> Iterator[str]:
        self._cancelled.clear()
        yield "You asked: "
        if self.hold:
            self._cancelled.wait(60)
            self.figures = replace(self.figures, finish_reason="cancelled")
            return
        yield messages[-1]["content"]

    def cancel(self) -> None:
        self._cancelled.set()


def running(view: StageView) -> StageView:
    """The service at work."""
    shares = {"acceptance_at_1": 0.62, "acceptance_at_2": 0.41, "acceptance_at_3": 0.28}
    metrics = {"acceptance_length": 2.31, "drafts": 3120.0, "accepted": 4087.0, "tokens_per_second": 412.0,
               "requests_running": 3.0, "requests_waiting": 0.0, "log_length": 2.29, "log_windows": 70.0,
               "log_agrees": 1.0, **shares}  # fmt: skip
    launch = {"asked_at": 0.0, "total": 48.3, "engine": 46.2, "waited": 0.0, "overhead": 2.1, "request": 0.5,
              "supervisor": 0.3, "stage": 0.4, "answer": 0.9}  # fmt: skip
    return replace(view, metrics=metrics, launch=launch, elapsed=723.0, heartbeat_age=1.0, fresh=False, remark="")


def events(now: float) -> tuple[Event, ...]:
    """What its journal has told."""
    notes = ("Starting the engine on port 41873, process 5120", "Engine: loading weights",
             "Engine: compiling and warming up", "Engine ready on port 41873 after 46 s",
             "Serving 'target' on 127.0.0.1:41873")  # fmt: skip
    told = [Event(now - 723, "serve", "starting", "info", "state", {"state": RunState.STARTING.value})]
    told += [Event(now - 720 + 10 * place, "serve", text, "info", "note") for place, text in enumerate(notes)]
    return (*told, Event(now - 676, "serve", "ready", "info", "state", {"state": "ready"}))


def _plan(through: str, scene: str) -> dict[str, Any]:
    from eagle3_backend.engines.launch import plan_server
    from eagle3_backend.engines.plan import Wishes

    wishes = Wishes(device="cuda", dtype="bfloat16", context=2048)
    spec = {
        "stage": "serve",
        "parameters": {"layout": "flat", "depth": 3},
        "inputs": {"drafter": "/data/eagle3/qwen3-8b/export/51c0d2e4"},
        "engine": plan_server("vllm", "/data/eagle3/envs/vllm-51c0/bin/python", wishes),
    }
    found = warning("disk_forecast_near", "The disk of the workspace is nearly full after this chain.",
                    path="host.workspace", expected="at least 5 % free", actual="4 % free",
                    fix="Delete artifacts that are out of date.")  # fmt: skip
    findings = [found.to_json()] if scene == "failed" else []
    return {"script": "", "stages": [spec] if through == "serve" else [], "fresh": [], "findings": findings}


def _results(stage: str, wall: float) -> list[dict[str, Any]]:
    if stage == "diagnose":
        controls = {"shuffled_d2t": {"acceptance_length": 1.01, "failed_as_it_must": True},
                    "aux_layers_off_by_one": {"equal_share": 0.53, "failed_as_it_must": True}}  # fmt: skip
        summary = {"verdict": "engine_runs_the_drafter", "equal_share": 0.9996, "steps": 5213, "controls": controls}
        return [_artifact("77ad03c1", True, wall - 300, summary, {"bench": "51c0d2e4"})]
    if stage == "trace":
        return [_artifact("3e70b4aa", True, wall - 600, _PROFILE, {})]
    if stage != "bench":
        return []
    newer = _bench(3, (0.62, 0.41, 0.28), (0.34, 0.12, 0.06), 1.37, 64)
    older = _bench(5, (0.58, 0.35, 0.22, 0.13, 0.08), (0.31, 0.1, 0.05, 0.02, 0.01), 1.22, 128)
    return [_artifact("51c0d2e4", True, wall - 1200, newer, {}), _artifact("9b1f6a20", False, wall - 90_000, older, {})]


_PROFILE: dict[str, Any] = {
    "drafted": {
        "step_ms": 11.42, "steps": 19, "requests": 8, "hidden_communication": 0.031, "waiting_for_ranks": 0.042,
        "unknown_share": 0.008,
        "shares": {"attention": 0.118, "moe": 0.301, "gemm": 0.142, "all_reduce": 0.163, "communication": 0.021,
                   "sampling": 0.022, "drafter": 0.109, "elementwise": 0.048, "copy": 0.006, "other": 0.008,
                   "gap": 0.062},
        "drafter": {"told_by": "annotations", "ms": 1.38, "shares": {"gemm": 0.52, "attention": 0.21, "gap": 0.27}},
        "names": {"moe": {"fused_moe_kernel": 0.281},
                  "all_reduce": {"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>": 0.163},
                  "unknown": {"brand_new_kernel": 0.008}},
    },
    "plain": {
        "step_ms": 8.13, "steps": 20, "requests": 8, "hidden_communication": 0.02, "waiting_for_ranks": 0.05,
        "unknown_share": 0.0,
        "shares": {"attention": 0.121, "moe": 0.372, "gemm": 0.171, "all_reduce": 0.188, "communication": 0.02,
                   "sampling": 0.018, "elementwise": 0.052, "copy": 0.004, "other": 0.0, "gap": 0.054},
    },
    "gains": {
        "depth": 3, "not_measured": [], "length": {"mean": 2.02, "low": 1.88, "high": 2.17},
        "plain_over_step": {"mean": 0.712, "low": 0.701, "high": 0.724},
        "speedup": {"mean": 1.438, "low": 1.33, "high": 1.55},
        "break_even_length": {"mean": 1.405, "low": 1.381, "high": 1.427},
        "free_drafter": {"mean": 1.636, "low": 1.51, "high": 1.76},
        "perfect_drafter": {"mean": 2.848, "low": 2.804, "high": 2.896},
        "most": {"mean": 3.24, "low": 3.19, "high": 3.29},
    },
    "traces": {"files": 16, "bytes": 48_311_002},
}  # fmt: skip


def _artifact(
    fingerprint: str, planned: bool, ended: float, summary: dict[str, Any], inputs: dict[str, str]
) -> dict[str, Any]:
    return {"fingerprint": fingerprint, "path": f"/data/eagle3/qwen3-8b/bench/{fingerprint}", "planned": planned,
            "run": f"qwen3-8b-bench-{fingerprint}", "attempt": 1, "ended": ended, "inputs": inputs,
            "summary": summary}  # fmt: skip


def _bench(
    depth: int, here: tuple[float, ...], published: tuple[float, ...], speed: float, tokens: int
) -> dict[str, Any]:
    shares = {"in_domain": here, "published": published}
    rows: list[dict[str, Any]] = []
    for at in range(depth + 1):
        lengths = {name: 1 + sum(found[:at]) for name, found in shares.items()}
        rows.append({"depth": at, "acceptance_length": lengths, "acceptance": "estimated",
                     "speedup_c1": {name: length / (1 + 0.22 * at) for name, length in lengths.items()},
                     "speed": "estimated"})  # fmt: skip
    acceptance = {
        name: {"mean": 1 + sum(found), "low": 0.95 + sum(found), "high": 1.07 + sum(found), "prompts": 48,
               "steps": 2210, "by_position": list(found), "looping_answers": 0.04,
               "overlap_13gram": {"prompts": {"share_of_texts": 0.0}, "answers": {"share_of_texts": 0.02}}}
        for name, found in shares.items()
    }  # fmt: skip
    best = max(rows, key=lambda row: row["speedup_c1"]["in_domain"])
    reason = f"depth {best['depth']} has the highest estimated speed-up (in_domain): {speed:.2f}"
    return {
        "acceptance_length": acceptance,
        "recommended_depth": best["depth"],
        "recommended_for": "in_domain",
        "recommended_because": reason,
        **_speeds(depth, here, speed),
        "controls": {"raw_text": {"raw": 1.31, "chat": 1 + sum(here), "failed_as_it_must": True, "left_out": 2}},
        "speedup_c1": {"mean": speed, "low": speed - 0.08, "high": speed + 0.07},
        "lossless_equal": 24,
        "lossless_total": 24,
        "by_depth": rows,
        "engine": {"name": "vllm", "version": "0.32.0"},
        "recipe": {"target": "/data/models/Qwen3-8B", "revision": "b968826", "layout": "flat", "depth": depth,
                   "temperature": 0.0, "max_new_tokens": tokens, "concurrency": 16, "context": 2048,
                   "dtype": "float32", "prefix_caching": False, "prompt_set_hash": "0c4477ad", "turns": "first",
                   "speed": "interleaved"},
    }  # fmt: skip


def _speeds(depth: int, here: tuple[float, ...], speed: float) -> dict[str, Any]:
    """The table of speeds at two loads: ours, and looking words up."""
    cells: list[dict[str, Any]] = []
    for load, share in ((1, 1.0), (8, 0.62)):
        ways = (("none", 0, 1.0, 0.0), ("mine", depth, speed * share, sum(here)), ("ngram", depth, 1.08 * share, 0.21))
        for way, deep, ratio, accepted in ways:
            gap = 11.0 * (1 + accepted) / ratio * (1 + load / 16)
            cell = {"way": way, "depth": deep, "concurrency": load, "prompts": 16, "in_flight": 0.94 * load,
                    "tokens_per_second": 86.0 * ratio * load**0.8,
                    "tokens_per_second_each": _around(86.0 * ratio * load**-0.2),
                    "first_token_ms": {"p50": _around(41.0 * load), "p99": _around(66.0 * load)},
                    "gap_ms": {"p50": _around(gap), "p99": _around(1.9 * gap)},
                    "token_ms": _around(gap / (1 + accepted))}  # fmt: skip
            if deep:
                length = {**_around(1 + accepted), "steps": 520, "by_position": list(here) if way == "mine" else []}
                cell |= {"speedup": _around(ratio), "acceptance_length": length, "rounds_left_out": 0}
            cells.append(cell)
    because = f"x{speed:.2f} ({0.95 * speed:.2f} to {1.05 * speed:.2f}), the fastest of the depths measured"
    off = f"every measured depth loses, the best one x{0.62 * speed:.2f}"
    return {
        "cells": cells,
        "recommended_by_concurrency": [{"concurrency": 1, "depth": depth, "because": because},
                                       {"concurrency": 8, "depth": 0, "because": off}],
        "drafter_needed": [{"concurrency": 1, "verdict": "drafter_pays",
                            "words": f"With 1 request in flight: yes, your drafter at depth {depth} is x{speed:.2f} "
                                     "of the target alone, ngram x1.08"}],
        "ways_lost": [],
    }  # fmt: skip


def _around(mean: float) -> dict[str, Any]:
    return {"mean": mean, "low": 0.95 * mean, "high": 1.05 * mean, "prompts": 16}
