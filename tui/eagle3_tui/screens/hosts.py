"""The hosts: the one that is worked on, those known from before, and names of the SSH configuration to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from rich.text import Text

from eagle3_backend.control.commands import AddHost, Command, Hosts
from eagle3_backend.control.snapshot import HostView
from eagle3_tui.bindings import bindings
from eagle3_tui.places import user_profiles
from eagle3_tui.screens.tables import TableScreen
from eagle3_tui.text import clean, size
from eagle3_tui.widgets.facts import finding_lines, pairs_lines, wrapped
from eagle3_tui.widgets.gauges import gauge_lines, gpu_words
from eagle3_tui.widgets.header import age_words, link_words
from eagle3_tui.widgets.table import Row, Table


class HostsScreen(TableScreen):
    """Enter on a name that is not worked on writes a profile for it and opens that."""

    BINDINGS = bindings("hosts")
    context = "hosts"

    def __init__(self, stage: str = "") -> None:
        super().__init__(stage)
        self._known: list[dict[str, Any]] = []
        self._candidates: list[str] = []

    def question(self) -> Command:
        return Hosts(watch=True)

    def take(self, answer: object) -> None:
        found = cast("dict[str, Any]", answer)
        self._known, self._candidates = found["hosts"], found["candidates"]

    @property
    def _open(self) -> HostView:
        return self.panel.picture.host

    def table(self) -> Table:
        look = self.panel.look
        rows = [self._row(host) for host in self._linked()]
        linked = {row.key for row in rows}
        for entry in self._known:
            if entry["name"] not in linked:
                seen = f"last seen {entry.get('seen', 'never')}"
                rows.append(Row(entry["name"], _quiet(self._number(entry["name"]), entry["name"], "known", seen)))
        shown = {row.key for row in rows}
        rows += [
            Row(name, _quiet("", name, "not used yet", "in ~/.ssh/config"))
            for name in self._candidates
            if name not in shown
        ]
        heads = (" ", "host", "link", "clock", "disk free", "GPUs")
        return Table(look.joined(["Hosts", f"{len(rows)}"]), heads, tuple(rows), self.waiting("no host yet"))

    def _number(self, name: str) -> str:
        """The key that leads to a known host."""
        place = next((at for at, entry in enumerate(self._known, 1) if entry["name"] == name), 0)
        return str(place) if 1 <= place <= 9 else " "

    def _asked(self, name: str) -> str:
        """What enter does on a host that is not worked on."""
        entry = next((entry for entry in self._known if entry["name"] == name), None)
        if entry is not None and entry.get("profile"):
            also = f" or {self._number(name)}" if self._number(name).strip() else ""
            return f"enter{also} opens its profile again."
        return "enter writes a profile like the open one for this host, and opens it; its key is asked about first."

    def _linked(self) -> list[HostView]:
        """The host that is worked on, then the others that are watched."""
        picture = self.panel.picture
        return [host for host in (picture.host, *picture.others) if host.name]

    def _row(self, host: HostView) -> Row:
        words, role = link_words(host, self.panel.monotonic(), self.panel.look)
        skew = f"{host.skew:+.1f} s" if host.skew is not None else "-"
        told = ((one, "text") for one in (skew, size(host.machine.disk_free), gpu_words(host.machine)))
        number = (self._number(host.name), "accent")
        return Row(host.name, (number, (host.name, "accent" if host == self._open else "text"), (words, role), *told))

    def _about(self, host: HostView, width: int) -> list[Text]:
        """A linked host: what answers there, and its gauges."""
        look, picture = self.panel.look, self.panel.picture
        pairs = [("agent", clean(host.agent or "not met yet", 200))]
        if host == picture.host:
            pairs += [("workspace", clean(picture.workspace, 300)), ("campaign", clean(picture.campaign, 100))]
        pairs.append(("cores", str(host.machine.cpu_count or "-")))
        pairs.append(("host key", clean(host.offered_key, 200) if host.offered_key else "known"))
        if age := age_words(host, self.panel.monotonic()):
            pairs.insert(0, ("gauges", age))
        return [
            *gauge_lines(host.machine, look, width, 5),
            *pairs_lines(pairs, look, width),
            *(finding_lines(host.problem, look, width) if host.problem else []),
        ]

    def detail(self, key: str, width: int) -> list[Text]:
        look = self.panel.look
        asked = self._asked(key)
        linked = next((host for host in self._linked() if host.name == key), None)
        if linked is not None:
            about = self._about(linked, width)
            return about if linked == self._open else [*about, *wrapped(look, asked, width, "dim")]
        entry = next((entry for entry in self._known if entry["name"] == key), None)
        if entry is not None:
            told = {name: value for name, value in entry.items() if name != "name"}
            pairs = [(name, clean(_words(value), 300)) for name, value in told.items()]
            lines = pairs_lines(pairs, look, width)
        else:
            lines = wrapped(look, "A name of ~/.ssh/config that no campaign has worked on yet.", width) if key else []
        return [*lines, *wrapped(look, asked, width, "dim")] if key else []

    def action_add_host(self) -> None:
        self.panel.ask_line("host ", "", self._offer, "a host name, or a name of ~/.ssh/config")

    def action_open_row(self) -> None:
        if not self.marked or self.marked == self._open.name:
            return
        if any(entry["name"] == self.marked and entry.get("profile") for entry in self._known):
            self.panel.go_to_host(self.marked)
        else:
            self._offer(self.marked)

    def _offer(self, name: str) -> None:
        name = name.strip()
        if not name or self.panel.refuses_acts("add a host"):
            return
        from eagle3_tui.screens.dialogs import ConfirmDialog

        folder = user_profiles()

        def go_on(sure: bool | None) -> None:
            if sure:
                self.panel.unless_unsaved("Another host", write)

        def write() -> None:
            self.panel.inquire(AddHost(name, folder), self._opened, self.panel.refused_by_the_way)

        words = (
            f"A copy of {Path(self.panel.picture.profile).name or 'the open profile'} whose host is {clean(name, 100)} "
            f"is written to {folder} and opened. Runs on {clean(self._open.name, 100) or 'the open host'} go on."
        )
        self.app.push_screen(ConfirmDialog("Another host", words, "write and open"), go_on)

    def _opened(self, path: object) -> None:
        self.panel.open_profile(Path(str(path)))
        self.leave()


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _quiet(number: str, name: str, link: str, last: str) -> tuple[tuple[str, str], ...]:
    return ((number, "accent"), (name, "text"), (link, "dim"), ("-", "dim"), ("-", "dim"), (last, "dim"))
