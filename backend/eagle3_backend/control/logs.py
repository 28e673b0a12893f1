"""Answers from logs: stretches for the commands, blocks of lines for the panel."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Any

from eagle3_backend.control import commands
from eagle3_backend.control.acts import attempt_of
from eagle3_backend.control.campaign import Campaign
from eagle3_backend.remote.link import LinkLost
from eagle3_backend.runs.follower import LOG, READ_BYTES
from eagle3_backend.runs.loglines import LogLines
from eagle3_backend.runs.logreader import LogBlock, Matcher, block_of, place_of
from eagle3_backend.runs.segments import Segments

FETCH_BYTES = 4 * 1024 * 1024
"""What one wish for a skipped part brings from the host."""


async def read(campaign: Campaign, command: commands.ReadLog) -> LogBlock:
    """The answer to `ReadLog`. Raises FindingError; LinkLost when something is to be fetched."""
    view, attempt = attempt_of(campaign, command.stage, command.attempt)
    assert campaign.following is not None
    segments = campaign.following.segments(view.run, attempt)
    match = Matcher(command.match) if command.match else None
    if command.fetch:
        await _fetch(campaign, segments, view.run, attempt, command.at)
    block = await asyncio.to_thread(block_of, segments, command.at, command.count, match, ahead=command.ahead)
    return replace(block, generation=segments.generation())


async def find_time(campaign: Campaign, command: commands.FindLogTime) -> int:
    """The answer to `FindLogTime`. Raises FindingError."""
    view, attempt = attempt_of(campaign, command.stage, command.attempt)
    assert campaign.following is not None
    return await asyncio.to_thread(place_of, campaign.following.segments(view.run, attempt), command.clock)


async def _fetch(campaign: Campaign, segments: Segments, run: str, attempt: int, at: int | None) -> None:
    """Bring the newest bytes of the hole that ends at ``at``. Raises LinkLost, FindingError."""
    end = at if at is not None else segments.end() or 0
    floor = max((start + length for start, length in segments.parts() if start < end), default=0)
    if floor >= end:
        floor = max((start + length for start, length in segments.parts() if start + length < end), default=0)
    position = max(floor, end - FETCH_BYTES)
    while position < end:
        answer = await _read(campaign, run, attempt, position, min(READ_BYTES, end - position))
        data = base64.b64decode(answer["data"])
        if not data or answer["generation"] != segments.generation():
            return
        segments.write(answer["generation"], position, data)
        position += len(data)


async def stretch(campaign: Campaign, command: commands.Logs) -> dict[str, Any]:
    """The answer to `Logs`. Raises FindingError `run_absent`."""
    view, attempt = attempt_of(campaign, command.stage, command.attempt)
    offset = command.offset
    if offset is None:
        end = await _read(campaign, view.run, attempt, 0, 0)
        offset = max(0, int(end["size"]) - command.length)
    answer = await _read(campaign, view.run, attempt, offset, command.length)
    data = base64.b64decode(answer["data"])
    begin = data.find(b"\n") + 1 if command.offset is None and offset > 0 else 0
    parser = LogLines()
    lines = parser.feed(data[begin:])
    return {
        "stage": command.stage,
        "run": view.run,
        "attempt": attempt,
        "generation": answer["generation"],
        "offset": offset,
        "next_offset": offset + data.rfind(b"\n") + 1 if b"\n" in data else offset,
        "size": answer["size"],
        "lines": lines,
        "partial": parser.partial,
        "data": data,
    }


async def _read(campaign: Campaign, run: str, attempt: int, offset: int, length: int) -> dict[str, Any]:
    """From the host; without a link, what the laptop has of it."""
    try:
        return await campaign.session.request("read", run=run, attempt=attempt, file=LOG, offset=offset, length=length)
    except LinkLost:
        assert campaign.following is not None
        segments = campaign.following.segments(run, attempt)
        data = base64.b64encode(segments.read(offset, length)).decode()
        return {"generation": segments.generation(), "offset": offset, "data": data, "size": segments.end() or 0}
