"""Calls a person: alerts become events of the campaign, and a webhook hears of them, whether anybody looks or not.

Of several panels that see the same alert one calls; the others tell of the event alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
import uuid
from collections.abc import Callable
from dataclasses import replace

from eagle3_backend.control.alerts import Alert, Alerts, Notices
from eagle3_backend.control.campaign import Campaign
from eagle3_backend.control.claims import Claims
from eagle3_backend.control.snapshot import ALERT, Event, Snapshot
from eagle3_backend.control.webhook import Webhook

LOOK_SECONDS = 5.0
"""Least often: some troubles begin by nothing but time passing."""


class Watch:
    """Belongs to control's event loop, for as long as one campaign is open."""

    def __init__(self, campaign: Campaign, notices: Notices) -> None:
        self._campaign = campaign
        self._notices = notices
        self._alerts = Alerts()
        self._loop = asyncio.get_running_loop()
        self._webhook = Webhook(notices.webhook, self._undelivered) if notices.webhook else None
        place = f"{campaign.session.name} {campaign.plan.workspace}"
        self._claims = Claims(campaign.store, place, uuid.uuid4().hex)

    async def run(self) -> None:
        """Look now and then even when nothing changes, until cancelled."""
        try:
            while True:
                self.look(self._campaign.picture(0))
                self._keep_claims()
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            if self._webhook is not None:
                self._webhook.close()

    def look(self, picture: Snapshot) -> None:
        """Call a person for what began since the last look."""
        for alert in self._alerts.observe(picture, time.monotonic()):
            # By the way: what fails there, as a full disk, must not take the picture with it.
            self._loop.call_soon(self._call, alert)

    def _keep_claims(self) -> None:
        now = time.monotonic()
        if self._webhook is None:
            self._claims.tell_shown(time.time())
        for alert, at in self._claims.keep({name: now - seen for name, seen in self._alerts.seen().items()}):
            self._tell(alert, at, calls=True)

    def _call(self, alert: Alert) -> None:
        at = time.time()
        self._tell(alert, at, calls=self._claims.claim(alert, at))

    def _tell(self, alert: Alert, at: float, *, calls: bool) -> None:
        """Let the faces know; with ``calls`` they, and the webhook, call the person for what was seen at ``at``."""
        now = time.time()
        quiet = self._notices.quiet is not None and self._notices.quiet.holds(now)
        event = Event(now, alert.source, alert.words, alert.severity, ALERT, {"alert": alert.kind, "quiet": quiet})
        if not calls:
            # Whoever calls has kept the event in the store that we share.
            self._campaign.tell(replace(event, data={**event.data, "elsewhere": True}))
            return
        self._campaign.record(event)
        settled = functools.partial(self._claims.told, alert.name)
        if self._webhook is None:
            return
        if quiet:
            settled()
            return
        campaign, host = self._campaign.plan.campaign, self._campaign.session.name
        self._webhook.post(
            {
                "text": f"{campaign} on {host}: {alert.source} {alert.words}",
                "alert": alert.kind,
                "severity": alert.severity,
                "campaign": campaign,
                "host": host,
                "source": alert.source,
                "at": at,
            },
            functools.partial(self._on_loop, settled),
        )

    def _on_loop(self, act: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: this panel has left
            self._loop.call_soon_threadsafe(act)

    def _undelivered(self, words: str) -> None:
        event = Event(time.time(), "webhook", words, "warning", "webhook")
        self._on_loop(functools.partial(self._campaign.record, event))
