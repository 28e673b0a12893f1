"""What a campaign believes of its host when answers come in another order than they were asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path

from eagle3_backend.control.campaign import Campaign
from eagle3_backend.profile import load
from eagle3_backend.runs.store import Store
from eagle3_backend.states import LinkState

PROFILE = '[host]\naddress = "box"\n[target]\nmodel = "demo:smollm2-135m"\n'


class Session:
    """Answers the first question about runs only when it is let go."""

    state = LinkState.LIVE
    name = "box"

    def __init__(self) -> None:
        self.asked = 0
        self.let_go = asyncio.Event()

    async def request(self, op: str, **fields: object) -> dict[str, object]:
        if op == "artifacts":
            return {"artifacts": {}}
        self.asked += 1
        number = self.asked
        if number == 1:
            await self.let_go.wait()
        run = {"run": f"answer-{number}", "attempt": 1, "stage": "train", "campaign": "demo", "fingerprint": "f"}
        return {"runs": [{**run, "state": "running", "ended": None}]}


async def test_an_older_survey_that_comes_in_late_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    path = tmp_path / "demo.toml"
    path.write_text(PROFILE)
    session, store = Session(), Store(tmp_path / "runs.sqlite")
    campaign = Campaign(load(path), session, store, tmp_path / "logs", changed=lambda: None, tell=lambda event: None)
    late = asyncio.create_task(campaign.fresh_survey())
    await asyncio.sleep(0)
    await campaign.fresh_survey()
    session.let_go.set()
    await late
    assert [run["run"] for run in campaign.survey.runs] == ["answer-2"]
    store.close()
