"""One server under its profiler: warmed up, profiled over a few steps of requests in flight, its traces found."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from eagle3_backend.engines.answers import POLL, Answer, Prompt, ask_all
from eagle3_backend.engines.launch import profile_request, with_profiler
from eagle3_backend.engines.plan import Plan
from eagle3_backend.findings import FindingError, error
from eagle3_backend.stages.bench_client import Client
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.engine_http import RequestRefused, command
from eagle3_backend.stages.engine_process import EngineProcess, unanswered

WARM_TOKENS = 8
WRITE_SECONDS = 300.0
"""How long an engine may take to write its traces: hundreds of megabytes are packed meanwhile."""
STILL_SECONDS = 2.0
"""A trace that has not grown for so long is written."""

_TEXTS = (
    "Write a long story about a lighthouse keeper who finds a letter.",
    "Explain step by step how a bicycle stays upright, as long as you can.",
    "Write a Python class for a queue with two stacks, and explain every line.",
    "Describe a week of travelling through Norway by train, day by day.",
    "List twenty ideas for saving energy at home and say why each helps.",
    "A farmer has 17 sheep and buys 5 more each month. Work out a year, month by month.",
    "Compare tea and coffee in detail: history, growing, taste, customs.",
    "Tell the life of a river from its spring to the sea, at length.",
)


def prompts(count: int) -> list[Prompt]:
    """So many prompts with long answers; more than there are texts differ by a number."""
    places = [divmod(number, len(_TEXTS)) for number in range(count)]
    return [
        Prompt(f"trace-{again}-{place}", "trace", _TEXTS[place] + (f" Version {again + 1}." if again else ""))
        for again, place in places
    ]


def profile_server(
    context: StageContext, model: Path, plan: Plan, directory: Path, tokens: int, told: Callable[[], None]
) -> tuple[list[Answer], list[Path], str]:
    """The answers of so many ``tokens`` that were profiled, the traces in ``directory``, and the engine's version.

    ``told`` is called at every answer, of which each prompt gets two. Raises FindingError, Stopped.
    """
    parameters = context.parameters
    shape = (str(directory), parameters.steps)
    with EngineProcess(with_profiler(plan, *shape), model=str(model), context=context) as process:
        client = Client(process.port, process.api_key, plan["engine"])

        def watch() -> None:
            context.leave_if_asked()
            process.check()

        try:
            version = client.version()
            asked = prompts(parameters.concurrency)
            _ask(client, asked, WARM_TOKENS, watch, told)
            command(process.port, process.api_key, "/start_profile", profile_request(plan["engine"], *shape))
            answers = _ask(client, asked, tokens, watch, told)
            if plan["engine"] == "vllm":
                # SGLang stops by itself, and refuses to stop once more.
                command(process.port, process.api_key, "/stop_profile", {}, WRITE_SECONDS)
            files = _written(directory, parameters.tensor_parallel, watch)
        except (OSError, RequestRefused) as problem:
            raise unanswered(problem, watch) from problem
    return answers, files, version


def _ask(
    client: Client, asked: Sequence[Prompt], tokens: int, watch: Callable[[], None], told: Callable[[], None]
) -> list[Answer]:
    """All prompts at once. Raises RequestRefused, OSError, and what ``watch`` raises."""
    answers = []
    for answer in ask_all(lambda prompt: client.chat(prompt, tokens), asked, len(asked), watch):
        told()
        if isinstance(answer, Answer):
            answers.append(answer)
    return answers


def _written(directory: Path, ranks: int, watch: Callable[[], None]) -> list[Path]:
    """The traces of so many ranks, once they are whole. Raises FindingError when there is none."""
    end = time.monotonic() + WRITE_SECONDS
    known: dict[Path, int] = {}
    since = time.monotonic()
    while time.monotonic() < end:
        watch()
        found = {path: path.stat().st_size for path in directory.rglob("*.json*") if path.suffix in (".json", ".gz")}
        if found != known:
            known, since = found, time.monotonic()
        elif len(known) >= ranks and time.monotonic() - since >= STILL_SECONDS:
            return sorted(known)
        time.sleep(POLL)
    if known:
        return sorted(known)
    raise FindingError(
        error(
            "trace_missing",
            "The engine was asked to profile, answered its requests, and wrote no trace.",
            path=str(directory),
            expected="*.json.gz",
            fix="Look in this run's log for the profiler's words; raise max_new_tokens if too few steps were run.",
        )
    )
