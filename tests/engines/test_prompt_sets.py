from __future__ import annotations

from eagle3_backend.engines.answers import Prompt
from eagle3_backend.engines.prompt_sets import (
    alternating,
    evenly,
    prompts_of,
    sample,
    set_hash,
)


def prompts(**counts: int) -> list[Prompt]:
    return [
        Prompt(f"{source}-{number}", source, f"{source} {number}")
        for source, count in counts.items()
        for number in range(count)
    ]


def test_sources_are_taken_evenly_while_they_last() -> None:
    chosen = evenly(prompts(alpaca=80, mt_bench=80, small=2), 12, seed=1)
    assert len(chosen) == 12
    counts = {name: sum(each.source == name for each in chosen) for name in ("alpaca", "mt_bench", "small")}
    assert counts == {"alpaca": 5, "mt_bench": 5, "small": 2}


def test_the_choice_repeats_with_the_seed_and_changes_with_it() -> None:
    everything = prompts(alpaca=80)
    assert evenly(everything, 10, seed=1) == evenly(everything, 10, seed=1)
    assert evenly(everything, 10, seed=1) != evenly(everything, 10, seed=2)


def test_a_sample_keeps_the_mixture_of_the_whole() -> None:
    chosen = sample(prompts(common=900, rare=100), 200, seed=1)
    assert len(set(chosen)) == 200
    assert 5 <= sum(each.source == "rare" for each in chosen) <= 40


def test_more_prompts_than_there_are_gives_all_of_them() -> None:
    assert len(evenly(prompts(alpaca=3), 120, seed=0)) == 3


def test_speed_prompts_alternate_between_the_sets() -> None:
    sets = {"in_domain": prompts(a=5), "published": prompts(b=2)}
    assert [prompt.source for prompt in alternating(sets, 6)] == ["a", "b", "a", "b", "a", "a"]


def test_only_the_first_turn_is_asked() -> None:
    (prompt,) = prompts_of([{"id": 81, "source": "mt_bench", "turns": ["First.", "Second."]}])
    assert prompt == Prompt("81", "mt_bench", "First.")


def test_a_system_message_goes_before_the_user() -> None:
    (prompt,) = prompts_of([{"id": 1, "source": "chat", "turns": ["Hello."], "system": "Be brief."}])
    assert [message["role"] for message in prompt.messages] == ["system", "user"]


def test_another_prompt_is_another_set() -> None:
    assert set_hash({"a": prompts(x=2)}) != set_hash({"a": prompts(x=3)})
