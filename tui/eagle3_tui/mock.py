"""Made-up data with the face of control: for screenshots, tests, and a look at the panel without a host.

Everything is a function of the time since `start`, so the same time always shows the same picture.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from eagle3_backend.control.alerts import Alerts
from eagle3_backend.control.commands import (
    Attempts,
    Command,
    EndOrphan,
    FindLogTime,
    FollowLog,
    Hosts,
    Inspect,
    Metrics,
    Open,
    ReadLog,
    ReconnectNow,
    Resume,
    Specification,
    Start,
    Stop,
    Swap,
    TrustHostKey,
)
from eagle3_backend.control.snapshot import (
    ALERT,
    Event,
    HostView,
    Machine,
    Snapshot,
    StageView,
    Started,
)
from eagle3_backend.findings import FindingError, error, warning
from eagle3_backend.runs.logreader import Matcher, block_of, place_of
from eagle3_backend.states import LinkState, RunState
from eagle3_tui import mockanswers, mockserving
from eagle3_tui.mockcurves import (
    GIB,
    flood_line,
    gauges_until,
    length_at,
    loss_at,
    machine_at,
    series_until,
    training_line,
)  # fmt: skip
from eagle3_tui.mockfleet import AGENT, others_at
from eagle3_tui.mocklog import GENERATION, MockLog

STEPS = 30_000
FIRST_STEP = 18_300
"""Where the made-up training stands when the mock starts."""

SCENES = ("train", "first", "cpu", "reconnecting", "stale", "connecting", "failed", "done", "key_unknown",
          "key_changed", "refused", "empty")  # fmt: skip

_PARAMETERS = {"epochs": 6, "learning_rate": 0.001, "ttt_steps": 3, "step_decay": 0.8, "seed": 0,
               "checkpoint_seconds": 60.0, "save_seconds": 60.0, "terminate_seconds": 15.0}  # fmt: skip

_FINISHED = {"setup": (100, ""), "target": (362, ""), "prompts": (48, "70k"), "generate": (12015, "68k"),
             "extract": (4360, "380/380"), "vocab": (31, "32000")}  # fmt: skip


class MockSource:
    """A source whose picture moves by itself; ``rate`` pictures a second, ``flood`` log lines a second."""

    def __init__(
        self,
        scene: str = "train",
        *,
        rate: float = 1.0,
        flood: int = 0,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.scene = scene
        self.commands: list[Command] = []
        self._flood = flood
        # A flood renews the picture as often as control would at most: 10 times a second.
        self._beats = 10.0 if flood else rate
        self._clock, self._wall = clock, wall
        self._started = clock()
        self._wall_started = wall()
        self._changes = 0
        self._states: dict[str, RunState] = {}
        self._log_of, self._log_attempt = "train", 1
        self._watching = False
        self._made: tuple[int, Snapshot] = (-1, Snapshot())
        self._alerts = Alerts()
        self._called: list[Event] = []
        self._changed: Callable[[], None] = lambda: None
        self._timer: asyncio.TimerHandle | None = None

    def start(self, changed: Callable[[], None]) -> None:
        self._started = self._clock()
        self._wall_started = self._wall()
        self._changed = changed
        self._beat()

    def _beat(self) -> None:
        self._changed()
        self._timer = asyncio.get_running_loop().call_later(1 / self._beats, self._beat)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def parameters(self, stage: str) -> Mapping[str, Any]:
        return dict(mockserving.PARAMETERS if stage == "serve" else _PARAMETERS)

    def work_with(self, opened: Open) -> None:
        return None

    def talk(self, endpoint: Mapping[str, Any]) -> mockserving.MockTalk:
        return mockserving.MockTalk()

    def submit(self, command: Command) -> Future[Any]:
        self.commands.append(command)
        outcome: Future[Any] = Future()
        try:
            outcome.set_result(self._act(command))
        except Exception as problem:
            outcome.set_exception(problem)
        self._changes += 1
        self._changed()
        return outcome

    def _act(self, command: Command) -> Any:
        if isinstance(command, Open | ReconnectNow):
            return None
        if isinstance(command, FollowLog):
            self._log_of, self._log_attempt = command.stage or "train", command.attempt or 1
            return None
        if isinstance(command, ReadLog):
            match = Matcher(command.match) if command.match else None
            block = block_of(self.log(), command.at, command.count, match, ahead=command.ahead)
            return replace(block, generation=GENERATION)
        if isinstance(command, FindLogTime):
            return place_of(self.log(), command.clock)
        if isinstance(command, Attempts | Inspect | Specification):
            from eagle3_tui import mockdiff  # which reads drafters: not before the first picture

            return mockdiff.answer(command, self.scene)
        if isinstance(command, mockanswers.ASKED):
            self._watching |= isinstance(command, Hosts) and command.watch
            return mockanswers.answer(command, self.scene)
        if isinstance(command, mockserving.ASKED):
            return mockserving.answer(command, self.scene, self._wall_started)
        if isinstance(command, EndOrphan):
            return None
        if isinstance(command, Metrics):
            return self._metrics(command)
        if isinstance(command, TrustHostKey):
            self.scene = "train"
            return None
        if isinstance(command, Stop):
            self._states[command.stage] = RunState.STOPPED
            return RunState.STOPPING
        if isinstance(command, Start):
            return self._begin(command)
        if isinstance(command, Swap):
            return Started(("qwen3-8b-serve-77ad",), ())
        if isinstance(command, Resume):
            self._states[command.stage] = RunState.RUNNING
            return Started((f"local-{command.stage}-3f9c",), ())
        raise NotImplementedError(type(command).__name__)

    def _begin(self, command: Start) -> Started:
        if self.scene == "refused" and "disk_forecast_exceeds_free" not in command.accept:
            raise FindingError(
                error(
                    "disk_forecast_exceeds_free",
                    "The hidden states need more disk than is free on the workspace's file system.",
                    path="host.workspace",
                    expected="at most 812 GB",
                    actual="1.4 TB",
                    fix="Lower stages.prompts.limit, or give the workspace a larger disk.",
                )
            )
        if self.scene == "first":
            self.scene = "cpu"
        else:
            self._states[command.through] = RunState.RUNNING
        return Started((f"local-{command.through}-3f9c",), ())

    def snapshot(self) -> Snapshot:
        beat = int((self._clock() - self._started) * self._beats)
        version = 1 + beat + 1000 * self._changes
        if self._made[0] != version:
            self._made = (version, self._watched(self._picture(version, beat / self._beats)))
        return self._made[1]

    def _watched(self, picture: Snapshot) -> Snapshot:
        """With an event for each alert, as control has them."""
        for alert in self._alerts.observe(picture, self._clock()):
            self._called.append(Event(self._wall(), alert.source, alert.words, alert.severity, ALERT))
        return replace(picture, events=(*picture.events, *self._called)) if self._called else picture

    def _picture(self, version: int, elapsed: float) -> Snapshot:
        if self.scene == "empty":
            return Snapshot(version=version)
        step = self._step()
        return Snapshot(
            version=version,
            campaign="local" if self.scene in ("first", "cpu") else "qwen3-8b",
            profile="local.toml" if self.scene in ("first", "cpu") else "qwen3-8b-8x-h200.toml",
            workspace="/data/eagle3",
            host=self._host(elapsed),
            stages=self._stages(step, elapsed),
            series=series_until(step),
            gauges=gauges_until(elapsed) if _has_gpus(self.scene) else {},
            log=self.log().view(self._log_of, self._log_attempt),
            events=self._events(),
            services=mockserving.services() if self._serves("serve") else (),
            price_per_hour=28.0 if _has_gpus(self.scene) else 0.0,
            spent_seconds=26_500.0 + elapsed,
            others=others_at(elapsed, self._clock()) if self._watching else (),
        )

    def _step(self) -> int:
        """Where the made-up training is; 0 before it."""
        beat = int((self._clock() - self._started) * self._beats) / self._beats
        if self.scene in ("first", "connecting"):
            return 0
        return FIRST_STEP + (int(beat * 5) if self.scene not in ("failed", "done") else 0)

    def _link(self, elapsed: float) -> LinkState:
        fixed = {"reconnecting": LinkState.RECONNECTING, "stale": LinkState.STALE,
                 "connecting": LinkState.CONNECTING, "key_unknown": LinkState.OFFLINE,
                 "key_changed": LinkState.KEY_CHANGED}  # fmt: skip
        if self.scene in fixed:
            return fixed[self.scene]
        # Every two minutes the link is gone for twenty seconds, so that this can be seen.
        return LinkState.RECONNECTING if self.scene == "train" and elapsed % 120 >= 100 else LinkState.LIVE

    def _host(self, elapsed: float) -> HostView:
        link = self._link(elapsed)
        now = self._clock()
        problem = None
        if link is LinkState.KEY_CHANGED:
            problem = error(
                "ssh_host_key_changed",
                "The host answers with another key than the one in known_hosts.",
                path="h200-a",
                expected="SHA256:uNiVztksCsDhcc0u9e8BrM2nGyHg1S8b4c0wY4bG0hQ",
                actual="SHA256:2b6pKkqfW1m3o0T8k0bWQ9vHn1n4zFq0rB7iJYlR5mM",
            )
        lost = {LinkState.RECONNECTING: elapsed % 120 - 100, LinkState.STALE: 9.0, LinkState.CONNECTING: 3.0}
        ago = max(0.0, lost.get(link, elapsed)) if self.scene != "reconnecting" else 12.0
        cpu_only = self.scene in ("first", "cpu")
        at = elapsed if link is LinkState.LIVE else elapsed - ago
        return HostView(
            name="embedded" if cpu_only else "h200-a",
            link=link,
            since=now - ago,
            data_at=now - (ago if link is not LinkState.LIVE else 0),
            latency=None if link is LinkState.CONNECTING else 0.0004 if cpu_only else 0.038,
            skew=None if cpu_only else 0.2,
            agent=AGENT,
            attempt=4 if link is LinkState.RECONNECTING else 0,
            retry_at=now + 6 if link is LinkState.RECONNECTING else None,
            machine=Machine() if link is LinkState.CONNECTING else machine_at(at, cpu_only),
            offered_key="ssh-ed25519 SHA256:2b6pKkqfW1m3o0T8k0bWQ9vHn1n4zFq0rB7iJYlR5mM"
            if self.scene == "key_unknown"
            else "",
            problem=problem,
        )

    def _stages(self, step: int, elapsed: float) -> tuple[StageView, ...]:
        # Loaded when the first picture is made: that is after the first paint.
        from eagle3_backend.pipeline.stages import STAGES

        views = []
        for name, stage in STAGES.items():
            waits = [read for read in stage.reads if read not in _FINISHED or self.scene in ("first", "connecting")]
            view = StageView(name, stage.title, RunState.BLOCKED, blocked_by=tuple(waits[-1:]) or ("setup",))
            if self.scene in ("first", "connecting"):
                view = replace(view, state=RunState.READY, blocked_by=()) if name == "setup" else view
            elif name == "serve" and self.scene == "done":
                view = replace(view, state=RunState.READY, blocked_by=())
            elif name in _FINISHED or self.scene == "done":
                seconds = _FINISHED.get(name, (904, ""))[0]
                view = replace(view, state=RunState.DONE, fresh=True, blocked_by=(), elapsed=float(seconds),
                               attempt=1, run=f"qwen3-8b-{name}-51c0", summary=_summary(name),
                               output=f"/data/eagle3/qwen3-8b/{name}/51c0")  # fmt: skip
            elif name == "train" and self.scene == "refused":
                view = replace(view, state=RunState.READY, blocked_by=())
            elif name == "train":
                view = self._training(view, step, elapsed)
            if (state := self._states.get(name)) is not None:
                view = replace(view, state=state, blocked_by=(), attempt=max(1, view.attempt),
                               run=view.run or f"qwen3-8b-{name}-51c0")  # fmt: skip
            views.append(mockserving.running(view) if self._serves(name) else view)
        return tuple(views)

    def _serves(self, stage: str) -> bool:
        return stage == "serve" and self._states.get(stage) is RunState.RUNNING

    def _training(self, view: StageView, step: int, elapsed: float) -> StageView:
        if self.scene == "failed":
            finding = error(
                "stage_killed",
                "The training process was killed with SIGKILL; the host's kernel log names the out-of-memory killer.",
                path="stages.train",
                expected="exit 0",
                actual="exit 137",
                fix="Resume from step 18300 with fewer epochs in memory, or on a host with more memory.",
            )
            return replace(view, state=RunState.FAILED, blocked_by=(), attempt=1, run="qwen3-8b-train-51c0",
                           elapsed=9607.0, remark="exit 137, SIGKILL, likely out of memory", done=18_300.0,
                           total=float(STEPS), unit="steps", findings=(finding,))  # fmt: skip
        running = replace(
            view, state=RunState.RUNNING, blocked_by=(), run="qwen3-8b-train-51c0", attempt=1, done=float(step),
            total=float(STEPS), unit="steps", rate=5.0, eta=(STEPS - step) / 5.0, elapsed=9607.0 + elapsed,
            heartbeat_age=2.0,
            findings=(warning("max_position_too_short", "The drafter's context is shorter than the target's.",
                              path="max_position_embeddings", expected=40960, actual=2048),),
            metrics={"train/loss": loss_at(step), "train/accept_len": length_at(step)},
        )  # fmt: skip
        if self._link(elapsed) is LinkState.RECONNECTING:
            lost = 12.0 if self.scene == "reconnecting" else max(0.0, elapsed % 120 - 100)
            return replace(running, state=RunState.UNKNOWN, last_state=RunState.RUNNING, as_of=self._clock() - lost)
        return running

    def _metrics(self, command: Metrics) -> dict[str, Any]:
        """What is stored of an attempt: another run was a little worse."""
        worse = 0.2 if command.run else 0.0
        series = {name: [[at, None if math.isnan(value) else value + worse] for at, value in points]
                  for name, points in series_until(self._step()).items()}  # fmt: skip
        clock = [[float(at), self._wall_started + (at - FIRST_STEP) / 5] for at in (50, self._step())]
        return {"stage": command.stage, "run": command.run, "attempt": command.attempt, "series": series,
                "clock": clock}  # fmt: skip

    def log(self) -> MockLog:
        """The log as it stands: a line every five steps, or as many a second as the flood has."""
        if self._flood:
            return MockLog(1000 + int((self._clock() - self._started) * self._flood), flood_line)
        if self.scene in ("first", "connecting", "empty"):
            return MockLog(0, flood_line)
        return MockLog(self._step() // 5, self._log_line)

    def _log_line(self, number: int) -> str:
        step = 5 * (number + 1)
        return training_line(step, self._wall_started + (step - FIRST_STEP) / 5)

    def _events(self) -> tuple[Event, ...]:
        if self.scene in ("first", "connecting"):
            return ()
        now = self._wall()
        return (
            Event(now - 9607, "vocab", "run finished, 32000 of 151936 ids", "ok"),
            Event(now - 2970, "lab", "ssh_host_key_changed", "error"),
            Event(now - 1326, "h200-a", "ssh_connection_lost", "warning"),
            Event(now - 1285, "h200-a", "link back after 41s, log complete", "ok"),
            Event(now - 186, "train", "loss spike 2.31 at step 17950 (3.1 sigma)", "warning"),
            Event(now - 2, "train", "checkpoint step_18300, 2.1 GiB", "ok"),
            *(mockserving.events(self._wall_started) if self._serves("serve") else ()),
        )


def _has_gpus(scene: str) -> bool:
    return scene not in ("connecting", "first", "cpu")


def _summary(stage: str) -> dict[str, Any]:
    if stage == "bench":
        return {
            "recommended_depth": 3,
            "acceptance_length": {"in_domain": {"mean": 2.31, "low": 2.2, "high": 2.43},
                                  "published": {"mean": 1.52, "low": 1.44, "high": 1.61}},
            "speedup_c1": {"mean": 1.37, "low": 1.29, "high": 1.44},
            "lossless_equal": 24,
            "lossless_total": 24,
        }  # fmt: skip
    return {"rows": 68_012, "bytes": 412 * GIB} if stage == "extract" else {}
