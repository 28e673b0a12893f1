"""generate: the target answers the prompts, token for token, and its hidden states are dumped in the same pass.

One row for each assistant turn, written when it is finished. An earlier attempt's rows are kept and never asked again;
errors stand apart and are asked again. The engine's own token ids make the row: nothing is tokenised twice. Answers
that prompt files bring may be adopted instead; the engine is started only for what is left.
"""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch

from eagle3_backend.engines.launch import with_capture
from eagle3_backend.engines.plan import SERVED_NAME
from eagle3_backend.findings import FindingError, error, warning
from eagle3_backend.pipeline.artifacts import write_json
from eagle3_backend.pipeline.parameters import GenerateParameters
from eagle3_backend.pipeline.rows import assistant_message, begins_twice, bos_findings
from eagle3_backend.stages.adopted_answers import ADOPTED, AnswerRows, brings_answers, not_regenerated
from eagle3_backend.stages.answers import (
    SPLITS,
    AnswerFile,
    mode_of,
    read_rows,
    reason_to_drop,
    row_id,
)
from eagle3_backend.stages.captures import CaptureFailed, take
from eagle3_backend.stages.context import StageContext
from eagle3_backend.stages.disk import Watch, check_forecast
from eagle3_backend.stages.engine_http import RequestRefused, request
from eagle3_backend.stages.engine_process import EngineProcess

TRIES = 3
"""Requests for one answer before it counts as an error."""
FREE_FLOOR = 1024**3
"""Disk space that is left free, bytes."""
ERROR_SHARE = 0.02
"""Share of errors above which they are worth a warning."""


def run(context: StageContext) -> None:
    """Write train.jsonl and holdout.jsonl with captures beside them. Raises FindingError, Stopped."""
    torch.set_num_threads(1)
    work = Generation(context)
    try:
        work.adopt()
        todo = [(split, row) for split in SPLITS for row in work.unfinished(split)]
        if todo:
            work.ask_all(todo)
    finally:
        work.close()
    work.finish()


class Generation:
    """One attempt: its files, its counts, and the requests in flight."""

    def __init__(self, context: StageContext) -> None:
        self.context = context
        self.parameters: GenerateParameters = context.parameters
        self.facts = json.loads((context.inputs["target"] / "facts.json").read_text(encoding="utf-8"))
        self.layer_ids = [*self.facts["aux_layers"], self.facts["layers"]]
        self.raw = context.output / "raw"
        self.captures = context.output / "captures"
        shutil.rmtree(self.raw, ignore_errors=True)
        if self.parameters.capture:
            self.raw.mkdir()
            self.captures.mkdir(exist_ok=True)
        self.answers = {split: AnswerFile(context.output / f"{split}.jsonl") for split in SPLITS}
        self.dropped = AnswerFile(context.output / "dropped.jsonl")
        (context.output / "errors.jsonl").unlink(missing_ok=True)
        self.errors = AnswerFile(context.output / "errors.jsonl")
        self.sampling = {"temperature": self.parameters.temperature, "max_tokens": self.parameters.max_new_tokens}
        self.prompts = {split: read_rows(context.inputs["prompts"] / f"{split}.jsonl") for split in SPLITS}
        self.total = sum(len(row["turns"]) for rows in self.prompts.values() for row in rows)
        self.tokens = 0
        self._leaving = threading.Event()
        self._lock = threading.Lock()

    def _next_turn(self, split: str, prompt: dict[str, Any]) -> tuple[int, list[dict[str, Any]], str] | None:
        """The first turn of a prompt without a final status: its number, the messages to send, and its row's id.

        Finished turns are walked through by their ids, since an id holds the messages that led to it.
        """
        system = prompt.get("system")
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        for turn, text in enumerate(prompt["turns"]):
            messages = [*messages, {"role": "user", "content": text}]
            name = row_id(messages, self.sampling, self.facts["revision"], self.facts["template_hash"])
            if name in self.dropped.rows:
                return None
            if name not in self.answers[split].rows:
                return turn, messages, name
            messages = [*messages, self.answers[split].rows[name]["messages"][-1]]
        return None

    def unfinished(self, split: str) -> list[dict[str, Any]]:
        """The prompts of a split with a turn that the target has to answer yet."""
        return [prompt for prompt in self.prompts[split] if not self._adopts(prompt) and self._next_turn(split, prompt)]

    def _adopts(self, prompt: dict[str, Any]) -> bool:
        return self.parameters.adopt and brings_answers(prompt)

    def adopt(self) -> None:
        """Write the rows of all answers that are taken as they are. Raises FindingError, Stopped."""
        todo = [(split, prompt) for split in SPLITS for prompt in self.prompts[split] if self._adopts(prompt)]
        if not todo:
            return
        maker = AnswerRows(self.context.inputs["target"], self.facts, self.parameters.context)
        pace = Pace(self.context, self)
        for split, prompt in todo:
            rows, dropped = maker.of(prompt)
            for row in rows:
                self._keep(split, row)
            if dropped:
                self.dropped.append(dropped)
            pace.show()
            self.context.leave_if_asked()

    @property
    def done(self) -> int:
        """Turns with a final status; a dropped turn ends its conversation."""
        return sum(len(file.rows) for file in (*self.answers.values(), self.dropped, self.errors))

    def ask_all(self, todo: list[tuple[str, dict[str, Any]]]) -> None:
        """Start the engine and work through the prompts; whatever happens, the engine is ended."""
        plan = self.context.spec["engine"]
        if self.parameters.capture:
            check_forecast(self.context.output, self._forecast(todo), FREE_FLOOR)
            plan = with_capture(plan, self.layer_ids, str(self.raw))
        with EngineProcess(plan, model=self.facts["model"], context=self.context) as engine:
            self._work(engine, todo)

    def _forecast(self, todo: list[tuple[str, dict[str, Any]]]) -> int:
        """Bytes of the captures: prompt tokens are guessed from characters, answers may all be of full length."""
        characters = sum(len(text) for _, prompt in todo for text in prompt["turns"])
        turns = sum(len(prompt["turns"]) for _, prompt in todo)
        tokens = characters // 4 + turns * (self.parameters.max_new_tokens + 40)
        return tokens * len(self.layer_ids) * int(self.facts["hidden_size"]) * 2

    def _work(self, engine: EngineProcess, todo: list[tuple[str, dict[str, Any]]]) -> None:
        pool = ThreadPoolExecutor(max_workers=self.parameters.concurrency)
        pace = Pace(self.context, self)
        watch = Watch(self.context.output, FREE_FLOOR)
        try:
            waiting = {pool.submit(self._converse, engine, split, prompt) for split, prompt in todo}
            while waiting:
                done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                self.context.leave_if_asked()
                engine.check()
                watch.check()
                _raise_first(done)
                pace.show()
        finally:
            # Threads wait for answers: they come to an end with the engine, and write nothing any more.
            self._leaving.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _converse(self, engine: EngineProcess, split: str, prompt: dict[str, Any]) -> None:
        """Answer the turns of one conversation, one after the other."""
        while not self._leaving.is_set():
            found = self._next_turn(split, prompt)
            if found is None or not self._answer(engine, split, prompt, *found):
                return

    def _answer(
        self,
        engine: EngineProcess,
        split: str,
        prompt: dict[str, Any],
        turn: int,
        messages: list[dict[str, Any]],
        name: str,
    ) -> bool:
        """Ask for one turn and write its row; True when the conversation goes on."""
        problem: Exception | None = None
        for _ in range(TRIES):
            try:
                row = self._ask(engine, messages, name)
            except RequestRefused as refused:
                if refused.status == 400:
                    reason = "prompt_too_long" if "context length" in refused.text else "request_refused"
                    self._drop(prompt, turn, name, reason, refused.text)
                    return False
                problem = refused
            except (OSError, CaptureFailed, KeyError, ValueError) as failed:
                problem = failed
            else:
                reason = reason_to_drop(row["messages"][-1], row["finish_reason"], self.parameters.keep_cut)
                if reason:
                    self._drop(prompt, turn, name, reason, "")
                    (self.captures / f"{name}.safetensors").unlink(missing_ok=True)
                    return False
                self._keep(split, {**row, "source": prompt["source"], "prompt": prompt["id"], "turn": turn})
                return True
            if self._leaving.is_set():
                return False
            time.sleep(0.5)
        self.errors.append({"id": name, "prompt": prompt["id"], "turn": turn, "error": str(problem)[:1000]})
        return False

    def _ask(self, engine: EngineProcess, messages: list[dict[str, Any]], name: str) -> dict[str, Any]:
        """One request; the row without its place in the prompt set. The mask covers what was sampled, and no more."""
        body = {"model": SERVED_NAME, "messages": messages, "return_token_ids": True, **self.sampling}
        if self.parameters.capture:
            body["kv_transfer_params"] = {"include_output_tokens": True}
        answer = request(engine.port, engine.api_key, "POST", "/v1/chat/completions", body)
        choice = answer["choices"][0]
        message = assistant_message(choice["message"])
        start = len(answer["prompt_token_ids"])
        ids = [*answer["prompt_token_ids"], *choice["token_ids"]]
        if self.parameters.capture:
            path = Path(answer["kv_transfer_params"]["hidden_states_path"])
            take(path, self.raw, ids[:-1], len(self.layer_ids), self.captures / f"{name}.safetensors")
        return {
            "id": name,
            "messages": [*messages, message],
            "input_ids": ids,
            "loss_mask": [[start, len(ids)]],
            "finish_reason": choice["finish_reason"],
            "mode": mode_of(message),
            "usage": answer["usage"],
        }

    def _keep(self, split: str, row: dict[str, Any]) -> None:
        if not self._leaving.is_set():
            self.answers[split].append(row)
            with self._lock:
                self.tokens += int(row["usage"]["completion_tokens"])

    def _drop(self, prompt: dict[str, Any], turn: int, name: str, reason: str, text: str) -> None:
        self.dropped.append({"id": name, "prompt": prompt["id"], "turn": turn, "reason": reason, "text": text[:500]})

    def close(self) -> None:
        for file in (*self.answers.values(), self.dropped, self.errors):
            file.close()
        shutil.rmtree(self.raw, ignore_errors=True)

    def finish(self) -> None:
        """Judge what came out and write the manifest."""
        context, rows = self.context, {split: list(file.rows.values()) for split, file in self.answers.items()}
        everything = [row for found in rows.values() for row in found]
        reasons = Counter(row["reason"] for row in self.dropped.rows.values())
        if reasons["prompt_too_long"]:
            context.report(
                warning(
                    "prompt_too_long",
                    f"{reasons['prompt_too_long']} prompts do not fit into {self.parameters.context} tokens with their "
                    f"answers (up to {self.parameters.max_new_tokens} tokens where sampled); they were left out.",
                    path="stages.generate.context",
                    expected=self.parameters.context,
                    actual=reasons["prompt_too_long"],
                    fix="Raise generate.context, or lower prompts.max_characters.",
                )
            )
        if len(self.errors.rows) > ERROR_SHARE * self.total:
            first = next(iter(self.errors.rows.values()))["error"]
            context.report(
                warning(
                    "generation_errors",
                    f"{len(self.errors.rows)} of {self.total} answers failed; the first: {first[:300]}",
                    path="errors.jsonl",
                    actual=len(self.errors.rows),
                    fix="Run the stage again with R (restart) once the cause is gone; the rest is usable.",
                )
            )
        if not rows["train"]:
            raise FindingError(
                error(
                    "conversations_empty",
                    f"No answer can be trained on. Dropped: {dict(reasons)}; errors: {len(self.errors.rows)}.",
                    path="train.jsonl",
                    fix="Look at dropped.jsonl and errors.jsonl in the stage's folder.",
                )
            )
        doubled = sum(begins_twice(row["input_ids"], self.facts.get("bos")) for row in everything)
        context.refuse(*bos_findings(doubled, len(everything), self.facts.get("bos")))
        adopted = sum(row["finish_reason"] == ADOPTED for row in everything)
        if adopted:
            context.report(not_regenerated(adopted))
        modes = Counter(row["mode"] for row in rows["train"])
        if self.parameters.capture:
            write_json(context.output / "captures.json", {"layer_ids": self.layer_ids})
        context.finish(
            {
                **{split: len(found) for split, found in rows.items()},
                "tokens": sum(len(row["input_ids"]) for row in everything),
                "answer_tokens": sum(end - start for row in everything for start, end in row["loss_mask"]),
                "dropped": dict(reasons),
                "errors": len(self.errors.rows),
                "adopted": adopted,
                "modes": dict(modes),
                "temperature": self.parameters.temperature,
            }
        )


def _raise_first(done: set[Future[None]]) -> None:
    for future in done:
        future.result()


class Pace:
    """Progress once a second, throughput every ten."""

    def __init__(self, context: StageContext, work: Generation) -> None:
        self._context = context
        self._work = work
        self._begin = time.monotonic()
        self._first = work.done
        self._shown = 0.0
        self._measured = (self._begin, 0)

    def show(self) -> None:
        now = time.monotonic()
        if now - self._shown < 1.0:
            return
        self._shown = now
        done, tokens = self._work.done, self._work.tokens
        rate = (done - self._first) / max(now - self._begin, 1e-9)
        self._context.journal.progress(done, self._work.total, "answers", rate)
        then, before = self._measured
        if now - then >= 10.0:
            self._measured = (now, tokens)
            speed = (tokens - before) / (now - then)
            self._context.journal.metric(done, **{"generate/tokens_per_second": speed})
