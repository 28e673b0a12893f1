"""Whole screens, compared as text with pictures kept beside this file; EAGLE3_UPDATE=1 writes them again."""

from __future__ import annotations

import pytest

from eagle3_backend.control.commands import Attempts
from eagle3_tui import candidates

SIZES = [(80, 24), (120, 40), (200, 60)]
SCENES = ["empty", "refused", "train", "first", "cpu", "reconnecting", "failed", "done", "key_unknown"]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("scene", SCENES)
async def test_the_dashboard_looks_as_it_did(show, compare, scene, size) -> None:
    async with show(scene, size) as panel:
        compare(f"dashboard-{scene}-{size[0]}x{size[1]}", panel.lines())


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_stage_screen_looks_as_it_did(show, compare, size) -> None:
    async with show("failed", size) as panel:
        await panel.press("enter")
        await panel.settle()
        compare(f"stage-failed-{size[0]}x{size[1]}", panel.lines())


async def test_help_and_ascii_look_as_they_did(show, compare) -> None:
    async with show("train", (80, 24), ascii_only=True) as panel:
        compare("dashboard-ascii-80x24", panel.lines())
        await panel.press("question_mark")
        compare("help-ascii-80x24", panel.lines())


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_the_diff_looks_as_it_did(show, compare, size) -> None:
    from eagle3_tui.choosing import Choosing

    async with show("done", size) as panel:
        flat, nested = candidates.artifacts(panel.app.picture)
        await Choosing(panel.app)._show(flat, nested)
        await panel.settle()
        compare(f"diff-drafters-{size[0]}x{size[1]}", panel.lines())
        await panel.press("enter")
        compare(f"diff-files-{size[0]}x{size[1]}", panel.lines())


async def test_the_diff_of_runs_in_ascii_looks_as_it_did(show, compare) -> None:
    from eagle3_tui.choosing import Choosing
    from eagle3_tui.mockdiff import answer

    async with show("train", (80, 24), ascii_only=True) as panel:
        newer, _, older = candidates.runs(answer(Attempts()))
        await Choosing(panel.app)._show(newer, older)
        await panel.settle()
        await panel.press("equals_sign")
        compare("diff-runs-ascii-80x24", panel.lines())
