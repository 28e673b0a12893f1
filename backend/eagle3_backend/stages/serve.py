"""serve: the target with its drafter as a running endpoint, until it is asked to stop.

A service, not an artifact. `endpoint.json` in the run directory appears only after a real completion that was drafted,
and goes when the service ends; it holds the API key and is readable by its owner alone.
"""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from eagle3_backend.agent.workspace import ENDPOINT, read_json
from eagle3_backend.engines.metrics import Drafting, Scrape, drafting, verify_steps, window
from eagle3_backend.engines.plan import KEY_VARIABLE, SERVED_NAME
from eagle3_backend.engines.startup import Moments, startup
from eagle3_backend.findings import Finding, FindingError, error, warning
from eagle3_backend.stages.bench_client import Client
from eagle3_backend.stages.context import StageContext, Stopped
from eagle3_backend.stages.drafted_engine import drafted_engine
from eagle3_backend.stages.engine_http import RequestRefused, in_background
from eagle3_backend.stages.engine_process import EngineProcess
from eagle3_backend.states import RunState

METRIC_SECONDS = 5.0
"""Length of a window whose acceptance and speed go to the journal."""
POLL = 0.2


def run(context: StageContext) -> None:
    """Serve until SIGTERM, then raise Stopped. Raises FindingError when the engine does not start, or dies."""
    parameters = context.parameters
    plan = drafted_engine(context)
    facts = json.loads((context.inputs["target"] / "facts.json").read_text(encoding="utf-8"))
    port, key = _inherited_port(context, plan["engine"]), os.environ.pop(KEY_VARIABLE, "")
    with EngineProcess(plan, model=facts["model"], context=context, port=port, api_key=key) as engine:
        client = Client(engine.port, engine.api_key, plan["engine"])
        before = client.scrape()
        _require_drafts(before)
        endpoint = {
            "engine": plan["engine"],
            "port": engine.port,
            "api_key": engine.api_key,
            "served_model": SERVED_NAME,
            "drafter": str(context.inputs["drafter"] / parameters.layout),
            "layout": parameters.layout,
            "depth": parameters.depth,
        }
        if launch := _launch(context, engine):
            endpoint["launch"] = launch
            context.journal.write("launch", **launch)
        path = context.run_directory / ENDPOINT
        try:
            write_private(path, endpoint)
            context.journal.note(f"Serving '{SERVED_NAME}' on 127.0.0.1:{engine.port}")
            context.journal.state(RunState.READY.value)
            _watch(context, engine, client, before)
        finally:
            path.unlink(missing_ok=True)
    raise Stopped


def _inherited_port(context: StageContext, engine: str) -> int | None:
    """The port of the endpoint whose place this one takes: tunnels to it go on.

    Not for SGLang, which hung on the port of a server that was killed (sgl-project/sglang#22779).
    """
    after = context.spec.get("after") or {}
    return after.get("port") if engine == "vllm" else None


def _launch(context: StageContext, engine: EngineProcess) -> dict[str, float]:
    """How long it took from the operator's word; {} where nobody wrote down when that was."""
    claim, supervisor = (read_json(context.run_directory / name) or {} for name in ("claim", "supervisor.json"))
    if not all(isinstance(value, float) for value in (claim.get("asked"), supervisor.get("began"))):
        return {}
    asked, claimed, began = claim["asked"], claim["monotonic"], supervisor["began"]
    moments = Moments(asked, claimed, began, engine.spawned, engine.said_ready, engine.answered)
    return startup(moments, replaces="after" in context.spec, asked_at=round(claim["wall"] - (claimed - asked), 3))


def _require_drafts(scrape: Scrape) -> None:
    """The completion that made the engine ready must have been drafted."""
    if not verify_steps(scrape):
        raise FindingError(
            error(
                "no_drafts_counted",
                "The engine answered, but its counters saw no draft: the drafter is not in use.",
                path="serve",
                expected="> 0 drafts",
                actual=0,
                fix="Look in the engine's log for the method and drafter that it took.",
            )
        )


def _watch(context: StageContext, engine: EngineProcess, client: Client, before: Scrape) -> None:
    """Write a window's figures to the journal every `METRIC_SECONDS`; of a row of idle windows, only the first."""
    begin = since = time.monotonic()
    idle = False
    second_source = SecondSource(before)
    page: Future[tuple[Scrape, float]] | None = None
    while not context.stopping:
        engine.check()
        time.sleep(POLL)
        if page is None:
            if time.monotonic() - since >= METRIC_SECONDS:
                windows, logged = engine.windows.windows, engine.windows.drafting
                page = in_background(lambda: (client.scrape(), time.monotonic()))
            continue
        if not page.done():
            continue
        asked, page = page, None
        try:
            after, now = asked.result()
        except (OSError, RequestRefused):
            # A dying engine shows in check(); one that is merely too busy is asked again.
            continue
        made = window(before, after, now - since)
        if made.reset:
            context.report(_reset())
            second_source.begin_anew()
        values = made.values()
        was_idle, idle = idle, not any(values.values())
        told = second_source.take(windows, logged, after)
        if told or not (idle and was_idle):
            context.journal.metric(round(now - begin, 1), **values, **told)
        if finding := second_source.disagreement():
            context.report(finding)
        before, since = after, now


class SecondSource:
    """The acceptance that the engine logs, held against its counters: both count since its start.

    What the lines add up to was true when the last one was written: no more than the counters say after it was read,
    and no less than they said well before it.
    """

    def __init__(self, first: Scrape) -> None:
        self._scrapes = [drafting(first)] * 2
        self._windows = 0
        self._comparable = True
        self._wrong: Finding | None = None
        self._told = False

    def take(self, windows: int, logged: Drafting, after: Scrape) -> dict[str, float]:
        """``windows`` and ``logged`` as they were before the page ``after`` was read; metrics where there is news."""
        counted = drafting(after)
        earlier, _ = self._scrapes
        self._scrapes = [self._scrapes[1], counted]
        if windows == self._windows or logged.length is None:
            return {}
        self._windows = windows
        found = {"log_windows": float(windows), "log_length": logged.length}
        if not (logged.exact and counted.drafts and self._comparable):
            return found  # SGLang logs means, and counts no accepted tokens: there is nothing to hold against it
        agrees = all(
            getattr(earlier, name) <= getattr(logged, name) <= getattr(counted, name)
            for name in ("drafted", "accepted")
        )
        if not agrees:
            self._wrong = self._wrong or _disagree(logged, counted)
        return {**found, "log_agrees": float(agrees)}

    def begin_anew(self) -> None:
        """The counters fell: the log goes on from an older start, and the two are no longer of the same."""
        self._comparable = False

    def disagreement(self) -> Finding | None:
        """The first one, once."""
        if self._wrong is None or self._told:
            return None
        self._told = True
        return self._wrong


def _disagree(logged: Drafting, counted: Drafting) -> Finding:
    return warning(
        "metrics_disagree",
        "The engine's log and its counters tell different acceptances since its start.",
        path="serve",
        expected={"drafted": counted.drafted, "accepted": counted.accepted},
        actual={"drafted": logged.drafted, "accepted": logged.accepted},
        fix="Trust the counters; a log that lost lines, or another server's, does not add up.",
    )


def _reset() -> Finding:
    return warning(
        "counters_reset",
        "A counter of the engine fell: one of its processes was restarted. Its figures begin anew.",
        path="serve",
        fix="Look in the log for what ended it.",
    )


def write_private(path: Path, value: Any) -> None:
    """Write JSON that only its owner can read, whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(temporary, path)
