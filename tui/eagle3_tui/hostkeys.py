"""What the operator is asked when a host offers a key that is not known, or another one than before: once for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eagle3_backend.control.commands import TrustHostKey
from eagle3_backend.control.snapshot import Snapshot
from eagle3_backend.states import LinkState

if TYPE_CHECKING:
    from eagle3_tui.app import Panel


class HostKeys:
    """Remembers which key was asked about."""

    def __init__(self) -> None:
        self._asked_about = ""

    def ask_again(self) -> None:
        """Another host, or another try: the same key is a new question."""
        self._asked_about = ""

    def take(self, panel: Panel, snapshot: Snapshot) -> None:
        """Open the dialog that this snapshot needs."""
        host = snapshot.host
        changed = host.link is LinkState.KEY_CHANGED
        question = host.offered_key or ("changed" if changed else "")
        if question == self._asked_about:
            return
        self._asked_about = question
        if not question:
            return
        from eagle3_tui.screens.dialogs import HostKeyDialog, MessageDialog, changed_key_words

        if changed:
            findings = (host.problem,) if host.problem is not None else ()
            panel.push_screen(MessageDialog("Host key changed", findings, changed_key_words(host)))
            return

        def decide(answer: str | None) -> None:
            if answer:
                panel.ask(TrustHostKey(save=answer == "save"), "host key accepted")
            else:
                panel.notice("host key not accepted; r asks again", "warn")

        panel.push_screen(HostKeyDialog(host), decide)
