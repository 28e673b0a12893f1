"""The one key table: bindings, footer, help screen and the README's table are all made from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from eagle3_backend.findings import FindingError, error


@dataclass(frozen=True)
class Key:
    """One action and its keys.

    ``scope`` says where it works (see `CONTEXTS`); ``help`` is the footer's word, ``about`` the help screen's line;
    ``danger`` tells what stands between the key and the act; ``footer`` orders what a narrow footer keeps, 0 is never
    shown there. ``action`` is the Textual action, by default the id.
    """

    id: str
    keys: tuple[str, ...]
    scope: str
    group: str
    help: str
    about: str
    danger: str = ""
    footer: int = 0
    action: str = ""


KEYS: tuple[Key, ...] = (
    Key("start", ("s",), "run", "Acts", "start", "start what is not fresh, through bench or the selected stage",
        "shows what will run", 1),
    Key("stop", ("x",), "run", "Acts", "stop", "stop the stage: it saves a checkpoint and leaves",
        "confirm, then 5 s to undo", 2),
    Key("kill", ("X",), "run", "Acts", "kill", "end every process of the stage at once; unsaved work is lost",
        "type the stage"),
    Key("resume", ("u",), "run", "Acts", "resume", "next attempt from the newest whole checkpoint",
        "shows where it goes on", 3),
    Key("restart", ("R",), "run", "Acts", "restart", "new attempt from the start; the old artifact is kept aside",
        "confirm", 7),
    Key("delete", ("D",), "stage", "Acts", "delete", "delete an artifact of the stage on the host, for good",
        "type the stage"),
    Key("bench", ("b",), "run", "Acts", "bench", "measure the drafter against the target alone", "shows what will run"),
    Key("open", ("enter",), "pipeline", "View", "open", "the stage: log, parameters, findings, exit reason", "", 4,
        "screen.open_stage"),
    Key("mark", ("space",), "pipeline", "Acts", "mark", "mark stages that one start runs in order; esc takes marks off",
        "", 9),
    Key("log", ("l",), "pipeline", "View", "log", "show the log of the selected stage", "", 7, "screen.stage_log"),
    Key("search", ("slash",), "log", "Log", "find", "search by a pattern; small letters match both", "", 4),
    Key("find_next", ("n",), "log", "Log", "next", "next hit of the search", "", 8),
    Key("find_previous", ("N",), "log", "Log", "previous", "previous hit of the search"),
    Key("filter", ("ampersand",), "log", "Log", "only", "only lines that match", "", 6),
    Key("follow", ("f",), "log", "Log", "follow", "follow the end of the log; scrolling up turns it off", "", 5),
    Key("wrap", ("w",), "log", "Log", "wrap", "break long lines, or read them sideways", "", 7),
    Key("colours", ("C",), "log", "Log", "colours", "keep the colours of the lines, or show plain text"),
    Key("time", ("T",), "log", "Log", "time", "to a time of day", "", 9),
    Key("previous_loud", ("left_curly_bracket",), "log", "Log", "previous error", "to the previous error or warning"),
    Key("next_loud", ("right_curly_bracket",), "log", "Log", "next error", "to the next error or warning"),
    Key("load", ("L",), "log", "Log", "load", "bring the skipped or earlier part from the host"),
    Key("whole", ("enter",), "log", "Log", "whole", "the marked line, or the first in view that was cut, in full"),
    Key("select", ("V",), "log", "Log", "select", "select lines; y copies them"),
    Key("open_row", ("enter",), "rows", "View", "open", "the marked row in full; on a host: work there", "", 3),
    Key("filter_rows", ("slash",), "filter", "View", "find", "only rows with these words", "", 7),
    Key("filter_events", ("slash",), "events", "View", "find", "only events with these words", "", 3),
    Key("add_host", ("a",), "hosts", "Acts", "add", "another host, by its name", "confirm", 2),
    Key("end_orphan", ("X",), "orphans", "Acts", "end", "end the processes of an attempt", "type the stage", 2),
    Key("save_file", ("Y",), "all", "View", "save", "save what has the focus to files: a log, a chart as SVG and CSV"),
    Key("screenshot", ("S",), "all", "View", "screenshot", "the screen as SVG and as text", "", 0, "picture"),
    Key("shell", ("exclamation_mark",), "all", "Acts", "shell", "a shell on the host, where the stage runs"),
    Key("rate", ("P",), "all", "View", "rate", "redraw 1, 2, 4, 0.5 times a second, or not at all"),
    Key("copy", ("y",), "all", "View", "copy", "copy what is selected or in view to the terminal's clipboard"),
    Key("up", ("up", "k"), "list", "Move", "up", "previous line or stage"),
    Key("down", ("down", "j"), "list", "Move", "down", "next line or stage"),
    Key("page_up", ("pageup", "ctrl+u"), "scroll", "Move", "page up", "a page up", "", 0, "page_back"),
    Key("page_down", ("pagedown", "ctrl+d"), "scroll", "Move", "page down", "a page down", "", 0, "page_on"),
    Key("first", ("home", "g"), "list", "Move", "first", "to the first line"),
    Key("last", ("end", "G"), "list", "Move", "last", "to the last line"),
    Key("left", ("left", "h"), "sideways", "Move", "left", "sideways in long lines and in a chart"),
    Key("right", ("right", "l"), "sideways", "Move", "right", "sideways in long lines and in a chart"),
    Key("zoom", ("z",), "all", "View", "zoom", "the curves on a chart with axes; a log on the whole screen", "", 8),
    Key("zoom_in", ("plus", "equals_sign"), "chart", "Chart", "in", "zoom in around the cursor", "", 3),
    Key("zoom_out", ("minus",), "chart", "Chart", "out", "zoom out", "", 4),
    Key("zoom_reset", ("0",), "chart", "Chart", "whole", "all of it", "", 9),
    Key("cursor_left", ("comma",), "chart", "Chart", "cursor left", "cursor to the left; the legend has its values"),
    Key("cursor_right", ("full_stop",), "chart", "Chart", "cursor", "cursor to the right", "", 7),
    Key("logarithm", ("tilde",), "chart", "Chart", "log", "logarithmic axis", "", 5),
    Key("smoothing", ("percent_sign",), "chart", "Chart", "smooth", "more and more smoothing, then none", "", 6),
    Key("by_time", ("number_sign",), "chart", "Chart", "by time", "by time or by step", "", 8),
    Key("pin", ("p",), "chart", "Chart", "compare", "draw another run beside this one, or let it go", "", 5),
    Key("attempts", ("a",), "attempts", "View", "attempts", "every attempt of the stage; enter shows its log", "", 9),
    Key("older_attempt", ("left_square_bracket",), "attempts", "View", "older", "the log of the attempt before"),
    Key("newer_attempt", ("right_square_bracket",), "attempts", "View", "newer", "the log of the attempt after"),
    Key("campaign", ("J",), "all", "Screens", "campaign", "work on another profile; what runs goes on"),
    Key("host", tuple("123456789"), "all", "Screens", "host", "to the known host of this number, as the hosts have it",
        "", 0, "host({place})"),
    Key("hosts", ("t",), "all", "Screens", "hosts", "known hosts, the link, and new ones from ~/.ssh/config", "", 9),
    Key("machine", ("m",), "all", "Screens", "machine", "GPUs, processor, memory, and whose processes use them", "", 9),
    Key("events", ("e",), "all", "Screens", "events", "everything that happened", "", 9),
    Key("orphans", ("o",), "all", "Screens", "orphans", "processes of ours that nobody supervises", "", 0),
    Key("doctor", (), "all", "Screens", "doctor", "checks of laptop, link, host and workspace, with fixes"),
    Key("config", ("c",), "all", "Screens", "config", "the profile as a form, with faults beside the values", "", 6),
    Key("serve", ("v",), "all", "Screens", "serve", "the endpoint: launch line, health, live acceptance", "", 6),
    Key("results", ("B",), "all", "Screens", "results", "what benches measured, two side by side, and the diagnosis"),
    Key("trace", ("W",), "all", "Screens", "time", "where a decode step's time goes, with the drafter and without"),
    Key("chat", ("K",), "serve", "Service", "chat", "talk to the endpoint, with speed and acceptance", "", 4),
    Key("swap", ("E",), "serve", "Service", "swap", "another drafter, layout, depth or engine in its place",
        "says what will be stopped", 4),
    Key("beside", ("A",), "serve", "Service", "beside", "another endpoint beside it", "", 6),
    Key("end_service", ("O",), "serve", "Service", "end", "stop an endpoint that has other parameters", "confirm", 9),
    Key("edit_option", ("i",), "serve", "Service", "edit", "an option of the launch; the plan is shown at once", "", 5),
    Key("write_options", ("w",), "serve", "Service", "save", "write what was edited here to the profile; comments stay",
        "confirm", 5),
    Key("say", ("enter",), "chat", "Service", "say", "ask something more; esc cancels an answer", "", 3),
    Key("edit_value", ("i",), "config", "Profile", "edit", "another value; enter does it, too", "", 1),
    Key("default_value", ("D",), "config", "Profile", "default", "take the key out of the profile: its default counts"),
    Key("undo_edit", ("u",), "config", "Profile", "undo", "take the newest edit back", "", 4),
    Key("write_profile", ("w",), "config", "Profile", "save", "write the edits to the profile; comments stay",
        "says first what goes out of date", 3),
    Key("filter_values", ("slash",), "config", "Profile", "find", "only keys with these words", "", 5),
    Key("edit_file", ("E",), "config", "Profile", "editor", "the whole file in $VISUAL or $EDITOR; not saved by that",
        "", 6),
    Key("only_changed", ("equals_sign",), "config", "Profile", "changed", "only what is no default, or all", "", 5),
    Key("other_bench", ("left_square_bracket",), "results", "Results", "other", "another bench beside it", "", 4),
    Key("by_load", ("right_square_bracket",), "results", "Results", "speeds", "speeds by load, or all figures", "", 3),
    Key("open_bench", ("f",), "results", "Results", "file", "a bench from a file beside it, as bench --json writes it",
        "", 5),
    Key("compare", ("d",), "all", "View", "diff", "put two drafters, profiles or runs side by side", "", 10),
    Key("only_changes", ("equals_sign",), "diff", "Diff", "all", "only what differs, or all rows", "", 3),
    Key("next_change", ("n",), "diff", "Diff", "next", "next difference", "", 4),
    Key("previous_change", ("N",), "diff", "Diff", "previous", "previous difference", "", 6),
    Key("raw", ("enter",), "diff", "Diff", "files", "both files where the row stands", "", 2),
    Key("next", ("tab",), "all", "Move", "next pane", "next pane", "", 9, "app.focus_next"),
    Key("previous", ("shift+tab",), "all", "Move", "previous pane", "previous pane", "", 0, "app.focus_previous"),
    Key("reconnect", ("r",), "all", "Link", "reconnect", "try the link at once", "", 8, "reconnect"),
    Key("theme", ("ctrl+t",), "all", "View", "theme", "dark or light", "", 0, "switch_theme"),
    Key("back", ("escape",), "all", "Move", "back", "one layer out: selection, search, filter, screen", "", 1, "back"),
    Key("command", ("colon",), "all", "Help", "command", "a command by its name, as :run train or :doctor", "", 10),
    Key("palette", ("ctrl+p",), "all", "Help", "palette", "everything that can be done here, to choose from"),
    Key("help", ("question_mark", "f1"), "all", "Help", "help", "keys of this pane, then all keys", "", 2, "help"),
    Key("quit", ("q",), "all", "Help", "quit", "leave the panel; runs go on on their host", "", 2, "quit"),
    Key("yes", ("enter", "y"), "confirm", "Dialogs", "go on", "do it", "", 0, "yes"),
    Key("no", ("escape", "n"), "dialog", "Dialogs", "back", "leave it as it is", "", 0, "no"),
    Key("other", ("tab", "left", "right"), "start", "Dialogs", "other", "the other last stage of the chain", "", 0,
        "other"),
    Key("now", ("x",), "grace", "Dialogs", "now", "stop at once instead of after the grace time", "", 0, "now"),
    Key("once", ("a",), "host key", "Dialogs", "accept once", "trust this key for this link only", "", 0, "once"),
    Key("save", ("s",), "host key", "Dialogs", "save", "trust this key and write it to known_hosts", "", 0, "save"),
    Key("copy_message", ("y",), "message", "Dialogs", "copy", "copy the text of the dialog", "", 0, "copy"),
    Key("choose_row", ("enter",), "choose", "Dialogs", "choose", "take the marked row", "", 0, "choose"),
    Key("complete_line", ("tab",), "line", "Dialogs", "complete", "take over what is suggested"),
    Key("leave_line", ("escape",), "line", "Dialogs", "back", "leave the line without doing anything"),
    Key("choose", ("enter",), "pick", "Dialogs", "choose", "take what is marked"),
    Key("complete", ("tab",), "pick", "Dialogs", "complete", "take the marked path into the line, to go on behind it"),
    Key("interrupt", ("ctrl+c",), "all", "Help", "quit", "copy what is selected; twice within 2 s leaves the panel",
        "", 0, "interrupt"),
)  # fmt: skip

CONTEXTS: dict[str, tuple[str, ...]] = {
    "pipeline": ("pipeline", "attempts", "list", "run", "all"),
    "log": ("log", "attempts", "sideways", "list", "scroll", "run", "all"),
    "stage": ("stage", "attempts", "list", "scroll", "run", "all"),
    "stage log": ("stage", "log", "attempts", "sideways", "list", "scroll", "run", "all"),
    "chart": ("chart", "sideways", "list", "all"),
    "rows": ("rows", "filter", "list", "scroll", "all"),
    "events": ("events", "rows", "list", "scroll", "all"),
    "hosts": ("hosts", "rows", "filter", "list", "scroll", "all"),
    "orphans": ("orphans", "rows", "filter", "list", "scroll", "all"),
    "config": ("config", "rows", "list", "scroll", "all"),
    "results": ("results", "run", "rows", "filter", "list", "scroll", "all"),
    "trace": ("run", "rows", "filter", "list", "scroll", "all"),
    "serve": ("serve", "run", "list", "scroll", "all"),
    "chat": ("chat", "list", "scroll", "all"),
    "help": ("list", "scroll", "all"),
    "diff": ("diff", "list", "scroll", "all"),
    "diff file": ("diff", "list", "scroll", "all"),
    "pick dialog": ("pick", "dialog", "list", "scroll"),
    "line": ("line",),
    "choose dialog": ("choose", "dialog", "list", "scroll"),
    "start dialog": ("confirm", "start", "dialog", "list", "scroll"),
    "stop dialog": ("confirm", "grace", "dialog", "list", "scroll"),
    "host key dialog": ("host key", "dialog", "list", "scroll"),
    "message dialog": ("message", "dialog", "list", "scroll"),
}
"""What has the focus, and the scopes whose keys work then; a key means one thing in each of these."""

ROOTS = ("pipeline", "log")
"""Contexts of the outermost screen: there is nothing to go back to."""

_NAMES = {
    "question_mark": "?",
    "slash": "/",
    "ampersand": "&",
    "colon": ":",
    "plus": "+",
    "minus": "-",
    "comma": ",",
    "full_stop": ".",
    "tilde": "~",
    "percent_sign": "%",
    "number_sign": "#",
    "equals_sign": "=",
    "exclamation_mark": "!",
    "left_curly_bracket": "{",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "right_curly_bracket": "}",
    "escape": "esc",
    "pageup": "pgup",
    "pagedown": "pgdn",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
}


def clashes(keys: Sequence[Key]) -> list[tuple[str, str, list[str]]]:
    """(context, key, ids) wherever a key would mean two things."""
    found = []
    for context, scopes in CONTEXTS.items():
        meant: dict[str, list[str]] = {}
        for key in keys:
            for pressed in key.keys if key.scope in scopes else ():
                meant.setdefault(pressed, []).append(key.id)
        found += [(context, pressed, ids) for pressed, ids in meant.items() if len(ids) > 1]
    return found


def rebind(moves: Mapping[str, tuple[str, ...]]) -> None:
    """Move keys by id, before any widget is made of the table. Raises FindingError `key_unknown`, `keys_clash`."""
    global KEYS
    known = {key.id for key in KEYS}
    problems = [
        error("key_unknown", f"There is no key with the id '{name}'.", path=f"keys.{name}", expected=sorted(known))
        for name in moves
        if name not in known
    ]
    moved = tuple(replace(key, keys=moves.get(key.id, key.keys)) for key in KEYS)
    problems += [
        error(
            "keys_clash",
            f"{name_of(pressed)} would mean {' and '.join(ids)} in '{context}'.",
            path="keys." + next((name for name in ids if name in moves), ids[0]),
            actual=pressed,
            fix="Give one of them another key.",
        )
        for context, pressed, ids in clashes(moved)
    ]
    if problems:
        raise FindingError(*problems)
    KEYS = moved


def in_scope(*scopes: str) -> list[Key]:
    return [key for key in KEYS if key.scope in scopes]


def name_of(key: str, ascii_only: bool = False) -> str:
    """A key as people write it."""
    return key if ascii_only and key in ("up", "down", "left", "right") else _NAMES.get(key, key)


def names_of(key: Key, ascii_only: bool = False) -> str:
    names = [name_of(one, ascii_only) for one in key.keys]
    return f"{names[0]}-{names[-1]}" if len(names) > 4 else " ".join(names)


def keys_table() -> str:
    """The table of all keys as Markdown, for the README."""
    rows = ["| key | id | action | where | guard |", "| --- | --- | --- | --- | --- |"]
    for key in KEYS:
        where = {"all": "everywhere", "run": "pipeline, stage", "list": "lists, log", "scroll": "log, stage",
                 "attempts": "pipeline, stage"}  # fmt: skip
        names = f"`{names_of(key) or ':' + key.id}`"
        place = where.get(key.scope, key.scope)
        rows.append(f"| {names} | {key.id} | {key.about} | {place} | {key.danger or '–'} |")
    return "\n".join(rows) + "\n"
