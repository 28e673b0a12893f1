"""What a bench has measured, kept part by part, so that an attempt that was cut off is gone on with.

A part is an answer that tells its own verify steps (acceptance, lossless check, raw text), or a pair of rounds: the
same prompts with a way to draft and without it. Both halves of a pair are of one attempt, since they are compared: the
half of an unfinished pair is dropped. Parts are taken up by an attempt under exactly the same recipe alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eagle3_backend.engines.answers import Answer, Prompt, Refusal, Steps
from eagle3_backend.engines.cells import Way
from eagle3_backend.engines.metrics import Drafting
from eagle3_backend.engines.rounds import Round
from eagle3_backend.engines.timing import Timed
from eagle3_backend.pipeline.fingerprint import output_parameters
from eagle3_backend.stages.answers import AnswerFile

FILE = "parts.jsonl"
_RECIPE, _BUILD = "recipe", "build"


class AnotherBuild(Exception):
    """The engine that started is of another build than the one that the kept parts were measured with."""


class Kept:
    """The parts of a bench in ``directory``, as attempt ``attempt`` finds them and adds to them.

    ``recipe`` is everything that has to be equal before parts are taken up, as JSON values; ``begun_anew`` says why
    parts that were there are not taken up, empty where they are or there were none.
    """

    def __init__(self, directory: Path, attempt: int, recipe: Mapping[str, Any]) -> None:
        self.directory = directory
        self._path, self._attempt = directory / FILE, attempt
        self._lock = threading.Lock()
        self._recipe = json.loads(json.dumps(recipe))
        self.begun_anew = ""
        try:
            self._file = AnswerFile(self._path)
            there = self._file.rows
            different = _differences(there[_RECIPE]["recipe"], self._recipe) if there else []
        except (ValueError, KeyError, TypeError):
            self._begin_anew("they cannot be read")
        else:
            if different:
                self._begin_anew(f"these differ now: {', '.join(different)}")
            elif not there:
                self._add(_RECIPE, recipe=self._recipe)

    @property
    def build(self) -> str:
        """The version of the engine that measured, empty before the first start."""
        row = self._file.rows.get(_BUILD)
        return str(row["version"]) if row else ""

    @property
    def attempts(self) -> list[int]:
        """The attempts that measured what is kept, in order."""
        return sorted({row["attempt"] for row in self._parts})

    @property
    def answers(self) -> int:
        """How many answers are kept."""
        pairs = [row for row in self._parts if "drafted" in row]
        plain = {(row["attempt"], row["round"] if row["shared"] else row["id"]): row["plain"] for row in pairs}
        halves = [*(row["drafted"] for row in pairs), *plain.values()]
        return sum(len(half["answers"]) for half in halves) + sum("answer" in row for row in self._parts)

    def close(self) -> None:
        """Bring everything to the disk."""
        self._file.close()

    def take_build(self, version: str) -> None:
        """Note the build of the engine that measures. Raises AnotherBuild, after forgetting what another measured."""
        with self._lock:
            if self.build == version:
                return
            before = self.build
            if before:
                self._begin_anew(f"the engine was {before}, and is {version} now")
            self._add(_BUILD, version=version)
        if before:
            raise AnotherBuild

    def void(self) -> None:
        """Forget everything: what was measured says nothing."""
        self._begin_anew("")

    def answer(self, part: str, prompt: Prompt) -> Answer | Refusal | None:
        """What came back for a prompt in this part, None where it has to be asked."""
        row = self._file.rows.get(_of_answer(part, prompt))
        if row is None:
            return None
        return Refusal(prompt, row["refusal"]) if "refusal" in row else _answer(row["answer"], prompt)

    def keep_answer(self, part: str, answer: Answer | Refusal) -> None:
        told: dict[str, Any] = {"refusal": answer.reason} if isinstance(answer, Refusal) else {"answer": _plain(answer)}
        self._add(_of_answer(part, answer.prompt), **told)

    def counters(self, part: str) -> Drafting | None:
        """What the counters grew by over a whole prompt set, None where it is not finished."""
        row = self._file.rows.get(f"counters/{part}")
        return _drafting(row["counters"]) if row else None

    def keep_counters(self, part: str, counters: Drafting) -> None:
        self._add(f"counters/{part}", counters=asdict(counters))

    def pair(self, way: Way, concurrency: int, number: int, prompts: Sequence[Prompt]) -> tuple[Timed, Timed] | None:
        """(drafted, plain) of a round with these prompts, None where it has to be measured."""
        row = self._file.rows.get(_of_pair(way, concurrency, number))
        if row is None:
            return None
        return _timed(row["drafted"], prompts), _timed(row["plain"], prompts)

    def keep_pair(
        self,
        way: Way,
        concurrency: int,
        number: int,
        prompts: Sequence[Prompt],
        pair: tuple[Timed, Timed],
        *,
        shared: bool,
    ) -> None:
        """``shared``: the plain round stands beside other ways, too."""
        drafted, plain = (_plain_timed(half, prompts) for half in pair)
        place = f"{concurrency}/{number}"
        self._add(_of_pair(way, concurrency, number), drafted=drafted, plain=plain, shared=shared, round=place)

    @property
    def _parts(self) -> Iterable[Mapping[str, Any]]:
        return [row for name, row in self._file.rows.items() if name not in (_RECIPE, _BUILD)]

    def _add(self, name: str, **values: Any) -> None:
        self._file.append({"id": name, "attempt": self._attempt, **values})

    def _begin_anew(self, why: str) -> None:
        if hasattr(self, "_file"):
            self._file.close()
        self._path.unlink()
        self._file = AnswerFile(self._path)
        self.begun_anew = why
        self._add(_RECIPE, recipe=self._recipe)


def recipe_of(
    spec: Mapping[str, Any],
    parameters: Any,
    plans: Mapping[str, Mapping[str, Any]],
    directories: Iterable[Path],
    prompts: Mapping[str, Sequence[Prompt]],
) -> dict[str, Any]:
    """Everything that a measurement depends on and can be known before an engine starts: what was asked for, the
    servers' plans by name, the ``directories`` that they read, the prompts by part, and this machine."""
    return {
        "stage_version": spec["stage_version"],
        "inputs": spec.get("input_fingerprints"),
        "parameters": output_parameters(parameters),
        "servers": {name: [plan["argv"], plan["env"]] for name, plan in plans.items()},
        "files": {str(directory): _files(directory) for directory in directories},
        "prompts": {name: [_digest(prompt) for prompt in some] for name, some in prompts.items()},
        "machine": _machine(),
    }


def _files(directory: Path) -> list[list[Any]]:
    """Name, size and time of change of each file: what a directory holds, without reading weights."""
    found = sorted(path for path in directory.rglob("*") if path.is_file())
    return [[path.relative_to(directory).as_posix(), path.stat().st_size, path.stat().st_mtime_ns] for path in found]


def _machine() -> dict[str, Any]:
    """Speeds of two machines make no pair."""
    cards = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    models = [line.split(":", 1)[1].strip() for card in cards for line in card.read_text().splitlines()[:1]]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {"name": platform.node(), "cores": len(os.sched_getaffinity(0)), "gpus": models, "visible_gpus": visible}


def _differences(there: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What two recipes do not have in common, by name, a level deep."""
    found = []
    for name in sorted({*there, *now}):
        old, new = there.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            found += [f"{name}.{key}" for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        elif old != new:
            found.append(name)
    return found


def _digest(prompt: Prompt) -> str:
    return hashlib.sha256(json.dumps(asdict(prompt), sort_keys=True).encode()).hexdigest()[:16]


def _of_answer(part: str, prompt: Prompt) -> str:
    return f"answer/{part}/{_digest(prompt)}"


def _of_pair(way: Way, concurrency: int, number: int) -> str:
    return f"pair/{way.name}/{way.directory}/{way.depth}/{concurrency}/{number}"


def _plain(answer: Answer) -> dict[str, Any]:
    """An answer without its prompt, as JSON values."""
    return {name: value for name, value in asdict(answer).items() if name != "prompt"}


def _answer(row: Mapping[str, Any], prompt: Prompt) -> Answer:
    steps = row["steps"]
    return Answer(
        prompt=prompt,
        prompt_tokens=tuple(row["prompt_tokens"]),
        tokens=tuple(row["tokens"]),
        text=row["text"],
        finish_reason=row["finish_reason"],
        seconds=row["seconds"],
        steps=Steps(steps["count"], steps["accepted"], tuple(steps["histogram"]), tuple(steps["in_order"])),
        generated=row["generated"],
        arrivals=tuple((seconds, tokens) for seconds, tokens in row["arrivals"]),
    )


def _drafting(row: Mapping[str, Any]) -> Drafting:
    return Drafting(**{**row, "by_position": tuple(row["by_position"])})


def _plain_timed(timed: Timed, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """A round as JSON values; each answer with the place of its prompt among those of the round."""
    found = timed.round
    return {
        "seconds": timed.seconds,
        "counters": asdict(found.counters),
        "others": found.others,
        "reset": found.reset,
        "depth": found.depth,
        "answers": [{"place": prompts.index(answer.prompt), **_plain(answer)} for answer in found.answers],
    }


def _timed(row: Mapping[str, Any], prompts: Sequence[Prompt]) -> Timed:
    answers = tuple(_answer(answer, prompts[answer["place"]]) for answer in row["answers"])
    return Timed(Round(answers, _drafting(row["counters"]), row["others"], row["reset"], row["depth"]), row["seconds"])
