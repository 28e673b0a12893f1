"""What an attempt was started with, on the stage screen."""

from __future__ import annotations

from rich.text import Text

from eagle3_backend.control.commands import Specification
from eagle3_tui.specfacts import spec_lines
from eagle3_tui.theme import DARK, Look


def told(spec: dict) -> str:
    return Text("\n").join(spec_lines(spec, Look(DARK, False), 60)).plain


async def test_the_stage_screen_shows_command_environment_and_inputs_of_the_attempt(show) -> None:
    async with show("train", (80, 24)) as panel:
        await panel.press("enter")
        shown = ""
        for _ in range(6):
            shown += panel.text()
            await panel.press("pagedown")
        assert any(isinstance(one, Specification) for one in panel.source.commands)
        for words in (
            "Spec  attempt",
            "command /data/eagle3/envs/train",
            "CUDA_VISIBLE_DEVICES=0,1",
            "extract",
            "77ad",
        ):
            assert words in shown, words


def test_values_of_secrets_are_not_shown() -> None:
    shown = told(
        {"env": {"HF_TOKEN": "hf_abc", "RANK": "0"}, "engine": {"argv": ["vllm"], "env": {"VLLM_API_KEY": "k9"}}}
    )
    assert "HF_TOKEN=(not shown)" in shown and "VLLM_API_KEY=(not shown)" in shown and "RANK=0" in shown
    assert "hf_abc" not in shown and "k9" not in shown


def test_a_long_command_is_whole() -> None:
    options = [f"--option-{number}" for number in range(40)]
    shown = told({"argv": ["python", *options]})
    assert all(option in shown for option in options)


def test_a_spec_of_another_shape_breaks_nothing() -> None:
    assert "environment" in told(
        {"argv": 7, "env": ["x"], "engine": "no", "gpus": 3, "accepted": {}, "input_fingerprints": 1}
    )
