"""Several endpoints of one campaign, and one in the place of another, with a service of the tests."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from dataclasses import replace

import pytest

from eagle3_backend.control.chain import Ground, build_spec
from eagle3_backend.control.commands import Await, Endpoint, Open, Services, Start, Status, Stop, Swap, Tunnel
from eagle3_backend.control.snapshot import Gpu, Machine
from eagle3_backend.findings import FindingError
from eagle3_backend.pipeline.plan import plan_campaign
from eagle3_backend.profile import load
from eagle3_backend.states import LinkState, RunState

FITS = ("serve.context=512",)
DEEPER = (*FITS, "serve.depth=2")

LAPTOP = """
import sys, time
from pathlib import Path
from eagle3_backend.control import Control, chain
from eagle3_backend.control.commands import Open, Swap
root, real = Path(sys.argv[1]), chain.spec_of
stage = [sys.executable, str(root / "fake_stage.py"), "{run_directory}"]
chain.spec_of = lambda *arguments, **options: {**real(*arguments, **options), "argv": stage}
control = Control(root / "config-2", root / "state-2", root / "cache-2")
control.start()
control.submit(Open(root / "demo.toml", tuple(sys.argv[2:]))).result(120)
print(control.submit(Swap(("serve.depth=2",))).result(120).runs[0], flush=True)
time.sleep(600)
"""


@pytest.fixture
def serving(campaign):
    """A control with one endpoint at work."""
    control = campaign.control(settings=FITS)
    campaign.ask(control, Start("serve"))
    assert campaign.ask(control, Await("serve")).reached
    yield control
    for service in campaign.ask(control, Services(tunnels=False))["services"]:
        campaign.ask(control, Stop("serve", service["run"]))


def services(campaign, control):
    return campaign.ask(control, Services())["services"]


def who(base_url):
    with urllib.request.urlopen(base_url, timeout=10) as answer:
        return answer.read().decode()


def refused(campaign, control, command):
    with pytest.raises(FindingError) as problem:
        campaign.ask(control, command)
    return [finding.code for finding in problem.value.findings]


def test_two_endpoints_are_at_work_at_once_and_each_address_reaches_its_own(campaign, serving, wait_until):
    first = services(campaign, serving)[0]
    campaign.ask(serving, Open(campaign.profile, DEEPER))
    campaign.ask(serving, Start("serve"))
    assert campaign.ask(serving, Await("serve")).reached
    both = services(campaign, serving)
    assert [(each["planned"], each["ready"], each["depth"]) for each in both] == [(True, True, 2), (False, True, 3)]
    assert both[1] | {"planned": True} == first
    assert [who(each["base_url"]) for each in both] == [each["run"] for each in both]
    assert campaign.ask(serving, Endpoint(first["run"]))["base_url"] == first["base_url"]
    told = campaign.ask(serving, Status())["services"]
    assert sorted((each["run"], each["planned"]) for each in told) == sorted((e["run"], e["planned"]) for e in both)
    campaign.ask(serving, Stop("serve", first["run"]))
    wait_until(serving, lambda now: [each.run for each in now.services] == [both[0]["run"]])
    assert refused(campaign, serving, Stop("serve", first["run"])) == ["stage_not_running"]


def test_a_swap_stops_one_endpoint_and_starts_the_other_at_the_same_address(campaign, serving):
    (old,) = services(campaign, serving)
    started = campaign.ask(serving, Swap(("serve.depth=2",)))
    assert started.stages == ("serve",) and started.runs != (old["run"],)
    assert campaign.ask(serving, Await("serve")).reached
    (new,) = services(campaign, serving)
    assert (new["depth"], new["planned"], new["run"]) == (2, True, started.runs[0])
    assert new["base_url"] == old["base_url"]
    assert who(old["base_url"]) == new["run"]


def test_the_host_carries_a_swap_out_although_the_laptop_is_killed_as_soon_as_it_was_asked(
    campaign, serving, gateways, wait_until
):
    (old,) = services(campaign, serving)
    end = campaign.hold("end")
    laptop = subprocess.Popen(
        [sys.executable, "-c", LAPTOP, str(campaign.root), *FITS], stdout=subprocess.PIPE, text=True
    )
    run = laptop.stdout.readline().strip()
    (gateway,) = gateways(laptop.pid)
    laptop.kill()
    gateway.kill()
    laptop.wait()
    both = {(old["run"], RunState.STOPPING), (run, RunState.STARTING)}
    wait_until(serving, lambda now: {(each.run, each.state) for each in now.services} == both)
    end.unlink()
    wait_until(serving, lambda now: [(each.run, each.state) for each in now.services] == [(run, RunState.RUNNING)])


def test_a_swap_that_is_asked_for_again_is_the_first_one(campaign, serving):
    (old,) = services(campaign, serving)
    end = campaign.hold("end")
    first = campaign.ask(serving, Swap(("serve.depth=2",)))
    again = campaign.ask(serving, Swap(("serve.depth=2",), old["run"]))
    assert (again.runs, again.already_running, again.same_chain) == (first.runs, True, True)
    assert refused(campaign, serving, Swap(("serve.depth=4",), old["run"])) == ["swap_under_way"]
    end.unlink()
    assert campaign.ask(serving, Await("serve")).reached
    assert [each["run"] for each in services(campaign, serving)] == list(first.runs)


def test_a_swap_for_one_that_serves_beside_it_only_ends_the_other(campaign, serving, wait_until):
    (old,) = services(campaign, serving)
    campaign.ask(serving, Open(campaign.profile, DEEPER))
    (run,) = campaign.ask(serving, Start("serve")).runs
    assert campaign.ask(serving, Await("serve")).reached
    assert campaign.ask(serving, Swap((), old["run"])).already_running
    wait_until(serving, lambda now: [each.run for each in now.services] == [run])


def test_a_swap_that_would_be_refused_leaves_the_endpoint_at_work(campaign, serving):
    before = services(campaign, serving)
    assert refused(campaign, serving, Swap(("serve.context=8192",))) == ["context_too_long"]
    assert refused(campaign, serving, Swap(("serve.depth=3",))) == ["service_unchanged"]
    assert refused(campaign, serving, Swap(("serve.dept=3",))) == ["profile_key_unknown"]
    assert refused(campaign, serving, Swap((), "no-such-run")) == ["service_absent"]
    assert services(campaign, serving) == before


def test_a_drafter_that_is_not_there_or_of_the_other_layout_is_found_before_anything_is_stopped(campaign, serving):
    before = services(campaign, serving)
    adopted = f"export.adopt={campaign.drafter}"
    assert refused(campaign, serving, Swap(("export.adopt=/nowhere",)))[-1] == "drafter_missing"
    assert refused(campaign, serving, Swap((adopted, "serve.layout=nested"))) == ["drafter_missing"]
    assert services(campaign, serving) == before
    assert campaign.ask(serving, Swap((adopted,))).stages == ("export", "serve")
    assert campaign.ask(serving, Await("serve")).reached
    assert [each["run"] for each in services(campaign, serving)] != [before[0]["run"]]


def test_without_an_endpoint_there_is_nothing_to_swap(campaign):
    assert refused(campaign, campaign.control(), Swap(("serve.depth=2",))) == ["service_absent"]


def test_a_tunnel_and_its_link_outlive_another_opening_of_the_profile_and_a_cut(
    campaign, serving, wait_until, gateways
):
    (service,) = services(campaign, serving)
    local = campaign.ask(serving, Tunnel(service["host_port"]))["port"]
    campaign.ask(serving, Open(campaign.profile, DEEPER))
    assert who(f"http://127.0.0.1:{local}") == service["run"]
    since = serving.snapshot().host.since
    for gateway in gateways():
        gateway.kill()
    wait_until(serving, lambda now: now.host.link is LinkState.LIVE and now.host.since != since)
    assert who(f"http://127.0.0.1:{local}") == service["run"]


def test_a_second_endpoint_takes_gpus_that_nobody_holds(campaign):
    profile = load(campaign.profile)
    plan = plan_campaign("demo", "/w", profile.parameters, {"files": [], "published": []})
    gpus = tuple(Gpu(number, "H200", 0.0, 0, 1, 30.0, 100.0, f"GPU-{number}") for number in range(2))
    ground = Ground("python", "payload", Machine(gpus=gpus))
    taken = [
        build_spec(plan.stages["serve"], plan, profile.parameters, replace(ground, busy=busy), (), 1.0)["gpus"]
        for busy in (frozenset(), frozenset({"GPU-0"}), frozenset({"GPU-0", "GPU-1"}))
    ]
    assert taken == [["GPU-0"], ["GPU-1"], ["GPU-0"]]
