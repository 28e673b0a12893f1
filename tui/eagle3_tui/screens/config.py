"""The profile as a form: what each key is set to and means, faults beside the values, and what a change would cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from eagle3_backend.control.commands import WriteProfile
from eagle3_backend.control.snapshot import Snapshot
from eagle3_backend.findings import Finding, FindingError
from eagle3_backend.pipeline.stages import STAGES
from eagle3_tui import profileform
from eagle3_tui.bindings import bindings
from eagle3_tui.places import own_profile
from eagle3_tui.profileform import Form, Value, in_words
from eagle3_tui.screens.base import PanelScreen
from eagle3_tui.screens.tables import TableScreen
from eagle3_tui.text import clean
from eagle3_tui.widgets.facts import finding_lines, pairs_lines, wrapped
from eagle3_tui.widgets.logpane import words_of
from eagle3_tui.widgets.table import Row, Table, TablePane

if TYPE_CHECKING:
    from eagle3_tui.editing import Draft

PLACES = {"host.address", "host.transport", "host.workspace"}
"""Keys that lead to other artifacts without changing any."""


class ConfigScreen(TableScreen):
    """Edits are kept as texts of the whole file, one for each; nothing is written before the operator saves."""

    BINDINGS = bindings("config")
    CSS_PATH = "../theme/forms.tcss"
    context = "config"

    def __init__(self, stage: str = "") -> None:
        super().__init__(stage)
        self._form: Form | None = None
        self._texts: list[str] = []
        self._draft = ""
        self._only = False
        self._filter = ""
        self._turn = asyncio.Lock()
        self._drawn: tuple[tuple[Any, ...], Table] | None = None
        self._begun_at = ""

    @property
    def form(self) -> Form | None:
        """What is shown; None until the file was read."""
        return self._form

    def on_mount(self) -> None:
        before = self.app.screen_stack[-2]
        if isinstance(before, PanelScreen) and before.stage_chosen:
            self._begun_at = self._stage

    # Reading and checking, one after the other and never on the loop.

    def refresh_data(self) -> None:
        """Read the file; edits that are not saved stay."""
        if self.unsaved:
            self.panel.notice("edits are not saved yet; u takes them back", "warn")
        else:
            self._work(self._read)

    def _work(self, make: Callable[[], tuple[list[str], Form]]) -> None:
        self.run_worker(self._take(make), group="profile")

    async def _take(self, make: Callable[[], tuple[list[str], Form]]) -> None:
        async with self._turn:
            try:
                self._texts, self._form = await asyncio.to_thread(make)
                self.trouble = ""
            except FindingError as problem:
                if self._form is None:
                    self.trouble = words_of(problem)
                self.panel.notice(words_of(problem), "bad")
            self.redraw()
            self._go_to_stage()

    def _read(self) -> tuple[list[str], Form]:
        path = self.panel.opened.profile
        text = profileform.read(path)
        return [text], profileform.form(path, text, text)

    def _changed(self, change: Callable[[str], str]) -> tuple[list[str], Form]:
        assert self._form is not None
        text = change(self._texts[-1])
        return [*self._texts, text], profileform.form(self._form.path, self._form.saved, text)

    def _undone(self) -> tuple[list[str], Form]:
        assert self._form is not None
        texts = self._texts[:-1] or self._texts
        return texts, profileform.form(self._form.path, self._form.saved, texts[-1])

    def _go_to_stage(self) -> None:
        """Begin where the operator came from, once."""
        stage, self._begun_at = self._begun_at, ""
        if stage and self._form is not None:
            first = next((value.field.path for value in self._form.values if value.field.stage == stage), "")
            if first:
                self.query_one(TablePane).mark(first)

    def show(self, snapshot: Snapshot) -> None:
        """Another profile may have been opened; what was edited of the one before was given up then."""
        if self._form is not None and self._form.path != self.panel.opened.profile:
            self._form, self._texts, self._draft = None, [], ""
            self._work(self._read)
        super().show(snapshot)

    # What is seen.

    def _shown(self) -> list[Value]:
        """What the filter leaves: by names, else by meanings. What has to be corrected is always there."""
        values = self._form.values if self._form is not None else ()
        if self._only:
            values = tuple(value for value in values if value.changed or value.edited or value.findings)
        words = self._filter.lower().split()
        named = {value.field.path for value in values if _has(value.field.name, words)}
        named = named or {
            value.field.path for value in values if _has(f"{value.field.name} {value.field.about}", words)
        }
        return [value for value in values if value.field.path in named or (words and value.findings)]

    def table(self) -> Table:
        drawn = (id(self._form), self._only, self._filter, self.app.size, self.trouble, self.panel.look.ascii_only)
        if self._drawn is None or self._drawn[0] != drawn:
            self._drawn = (drawn, self._table())
        return self._drawn[1]

    def _table(self) -> Table:
        look, form = self.panel.look, self._form
        path = form.path if form is not None else self.panel.opened.profile
        facts = ["Config", clean(path.name, 60)]
        if form is None:
            return Table(look.joined(facts), empty=self.trouble or "reading the profile")
        if form.text != form.saved:
            facts.append(f"{len(form.edits) or 'text'} not saved")
        if form.findings:
            facts.append(f"{len(form.findings)} to correct")
        facts += ["without defaults"] * self._only + [f"only {self._filter}"] * bool(self._filter)
        wide = self.app.size.width >= 100
        heads = (" ", "key", "value", "default", *(("meaning",) if wide else ()))
        rows = tuple(Row(value.field.path, self._cells(value, wide)) for value in self._shown())
        notes = tuple(self._notes(form))
        return Table(look.joined(facts), heads, rows, "no key is like that", notes)

    def _cells(self, value: Value, wide: bool) -> tuple[tuple[str, str], ...]:
        look = self.panel.look
        mark, role = (" ", "dim")
        if value.findings:
            mark, role = look.severity("error")
        elif value.edited:
            mark, role = "*", "accent"
        elif value.changed:
            mark, role = look.glyph("dot"), "text"
        told = "bad" if value.findings else "accent" if value.edited else "text" if value.changed else "dim"
        default = in_words(value.field.default)
        cells = ((mark, role), (value.field.name, "text"), (in_words(value.value), told), (default, "dim"))
        return (*cells, (value.field.about, "dim")) if wide else cells

    def _notes(self, form: Form) -> list[Text]:
        """What is not saved would do, above the rows."""
        look = self.panel.look
        notes = []
        if self.panel.opened.settings:
            settings = " ".join(clean(one, 80) for one in self.panel.opened.settings)
            notes.append(look.line((f" --set counts more than the file: {look.remote(settings)}", "warn")))
        if form.edits and form.reach is not None:
            notes.append(look.line((f" Not saved: {self._reach_words(form)}", "warn")))
        return [*notes, Text("")] if notes else []

    def _reach_words(self, form: Form) -> str:
        """Which artifacts the edits would put out of date, and which are only not made yet."""
        if form.reach is None:
            return "the profile is faulty"
        if PLACES & {value.field.path for value in form.edits}:
            return "the work goes on in another place, where what was made there before counts"
        made = [name for name in form.reach if STAGES[name].makes]
        fresh = [name for name in made if (view := self.panel.picture.stage(name)) and view.fresh]
        if fresh:
            return f"out of date by it: {', '.join(fresh)}"
        return "nothing that is made goes out of date" if form.reach else "no artifact becomes another"

    def detail(self, key: str, width: int) -> list[Text]:
        look = self.panel.look
        value = self._form.value(key) if self._form is not None else None
        if value is None:
            return []
        field = value.field
        lines: list[Text] = []
        for finding in value.findings:
            lines += finding_lines(finding, look, width)
        if field.about:
            lines += wrapped(look, clean(field.about, 2000), width)
        origin = "from the profile" if value.written else "the default"
        told = [("value", f"{clean(in_words(value.value), 400)}  ({origin})")]
        told += [("was", clean(in_words(value.saved), 400))] if value.edited else []
        told += [("default", clean(in_words(field.default), 400))]
        told += [("may be", ", ".join(field.choices) or field.bound)] if field.choices or field.bound else []
        told += [("a change", profileform.effect(value))]
        return [*lines, *pairs_lines(told, look, width)]

    # Keys.

    @property
    def _value(self) -> Value | None:
        return self._form.value(self.marked) if self._form is not None else None

    def action_open_row(self) -> None:
        self.action_edit_value()

    def action_edit_value(self) -> None:
        value = self._value
        if value is None or self.panel.refuses_acts("edit"):
            return
        field = value.field
        if field.default is profileform.ABSENT and not field.about:
            self.panel.notice("this is no key of a profile; D takes it out", "warn")
            return
        shown = value.value if isinstance(value.value, str) else in_words(value.value)
        hint = ", ".join(field.choices) or field.bound or "a value as TOML"

        def then(words: str) -> None:
            if words != shown:
                typed = profileform.typed(field, words)
                self._work(lambda: self._changed(lambda text: profileform.with_value(text, field.path, typed)))

        label = f"{clean(field.name, 40)} = "
        self.panel.ask_line(label, "" if shown == "-" else shown, then, hint, list(field.choices))

    def action_edit_file(self) -> None:
        """The text in the operator's own editor; what comes back is an edit like any other, or a draft."""
        if self.panel.refuses_acts("edit"):
            return
        from eagle3_tui.editing import edit

        path = self.panel.opened.profile
        try:
            text = self._texts[-1] if self._texts else profileform.read(path)
            draft = edit(self.panel, path.name, self._draft or text)
        except FindingError as problem:
            self._show_findings("Not edited", problem.findings)
            return
        if draft is None:
            self.panel.notice("the editor changed nothing")
        else:
            self.run_worker(self._take_draft(draft, text), group="profile")

    async def _take_draft(self, draft: Draft, before: str) -> None:
        async with self._turn:
            saved = self._form.saved if self._form is not None else before
            try:
                form = await asyncio.to_thread(profileform.form, self.panel.opened.profile, saved, draft.text)
            except FindingError as problem:
                self._draft = draft.text
                words = f"What you wrote is kept in {draft.path}, and E goes on with it."
                self._show_findings("Not taken over", problem.findings, words)
                return
            draft.forget()
            self._draft, self.trouble = "", ""
            self._texts, self._form = [*(self._texts or [saved]), draft.text], form
        self.redraw()
        if form.findings:
            self._show_findings("To correct before it is saved", form.findings)

    def _show_findings(self, heading: str, findings: tuple[Finding, ...], words: str = "") -> None:
        from eagle3_tui.screens.dialogs import MessageDialog

        self.app.push_screen(MessageDialog(heading, findings, words))

    def action_default_value(self) -> None:
        value = self._value
        if value is None or self.panel.refuses_acts("edit"):
            return
        if not value.written:
            self.panel.notice("it is the default already")
            return
        path = value.field.path
        self._work(lambda: self._changed(lambda text: profileform.without(text, path)))

    def action_undo_edit(self) -> None:
        if self._draft:
            self._draft = ""
            self.panel.notice("what the editor left is dropped")
        elif len(self._texts) < 2:
            self.panel.notice("there is no edit to take back")
        else:
            self._work(self._undone)

    def action_only_changed(self) -> None:
        self._only = not self._only
        self.redraw()

    def action_filter_values(self) -> None:
        self.panel.ask_line("/", self._filter, self._set_filter, "words of the key or its meaning; empty shows all")

    def _set_filter(self, text: str) -> None:
        self._filter = text.strip()
        self.redraw()

    def action_write_profile(self) -> None:
        form = self._form
        if form is None or self.panel.refuses_acts("save"):
            return
        if form.text == form.saved:
            self.panel.notice("there is nothing to save")
            return
        if form.findings:
            self.panel.notice(f"cannot save: {clean(form.findings[0].path)}: {words_of(FindingError(*form.findings))}",
                              "warn")  # fmt: skip
            return
        from eagle3_tui.screens.dialogs import ConfirmDialog

        own = own_profile(form.path)
        names = ", ".join(clean(value.field.name, 60) for value in form.edits[:8]) or "Comments or spelling"
        more = len(form.edits) - 8
        told = self._reach_words(form)
        words = f"{names}{f' and {more} more' if more > 0 else ''}. {told[0].upper()}{told[1:]}. "
        words += "What is at work goes on with the values that it was started with. "
        if own != form.path:
            words += "A shipped profile stays as it is: the change goes to your own copy of it. "
        words += f"{clean(own, 300)} is written and opened again."
        self.app.push_screen(ConfirmDialog("Save the profile", words, "save"), lambda sure: self._save(form, own, sure))

    def _save(self, form: Form, own: Path, sure: bool | None) -> None:
        if not sure:
            return
        copy = own != form.path
        text = profileform.with_whole_paths(form.text, form.path.parent) if copy else form.text

        def saved(path: object) -> None:
            self._form = None
            self.panel.open_profile(Path(str(path)))
            self._work(self._read_again)

        def refused(problem: BaseException) -> None:
            findings = problem.findings if isinstance(problem, FindingError) else ()
            self._show_findings("Not saved", findings, "" if findings else words_of(problem))

        self.panel.inquire(WriteProfile(own, text, "" if copy else form.saved), saved, refused)

    def _read_again(self) -> tuple[list[str], Form]:
        """After saving: the edits that were made can still be taken back."""
        path = self.panel.opened.profile
        text = profileform.read(path)
        return [*self._texts[:-1], text], profileform.form(path, text, text)

    @property
    def unsaved(self) -> str:
        form = self._form
        if self._draft:
            return "What you wrote in the editor is not taken over yet; E goes on with it."
        if form is None or form.text == form.saved:
            return ""
        return f"{_edits_of(form)} not saved; w saves what is changed."

    def leave(self) -> None:
        if self._filter:
            self._set_filter("")
        elif self.unsaved:
            from eagle3_tui.screens.dialogs import ConfirmDialog

            dialog = ConfirmDialog("Leave the form", self.unsaved, "leave without saving")
            self.app.push_screen(dialog, lambda sure: super(ConfigScreen, self).leave() if sure else None)
        else:
            super().leave()


def _edits_of(form: Form) -> str:
    count = len(form.edits)
    return f"{count} edits are" if count > 1 else "One edit is" if count else "Comments or spelling are"


def _has(text: str, words: list[str]) -> bool:
    return all(word in text.lower() for word in words)
