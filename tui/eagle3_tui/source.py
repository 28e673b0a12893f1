"""Where the panel's snapshots come from and its commands go to: the real control, or a mock with the same face."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eagle3_backend.control.commands import Command, Open
from eagle3_backend.control.snapshot import Snapshot

if TYPE_CHECKING:
    from eagle3_backend.control import Control
    from eagle3_backend.control.alerts import Notices


class Source(Protocol):
    """What the panel needs of control; none of it waits."""

    def start(self, changed: Callable[[], None]) -> None:
        """Begin to work; called after the first paint. ``changed`` hears, on any thread, of each new picture."""

    def snapshot(self) -> Snapshot:
        """The newest picture."""

    def submit(self, command: Command) -> Future[Any]:
        """Ask for an act. The future raises FindingError when it is refused."""

    def parameters(self, stage: str) -> Mapping[str, Any]:
        """The parameters of ``stage`` as the profile and the settings give them."""

    def work_with(self, opened: Open) -> None:
        """From now on this is the profile, and these the settings, that ``parameters`` tells of."""

    def talk(self, endpoint: Mapping[str, Any]) -> Talk:
        """To talk to an endpoint (the answer to `Endpoint`)."""

    def close(self) -> None:
        """Leave; runs on hosts go on."""


class Talk(Protocol):
    """`serving.chat.Chat`: ``say`` waits for a network, so it runs on a thread; ``cancel`` may come from any."""

    figures: Any

    def say(self, messages: Sequence[Mapping[str, str]], max_tokens: int) -> Iterator[str]:
        """The answer in pieces. Raises FindingError."""

    def cancel(self) -> None:
        """End the answer that is being said."""


class ControlSource:
    """The real control, imported and started on a thread of its own: that takes longer than a key press."""

    def __init__(self, profile: Path, settings: tuple[str, ...], notices: Notices | None = None) -> None:
        self._profile = profile
        self._settings = settings
        self._notices = notices
        self._control: Control | None = None
        self._lock = threading.Lock()
        self._waiting: list[tuple[Command, Future[Any]]] = []
        self._closed = False
        self._failed: BaseException | None = None

    def start(self, changed: Callable[[], None]) -> None:
        threading.Thread(target=self._load, args=(changed,), name="control-loader", daemon=True).start()

    def _load(self, changed: Callable[[], None]) -> None:
        try:
            from eagle3_tui.places import open_control

            control = open_control(self._notices)
        except BaseException as problem:
            with self._lock:
                self._failed = problem
                waiting, self._waiting = self._waiting, []
            for _, future in waiting:
                future.set_exception(problem)
            return
        with self._lock:
            self._control = control
            waiting, self._waiting = self._waiting, []
            closed = self._closed
        for command, future in waiting:
            _forward(control.submit(command), future)
        control.on_picture(changed)
        if closed:
            control.close()

    def snapshot(self) -> Snapshot:
        return self._control.snapshot() if self._control is not None else Snapshot()

    def submit(self, command: Command) -> Future[Any]:
        with self._lock:
            if self._control is None:
                future: Future[Any] = Future()
                if self._failed is not None:
                    future.set_exception(self._failed)
                else:
                    self._waiting.append((command, future))
                return future
            control = self._control
        return control.submit(command)

    def parameters(self, stage: str) -> Mapping[str, Any]:
        from dataclasses import fields

        from eagle3_backend.findings import FindingError
        from eagle3_backend.profile import load

        try:
            values = load(self._profile).with_settings(list(self._settings)).parameters[stage]
        except FindingError:
            return {}
        return {entry.name: getattr(values, entry.name) for entry in fields(values)}

    def work_with(self, opened: Open) -> None:
        self._profile, self._settings = opened.profile, opened.settings

    def talk(self, endpoint: Mapping[str, Any]) -> Talk:
        from eagle3_backend.control.running import Chat

        return Chat(str(endpoint["base_url"]), str(endpoint["api_key"] or ""), str(endpoint["model"]))

    def close(self) -> None:
        with self._lock:
            self._closed = True
            control = self._control
        if control is not None:
            control.close()


def _forward(inner: Future[Any], outer: Future[Any]) -> None:
    """Give ``outer`` the outcome of ``inner``."""

    def done(finished: Future[Any]) -> None:
        problem = finished.exception()
        if problem is not None:
            outer.set_exception(problem)
        else:
            outer.set_result(finished.result())

    inner.add_done_callback(done)
