"""The panel in a real pseudo terminal: keys go in, and an emulator reads the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pyte
import pytest

START = "import sys; sys.argv = ['eagle3-tui', '--mock']; from eagle3_tui.cli import main; main()"


class Terminal:
    """A program on a pty of the given size, and what its screen shows."""

    def __init__(self, columns: int, rows: int, *, deaf: bool = False, **environment: str) -> None:
        """``deaf``: the program's parent ignores SIGHUP, and so does the program."""
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = bytearray()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            # readline puts LINES and COLUMNS into the C environment, where they would win over the terminal's own size.
            known = {name: value for name, value in os.environ.items() if name not in ("LINES", "COLUMNS")}
            known |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", **environment}
            signal.signal(signal.SIGHUP, signal.SIG_IGN if deaf else signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job inherits it ignored
            os.execve(sys.executable, [sys.executable, "-c", START], known)
        self.resize(columns, rows)
        self.status: int | None = None

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def send(self, keys: str) -> None:
        os.write(self.fd, keys.encode())

    def text(self) -> str:
        return "\n".join(self.screen.display)

    def pump(self, seconds: float) -> bool:
        """Read for a while; False when the terminal is closed."""
        if self.fd < 0:
            time.sleep(seconds)
            return False
        if not select.select([self.fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return False
        self.raw += data
        # pyte does not know CSI sequences with these private markers and would print their letters.
        self.stream.feed(data.replace(b"\x1b[>", b"\x1b[?").replace(b"\x1b[=", b"\x1b[?"))
        return bool(data)

    def computed(self) -> float:
        """CPU seconds that it has taken."""
        return sum(psutil.Process(self.pid).cpu_times()[:2])

    def wait_for(self, seen: Callable[[str], bool], seconds: float = 60.0) -> str:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            self.pump(0.1)
            if seen(self.text()):
                return self.text()
        raise AssertionError(f"never seen; the screen shows:\n{self.text()}")

    def wait_for_exit(self, seconds: float = 30.0) -> int:
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            self.pump(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
                while self.pump(0.05) and select.select([self.fd], [], [], 0)[0]:
                    pass
                return self.status
        raise AssertionError("the program did not end")

    def hang_up(self) -> None:
        """The terminal is gone; what was a panel has no screen and no keyboard."""
        os.close(self.fd)
        self.fd = -1

    def close(self) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        if self.fd >= 0:
            os.close(self.fd)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(columns: int, rows: int, **options: Any) -> Terminal:
        opened.append(Terminal(columns, rows, **options))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


def test_keys_and_screen_in_a_real_terminal(terminal) -> None:
    panel = terminal(80, 24)
    beginnings = {0: " eagle3-tui ▸ h200-a ● live", 1: " ✓ nothing waits", 2: "┏━ Pipeline", -1: " s start"}

    def complete(text: str) -> bool:
        lines = text.split("\n")
        return all(lines[at].startswith(words) for at, words in beginnings.items()) and "● train     running" in text

    panel.wait_for(complete)  # panes of one snapshot may be painted a frame apart
    panel.send("\r")
    panel.wait_for(lambda text: "max_position_too_short" in text)
    panel.send("\x1b")
    panel.wait_for(lambda text: "Pipeline" in text)
    panel.send("?")
    panel.wait_for(lambda text: "┏━ Help" in text)
    panel.send("\x1b")
    panel.wait_for(lambda text: "Pipeline" in text)
    panel.resize(120, 40)
    os.kill(panel.pid, signal.SIGWINCH)
    panel.wait_for(lambda text: "acceptance length" in text and "Events" in text)
    panel.send("q")
    assert panel.wait_for_exit() == 0
    assert b"train goes on on h200-a" in bytes(panel.raw)
    assert b"\x1b[?1049l" in bytes(panel.raw)


def test_stop_is_asked_for_and_taken_back_in_a_real_terminal(terminal) -> None:
    panel = terminal(80, 24)
    panel.wait_for(lambda text: "● train     running" in text)
    panel.send("x")
    panel.wait_for(lambda text: "Stop train" in text)
    panel.send("\r")
    panel.wait_for(lambda text: "train is asked to stop in" in text)
    panel.send("\x1b")
    panel.wait_for(lambda text: "train goes on" in text and "Stop train" not in text)
    panel.send("q")
    assert panel.wait_for_exit() == 0


def test_without_colour_no_colour_is_written(terminal) -> None:
    panel = terminal(80, 24, NO_COLOR="1")
    panel.wait_for(lambda text: "● train     running" in text)
    colours = {cell.fg for row in panel.screen.buffer.values() for cell in row.values()}
    greys = {colour for colour in colours if colour == "default" or colour[0:2] == colour[2:4] == colour[4:6]}
    assert colours == greys


def test_sixteen_colours_are_enough(terminal) -> None:
    panel = terminal(80, 24, TEXTUAL_COLOR_SYSTEM="standard")
    panel.wait_for(lambda text: "● train     running" in text)
    assert b"38;2;" not in bytes(panel.raw) and b"38;5;" not in bytes(panel.raw)
    assert "✓ setup     done" in panel.text()
    assert {panel.screen.buffer[row][column].fg for row, column in ((3, 3), (9, 3))} == {"brightgreen", "brightblue"}


def test_a_terminal_that_cannot_move_its_cursor_is_refused(terminal) -> None:
    panel = terminal(80, 24, TERM="dumb")
    assert panel.wait_for_exit() == 1
    assert b"terminal_missing" in bytes(panel.raw) and b"\x1b[?1049h" not in bytes(panel.raw)


def test_without_utf8_the_panel_draws_with_ascii(terminal) -> None:
    panel = terminal(80, 24, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    shown = panel.wait_for(lambda text: "train     running" in text and "q quit" in text)
    assert shown.isascii() and "\\u" not in shown


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_leaves_the_terminal_as_it_was(terminal, number) -> None:
    panel = terminal(80, 24)
    panel.wait_for(lambda text: "q quit" in text)
    os.kill(panel.pid, number)
    assert panel.wait_for_exit() == 128 + number
    assert b"\x1b[?1049l" in bytes(panel.raw) and b"\x1b[?25h" in bytes(panel.raw)


def test_a_panel_whose_terminal_is_gone_leaves_by_itself(terminal) -> None:
    panel = terminal(80, 24, deaf=True)
    panel.wait_for(lambda text: "● train     running" in text)
    panel.hang_up()
    assert panel.wait_for_exit() == 129


def test_a_panel_that_is_asked_to_end_ends_though_its_terminal_takes_nothing(terminal) -> None:
    panel = terminal(80, 24)
    panel.wait_for(lambda text: "● train     running" in text)
    computed = -1.0
    while computed != (computed := panel.computed()):
        for columns in (100, 120) * 5:
            panel.resize(columns, 40)
            time.sleep(0.1)
    os.kill(panel.pid, signal.SIGTERM)
    _, status = os.waitpid(panel.pid, 0)
    panel.status = os.waitstatus_to_exitcode(status)
    assert panel.status == 128 + signal.SIGTERM
    assert b"\x1b[?1049l" not in bytes(panel.raw)


def test_two_runs_side_by_side_need_no_colour(terminal) -> None:
    panel = terminal(80, 24, NO_COLOR="1")
    panel.wait_for(lambda text: "● train     running" in text)
    panel.send("d")
    panel.wait_for(lambda text: "▸" in text and "51c0" in text)
    panel.send("attempt 1 8e07\r")
    panel.wait_for(lambda text: "Compare with" in text and "51c0" in text)
    panel.send("51c0\r")
    shown = panel.wait_for(lambda text: "┏━ Diff" in text)
    assert "▸ ● changed   parameters.learning_rate" in shown and "· harmless" in shown
    panel.send("y")
    panel.wait_for(lambda text: "copied" in text)
    assert b"\x1b]52;c;" in bytes(panel.raw)
    panel.send("\x1b")
    panel.wait_for(lambda text: "┏━ Pipeline" in text)
    panel.send("q")
    assert panel.wait_for_exit() == 0


def test_the_terminal_is_lent_to_an_editor_and_taken_back(terminal, tmp_path) -> None:
    editor = tmp_path / "editor.sh"
    editor.write_text("#!/bin/sh\necho editing; read word\nsed -i 's/^# /# New: /' \"$1\"\n")
    editor.chmod(0o755)
    panel = terminal(80, 24, VISUAL=str(editor), TMPDIR=str(tmp_path))
    panel.wait_for(lambda text: "● train     running" in text)
    panel.send("c")
    panel.wait_for(lambda text: "host.address" in text)
    panel.send("E")
    panel.wait_for(lambda text: bytes(panel.raw).count(b"editing\r") == 1)
    panel.send("\x03")  # an interrupt ends the editor, and not the panel
    panel.wait_for(lambda text: "Not edited" in text and "editor_failed" in text)
    panel.send("\x1b")
    panel.wait_for(lambda text: "host.address" in text and "Not edited" not in text)
    panel.send("E")
    panel.wait_for(lambda text: bytes(panel.raw).count(b"editing\r") == 2)
    panel.send("go\n")
    panel.wait_for(lambda text: "text not saved" in text)
    panel.send("q")
    panel.wait_for(lambda text: "Comments or spelling" in text)
    panel.send("\r")
    assert panel.wait_for_exit() == 0


def test_a_shell_takes_the_terminal_and_gives_it_back(terminal) -> None:
    panel = terminal(80, 24, ENV="", PS1="ready> ")
    panel.wait_for(lambda text: "● train     running" in text)
    panel.send("!")
    panel.wait_for(lambda text: "No host is behind this panel." in text)
    panel.resize(120, 40)
    panel.send("echo here-$((40 + 2))\n")
    panel.wait_for(lambda text: "here-42" in text)
    panel.send("exit 3\n")
    panel.wait_for(lambda text: "acceptance length" in text and "ended with 3" in text)
    panel.send("q")
    assert panel.wait_for_exit() == 0
