"""serve: the target with its drafter as a running endpoint, until it is asked to stop.

A service, not an artifact. `endpoint.json` in the run directory appears only after a real completion that was drafted,
and goes when the service ends; it holds the API key and is readable by its owner alone.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from eagle3_backend.engines.metrics import Scrape, verify_steps, window
from eagle3_backend.engines.plan import SERVED_NAME
from eagle3_backend.findings import FindingError, error
from eagle3_backend.stages.bench_client import Client
from eagle3_backend.stages.context import StageContext, Stopped
from eagle3_backend.stages.drafted_engine import drafted_engine
from eagle3_backend.stages.engine_http import RequestRefused
from eagle3_backend.stages.engine_process import EngineProcess
from eagle3_backend.states import RunState

ENDPOINT = "endpoint.json"
METRIC_SECONDS = 5.0
"""Length of a window whose acceptance and speed go to the journal."""
POLL = 0.2


def run(context: StageContext) -> None:
    """Serve until SIGTERM, then raise Stopped. Raises FindingError when the engine does not start, or dies."""
    parameters = context.parameters
    plan = drafted_engine(context)
    facts = json.loads((context.inputs["target"] / "facts.json").read_text(encoding="utf-8"))
    with EngineProcess(plan, model=facts["model"], context=context) as engine:
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
        path = context.run_directory / ENDPOINT
        try:
            write_private(path, endpoint)
            context.journal.note(f"Serving '{SERVED_NAME}' on 127.0.0.1:{engine.port}")
            context.journal.state(RunState.READY.value)
            _watch(context, engine, client, before)
        finally:
            path.unlink(missing_ok=True)
    raise Stopped


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
    while not context.stopping:
        engine.check()
        time.sleep(POLL)
        now = time.monotonic()
        if now - since < METRIC_SECONDS:
            continue
        try:
            after = client.scrape()
        except (OSError, RequestRefused):
            # A dying engine shows in check(); one that is merely too busy is asked again.
            continue
        values = window(before, after, now - since).values()
        was_idle, idle = idle, not any(values.values())
        if not (idle and was_idle):
            context.journal.metric(round(now - begin, 1), **values)
        before, since = after, now


def write_private(path: Path, value: Any) -> None:
    """Write JSON that only its owner can read, whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(temporary, path)
