from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eagle3_backend.pipeline.plan import plan_campaign
from eagle3_backend.pipeline.smoke import SAMPLES, smoke
from eagle3_backend.profile import load

LOCAL = Path(__file__).parents[2] / "profiles" / "local.toml"
SAME = {"setup", "target"}


def test_a_smoke_campaign_shares_environments_and_target_and_nothing_else():
    parameters = load(LOCAL).parameters
    whole = plan_campaign("demo", "/w", parameters, {}).stages
    small = plan_campaign("demo", "/w", smoke(parameters), {}).stages
    equal = {name for name in whole if whole[name].fingerprint == small[name].fingerprint}
    assert equal == SAME


def test_ten_samples_go_through():
    small = smoke(load(LOCAL).parameters)
    assert small["prompts"].limit == SAMPLES == 10
    assert small["bench"].in_domain + small["bench"].published <= SAMPLES


def test_a_campaign_that_is_smaller_already_keeps_its_values():
    parameters = dict(load(LOCAL).parameters)
    parameters["prompts"] = replace(parameters["prompts"], limit=3, holdout=1)
    parameters["bench"] = replace(parameters["bench"], in_domain=2)
    small = smoke(parameters)
    assert (small["prompts"].limit, small["prompts"].holdout, small["bench"].in_domain) == (3, 1, 2)


def test_the_given_parameters_are_not_changed():
    parameters = load(LOCAL).parameters
    before = dict(parameters)
    smoke(parameters)
    assert parameters == before
