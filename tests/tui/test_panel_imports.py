"""What starting the panel loads, in a fresh interpreter."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

from eagle3_tui import importing, screens


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("code", ["import eagle3_tui.app", "import eagle3_tui.app, eagle3_tui.mock"])
def test_the_panel_starts_without_engines_ssh_or_database(code: str) -> None:
    loaded = modules_after(code)
    heavy = {"torch", "transformers", "vllm", "sglang", "asyncssh", "sqlite3", "pydantic", "plotext", "httpx",
             "keyring", "tomlkit", "eagle3_kernels", "eagle3_backend.stages", "eagle3_backend.profile"}  # fmt: skip
    assert heavy & loaded == set()


def test_a_bare_start_reads_its_options_without_commands_and_validation() -> None:
    started = (
        "import atexit, sys; atexit.register(lambda: print('\\n'.join(sys.modules)))\n"
        "sys.argv = ['eagle3-tui', '--keys']\n"
        "from eagle3_tui.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", started], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "eagle3_tui.keymap" in loaded
    assert {"pydantic", "eagle3_tui.commands.look", "eagle3_tui.commands.runs"} & loaded == set()


def test_the_key_table_needs_no_textual() -> None:
    assert "textual" not in modules_after("import eagle3_tui.keymap")


def test_pure_parts_draw_without_an_app() -> None:
    assert "textual.app" not in modules_after("import eagle3_tui.drawing, eagle3_tui.text, eagle3_tui.theme")


def test_every_screen_is_imported_before_it_is_opened_and_brings_nothing_that_a_host_is_for() -> None:
    loaded = modules_after("from eagle3_tui import importing; importing._import_all()")
    names = {f"eagle3_tui.screens.{module.name}" for module in pkgutil.iter_modules(screens.__path__)}
    assert names and names <= loaded
    assert {"torch", "transformers", "vllm", "sglang", "eagle3_kernels", "eagle3_backend.stages"} & loaded == set()


async def test_a_panel_imports_them_behind_its_first_picture(show, monkeypatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(importing, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(importing, "import_module", imported.append)
    async with show() as panel:
        await panel.until(lambda: "eagle3_tui.screens.chart" in imported)
