"""Calls a person: alerts become events of the campaign, and a webhook hears of them, whether anybody looks or not."""

from __future__ import annotations

import asyncio
import contextlib
import time

from eagle3_backend.control.alerts import Alert, Alerts, Notices
from eagle3_backend.control.campaign import Campaign
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

    async def run(self) -> None:
        """Look now and then even when nothing changes, until cancelled."""
        try:
            while True:
                self.look(self._campaign.picture(0))
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            if self._webhook is not None:
                self._webhook.close()

    def look(self, picture: Snapshot) -> None:
        """Call a person for what began since the last look."""
        for alert in self._alerts.observe(picture, time.monotonic()):
            # By the way: what fails there, as a full disk, must not take the picture with it.
            self._loop.call_soon(self._call, alert)

    def _call(self, alert: Alert) -> None:
        at = time.time()
        quiet = self._notices.quiet is not None and self._notices.quiet.holds(at)
        data = {"alert": alert.kind, "quiet": quiet}
        self._campaign.record(Event(at, alert.source, alert.words, alert.severity, ALERT, data))
        if self._webhook is not None and not quiet:
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
                }
            )

    def _undelivered(self, words: str) -> None:
        event = Event(time.time(), "webhook", words, "warning", "webhook")
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to be told
            self._loop.call_soon_threadsafe(self._campaign.record, event)
