"""Is this training data usable?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runner import Answer

from eagle3_backend.engines.training_log import TrainingLog
from eagle3_backend.pipeline import rows
from eagle3_backend.pipeline.judgement import Judgement


def run(folder: Path, given: dict[str, Any]) -> Answer:
    judged = [_judge(folder, given)]
    if "log" in given:
        judged.append(_log(folder / given["log"]))
    values = {name: value for each in judged for name, value in each.values.items()}
    return Answer(tuple(finding for each in judged for finding in each.findings), values)


def _judge(folder: Path, given: dict[str, Any]) -> Judgement:
    if "chat_template" in given:
        name = given["chat_template"]
        return Judgement(tuple(rows.template_findings(name, (folder / name).read_text(encoding="utf-8"))))
    if "responses" in given:
        names = {"opening": "think_open", "closing": "think_close", "join": "join"}
        options = {name: given[key] for name, key in names.items() if key in given}
        return rows.judge_answers(_rows(folder / given["responses"]), **options)
    if "tokenized" in given:
        return rows.judge_tokens(_rows(folder / given["tokenized"]), given.get("bos_token_id"), given.get("max_length"))
    template = given["template"]
    return rows.judge_texts(_rows(folder / given["data"]), template["assistant_header"], template["end_of_turn"])


def _log(path: Path) -> Judgement:
    log = TrainingLog()
    log.feed_bytes(path.read_bytes())
    log.close()
    diagnosis = log.diagnose()
    return Judgement(
        diagnosis.findings, {"last_step": diagnosis.facts["done"], "total_steps": diagnosis.facts["total"]}
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
