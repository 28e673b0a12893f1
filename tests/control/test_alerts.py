"""When a person is called, once for each trouble, and that a webhook hears of it or says why not."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from eagle3_backend.control.alerts import (
    CALM_SECONDS,
    IDLE_SECONDS,
    LINK_SECONDS,
    STALL_SECONDS,
    Alert,
    Alerts,
    Notices,
    Quiet,
)
from eagle3_backend.control.commands import Await, Start
from eagle3_backend.control.snapshot import ALERT, Gpu, HostView, Machine, Snapshot, StageView
from eagle3_backend.control.webhook import Webhook
from eagle3_backend.findings import error
from eagle3_backend.states import LinkState, RunState

LIVE = HostView("box", LinkState.LIVE)
TOKEN = "s3cr3t-t0k3n"


def picture(*views: StageView, host: HostView = LIVE) -> Snapshot:
    return Snapshot(version=1, host=host, stages=views)


def stage(name: str, state: RunState, **values) -> StageView:
    return StageView(name, name, state, run=name, **values)


def test_an_end_rings_once_and_the_first_picture_never() -> None:
    alerts = Alerts()
    assert alerts.observe(picture(stage("train", RunState.DONE)), 0.0) == []
    assert alerts.observe(picture(stage("bench", RunState.RUNNING)), 1.0) == []
    assert alerts.observe(picture(stage("bench", RunState.FAILED, remark="exit 137")), 2.0) == [
        Alert("failed", "bench", "failed: exit 137")
    ]
    assert alerts.observe(picture(stage("bench", RunState.FAILED, remark="exit 137")), 3.0) == []


def test_a_lost_link_is_no_end() -> None:
    alerts = Alerts()
    alerts.observe(picture(stage("train", RunState.RUNNING)), 0.0)
    assert alerts.observe(picture(stage("train", RunState.UNKNOWN, last_state=RunState.RUNNING)), 1.0) == []
    assert alerts.observe(picture(stage("train", RunState.DONE)), 2.0) == [Alert("done", "train", "done", "ok")]


def test_a_trouble_that_flickers_rings_once() -> None:
    alerts = Alerts()
    full = picture(host=replace(LIVE, machine=Machine(disk_free=1, disk_total=1000)))
    rung = [len(alerts.observe(full if second % 2 else picture(), float(second))) for second in range(20)]
    assert sum(rung) == 1
    alerts.observe(picture(), 21.0 + CALM_SECONDS)
    assert len(alerts.observe(full, 22.0 + CALM_SECONDS)) == 1


def test_idle_gpus_ring_after_a_quarter_of_an_hour_of_work() -> None:
    alerts = Alerts()
    host = replace(LIVE, machine=Machine(gpus=(Gpu(0, "x", 0.0, 1, 2, 30.0, 60.0),)))
    idle = picture(stage("train", RunState.RUNNING), host=host)
    assert alerts.observe(idle, 0.0) == []
    assert alerts.observe(idle, IDLE_SECONDS - 1) == []
    assert [alert.kind for alert in alerts.observe(idle, IDLE_SECONDS + 1)] == ["idle"]


def test_an_attempt_that_begins_and_ends_between_two_looks_calls() -> None:
    alerts = Alerts()
    alerts.observe(picture(stage("vocab", RunState.READY)), 0.0)
    assert alerts.observe(picture(stage("vocab", RunState.DONE, attempt=1)), 1.0) == [
        Alert("done", "vocab", "done", "ok")
    ]


def test_a_link_that_is_away_for_two_minutes_calls_once() -> None:
    alerts = Alerts()
    away = picture(host=HostView("box", LinkState.RECONNECTING, since=0.0))
    assert alerts.observe(away, LINK_SECONDS - 1) == []
    assert [alert.kind for alert in alerts.observe(away, LINK_SECONDS + 1)] == ["link"]
    assert alerts.observe(away, LINK_SECONDS + 500) == []


def test_a_stage_that_told_of_progress_and_tells_of_none_calls_once() -> None:
    alerts, still = Alerts(), picture(stage("train", RunState.RUNNING, done=7.0, total=100.0))
    seen = [alerts.observe(still, now) for now in (0.0, STALL_SECONDS - 1, STALL_SECONDS + 1, STALL_SECONDS + 50)]
    assert [[alert.kind for alert in found] for found in seen] == [[], [], ["no_progress"], []]
    moving = picture(stage("train", RunState.RUNNING, done=8.0, total=100.0))
    assert alerts.observe(moving, STALL_SECONDS + 60) == []


@pytest.mark.parametrize(
    ("view", "link"),
    [
        (stage("setup", RunState.RUNNING), LinkState.LIVE),
        (stage("train", RunState.UNKNOWN, done=7.0, total=9.0), LinkState.LIVE),
        (stage("train", RunState.RUNNING, done=7.0, total=9.0), LinkState.STALE),
    ],
)
def test_what_cannot_be_known_to_stand_still_calls_nobody(view, link) -> None:
    alerts, still = Alerts(), picture(view, host=HostView("box", link))
    assert [alerts.observe(still, now) for now in (0.0, STALL_SECONDS + 1, 3 * STALL_SECONDS)] == [[], [], []]


def test_a_loss_that_is_no_number_calls_while_its_stage_works() -> None:
    alerts, bad = Alerts(), (error("loss_nan", ""),)
    assert alerts.observe(picture(stage("train", RunState.FAILED, findings=bad)), 0.0) == []
    told = alerts.observe(picture(stage("train", RunState.RUNNING, findings=bad)), 1.0)
    assert told == [Alert("loss_nan", "train", "loss_nan")]


@pytest.mark.parametrize(
    ("quiet", "quiet_at"), [(Quiet(60, 120), [1]), (Quiet(22 * 60, 7 * 60), [*range(7), 22, 23]), (Quiet(60, 60), [])]
)
def test_quiet_hours_may_go_over_midnight(monkeypatch, quiet, quiet_at) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert [hour for hour in range(24) if quiet.holds(hour * 3600.0)] == quiet_at


class Receiver(BaseHTTPRequestHandler):
    """Answers with what the server is told to answer, and keeps what came."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.came.append((self.path, self.headers["Content-Type"], json.loads(body)))
        status = self.server.answers.pop(0) if self.server.answers else 200
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def receiver() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.came, server.answers = [], []
    server.url = f"http://127.0.0.1:{server.server_port}/hook/{TOKEN}?key={TOKEN}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def delivered(url: str, *told: dict, timeout: float = 10.0) -> list[str]:
    """What went wrong when these were sent."""
    troubles: list[str] = []
    hook = Webhook(url, troubles.append, timeout=timeout, pauses=(0.0, 0.0, 0.0))
    for one in told:
        hook.post(one)
    hook.close()
    if hook._thread is not None:
        hook._thread.join(60)
        assert not hook._thread.is_alive()
    return troubles


def test_a_webhook_gets_plain_json_in_order(receiver) -> None:
    assert delivered(receiver.url, {"text": "train done"}, {"text": "bench \u2713"}) == []
    assert [body["text"] for _, _, body in receiver.came] == ["train done", "bench \u2713"]
    assert receiver.came[0][:2] == (f"/hook/{TOKEN}?key={TOKEN}", "application/json")


def test_a_receiver_that_stumbles_is_tried_three_times(receiver) -> None:
    receiver.answers = [503, 500, 200]
    assert delivered(receiver.url, {"text": "x"}) == []
    assert len(receiver.came) == 3


@pytest.mark.parametrize("answers", [[500, 500, 500], [302, 302, 302], [403, 403, 403]])
def test_what_is_refused_is_told_without_the_token_and_goes_nowhere_else(receiver, answers) -> None:
    code = answers[0]
    receiver.answers = answers
    [trouble] = delivered(receiver.url, {"text": "x"})
    assert trouble == f"the webhook at 127.0.0.1 was not reached: it answered {code}"
    assert {path for path, _, _ in receiver.came} == {f"/hook/{TOKEN}?key={TOKEN}"}


@pytest.mark.parametrize(
    "url",
    [
        f"http://127.0.0.1:1/{TOKEN}",
        f"http://no-such-host.invalid/{TOKEN}",
        f"http://127.0.0.1:99999/{TOKEN}",
        f"http://user:{TOKEN}@127.0.0.1:1/",
        f"http://127.0.0.1:1/{TOKEN}\n",
        f"https://127.0.0.1:1/{TOKEN}",
    ],
)
def test_an_address_that_nobody_hears_is_told_and_never_repeated(url) -> None:
    [trouble] = delivered(url, {"text": "x"})
    assert trouble.startswith("the webhook at ") and TOKEN not in trouble


def test_a_receiver_that_never_answers_is_left_after_its_time() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        [trouble] = delivered(f"http://127.0.0.1:{deaf.getsockname()[1]}/", {"text": "x"}, timeout=0.1)
    assert "time" in trouble


def test_more_alerts_than_a_slow_receiver_takes_hold_nobody_up() -> None:
    import socket

    troubles: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/{TOKEN}"
        hook = Webhook(url, troubles.append, timeout=60)
        for number in range(100):
            hook.post({"text": str(number)})
    assert troubles and all("too slow" in one and TOKEN not in one for one in troubles)


def test_a_stage_that_ends_is_an_event_and_a_post_while_nobody_looks(campaign, wait_until, receiver) -> None:
    control = campaign.control(notices=Notices(receiver.url))
    campaign.ask(control, Start("setup"))
    assert campaign.ask(control, Await("setup")).reached
    wait_until(control, lambda seen: any(event.kind == ALERT for event in seen.events))
    [event] = [event for event in control.snapshot().events if event.kind == ALERT]
    assert (event.source, event.text, event.severity) == ("setup", "done", "ok")
    limit = time.monotonic() + 60
    while not receiver.came and time.monotonic() < limit:
        time.sleep(0.05)
    [(_, _, body)] = receiver.came
    assert body["alert"] == "done" and body["source"] == "setup" and body["text"].endswith("setup done")


def test_a_webhook_that_fails_is_an_event_without_its_token(campaign, wait_until, receiver) -> None:
    receiver.answers = [403, 403, 403]
    control = campaign.control(notices=Notices(receiver.url))
    campaign.ask(control, Start("setup"))
    wait_until(control, lambda seen: any(event.kind == "webhook" for event in seen.events))
    [event] = [event for event in control.snapshot().events if event.kind == "webhook"]
    assert event.text == "the webhook at 127.0.0.1 was not reached: it answered 403"


def test_in_quiet_hours_there_is_the_event_alone(campaign, wait_until, receiver) -> None:
    control = campaign.control(notices=Notices(receiver.url, Quiet(0, 24 * 60)))
    campaign.ask(control, Start("setup"))
    wait_until(control, lambda seen: any(event.kind == ALERT for event in seen.events))
    [event] = [event for event in control.snapshot().events if event.kind == ALERT]
    assert event.data["quiet"] and receiver.came == []
