"""Two things side by side in the panel: choosing them, the rows, the files, and what hostile content may not do."""

from __future__ import annotations

import json

import pytest

from eagle3_tui import candidates, comparing
from eagle3_tui.comparing import DRAFTER, PROFILE
from eagle3_tui.mockdiff import FLAT, NESTED
from eagle3_tui.places_in_text import lines_of
from eagle3_tui.screens.diff import DiffScreen
from eagle3_tui.screens.pick import PickDialog
from eagle3_tui.widgets.difftable import DiffTable
from eagle3_tui.widgets.rawfile import RawFile

pytestmark = pytest.mark.long


async def choose(panel, *words: str) -> None:
    """Press d, then take the first candidate that holds each of ``words``."""
    await panel.press("d")
    for number, word in enumerate(words):
        await panel.until(lambda: isinstance(panel.app.screen, PickDialog))
        dialog = panel.app.screen
        await panel.until(lambda dialog=dialog: any(one.kind == PROFILE for one in dialog._known))
        dialog.query_one("Input").value = word
        await panel.settle()
        await panel.press("enter")
        await panel.until(lambda dialog=dialog: panel.app.screen is not dialog)
        assert number < len(words)
    await panel.until(lambda: isinstance(panel.app.screen, DiffScreen))
    await panel.settle()


def write(folder, config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    return folder


class TestRows:
    async def test_drafters_of_the_campaign_are_read_on_its_host_and_compared(self, show):
        async with show("done", (120, 40)) as panel:
            await choose(panel, "flat", "nested")
            told = panel.text()
            assert "not equal in effect" in told
            assert "✕ breaks    norm_before_residual" in told
            assert "the residual stream on vllm" in told
            assert "verifier.name_or_path" in told
            assert "hidden_act" not in panel.app.screen.query_one(DiffTable).line.name

    async def test_equals_shows_all_rows_and_keeps_the_selection(self, show):
        async with show("done", (120, 40)) as panel:
            await choose(panel, "flat", "nested")
            table = panel.app.screen.query_one(DiffTable)
            before, few = table.line, len(table.rows)
            await panel.press("equals_sign")
            assert table.line == before and len(table.rows) > few
            assert {line.kind for line in table.rows} >= {"spelling", "same"}
            await panel.press("equals_sign")
            assert table.line == before and len(table.rows) == few

    async def test_leaving_all_rows_from_an_equal_one_selects_a_difference_near_it(self, show):
        async with show("done", (80, 24)) as panel:
            await choose(panel, "flat", "nested")
            table = panel.app.screen.query_one(DiffTable)
            await panel.press("equals_sign", "g")
            assert not table.line.differs
            await panel.press("equals_sign")
            assert table.line.name == "norm_before_residual"

    async def test_n_and_N_go_from_difference_to_difference(self, show):
        async with show("done", (80, 24)) as panel:
            await choose(panel, "flat", "nested")
            table = panel.app.screen.query_one(DiffTable)
            await panel.press("equals_sign", "n")
            assert table.line.name == "max_position_embeddings"
            await panel.press("N")
            assert table.line.name == "norm_before_residual"
            await panel.press("N")
            assert "no difference before this one" in panel.lines()[-1]
            await panel.press("G", "n")
            assert "no further difference" in panel.lines()[-1]

    async def test_the_details_say_where_a_value_stands(self, show):
        async with show("done", (80, 24)) as panel:
            await choose(panel, "flat", "nested")
            await panel.press("n")
            assert "at transformer_layer_config.max_position_embeddings" in panel.text()

    async def test_y_copies_the_rows_that_are_shown(self, show):
        async with show("done", (80, 24)) as panel:
            await choose(panel, "flat", "nested")
            await panel.press("y")
            assert "breaking\tnorm_before_residual\tfalse\ttrue" in panel.app.clipboard
            assert "hidden_act" not in panel.app.clipboard
            await panel.press("equals_sign", "y")
            assert "hidden_act" in panel.app.clipboard

    async def test_esc_leads_back(self, show):
        async with show("done", (80, 24)) as panel:
            await choose(panel, "flat", "nested")
            await panel.press("escape")
            assert "Pipeline" in panel.text()

    async def test_another_pair_takes_the_place_of_the_first(self, show):
        async with show("done", (80, 24)) as panel:
            await choose(panel, "flat", "nested")
            await choose(panel, "train 8e07", "train 51c0")
            assert "learning_rate" in panel.text()
            await panel.press("escape")
            assert "Pipeline" in panel.text()


class TestFiles:
    async def test_enter_shows_both_files_where_the_row_stands(self, show):
        async with show("done", (80, 24)) as panel:
            await choose(panel, "flat", "nested")
            await panel.press("enter")
            told = panel.text()
            assert '▸   "norm_before_residual": false' in told and '▸   "norm_before_residual": true' in told
            await panel.press("n")
            assert told != panel.text()
            await panel.press("escape")
            assert "┏━ Diff" in panel.text()

    async def test_both_files_are_beside_each_other_where_there_is_room(self, show):
        async with show("done", (120, 40)) as panel:
            await choose(panel, "flat", "nested")
            panes = panel.app.screen.query(RawFile)
            assert [pane.region.area > 0 for pane in panes] == [True, True]
            await panel.press("tab")
            await panel.press("y")
            assert json.loads(panel.app.clipboard) == FLAT

    def test_a_key_is_found_in_its_file_by_its_dotted_name(self):
        text = json.dumps(NESTED, indent=2)
        found = lines_of(text)
        lines = text.split("\n")
        assert '"name_or_path"' in lines[found["speculators_config.verifier.name_or_path"]]
        assert '"architectures"' in lines[found["architectures"]]
        assert found["architectures"] != found["speculators_config.verifier.architectures"]

    def test_strings_that_look_like_keys_are_not_taken_for_them(self):
        assert lines_of('{"a": "b\\": {",\n "c": ["x", {"d": 1}],\n "e": {}}') == {"a": 0, "c": 1, "c.d": 1, "e": 2}
        assert lines_of('{]}[{{\n"') == {}

    def test_a_toml_key_is_found_below_its_table(self):
        assert lines_of('top = 1\n[stages.train]\n# epochs = 3\nepochs = 4\n"x" = 1\n') == {
            "top": 0, "stages.train.epochs": 3, "stages.train.x": 4,
        }  # fmt: skip


class TestChoosing:
    async def test_the_second_side_is_of_the_kind_of_the_first(self, show):
        async with show("done", (80, 24)) as panel:
            await panel.press("d")
            dialog = panel.app.screen
            await panel.until(lambda: any(one.kind == PROFILE for one in dialog._known))
            dialog.query_one("Input").value = "51c0"
            await panel.press("enter")
            await panel.until(lambda: panel.app.screen is not dialog)
            await panel.settle()
            told = panel.text()
            assert (
                "train 8e07, attempt 2" in told and "profile" not in told and "51c0, attempt" not in told.split("B:")[0]
            )

    async def test_on_a_stage_its_runs_come_first(self, show):
        async with show("train", (80, 24)) as panel:
            await panel.press("enter", "d")
            await panel.until(lambda: "▸ run      train 8e07, attempt 2" in panel.text())

    async def test_a_path_can_be_typed_and_completed(self, show, tmp_path):
        write(tmp_path / "drafter-one", FLAT)
        write(tmp_path / "drafter-two", {**FLAT, "hidden_size": 64})
        async with show("train", (120, 40)) as panel:
            await panel.press("d")
            field = panel.app.screen.query_one("Input")
            field.value = f"{tmp_path}/dr"
            await panel.until(lambda: "drafter-two/" in panel.text())
            await panel.press("tab")
            assert field.value == f"{tmp_path}/drafter-"
            await panel.until(lambda: "has a config.json" in panel.text())
            await panel.press("down", "tab")
            assert field.value == f"{tmp_path}/drafter-two/"

    async def test_drafters_of_this_machine_are_compared_by_their_paths(self, show, tmp_path):
        write(tmp_path / "one", FLAT)
        write(tmp_path / "two", {**FLAT, "hidden_size": 64})
        async with show("empty", (120, 40)) as panel:
            await choose(panel, f"{tmp_path}/one/", f"{tmp_path}/two/config.json")
            assert "hidden_size" in panel.text() and "tensor shapes on vllm, sglang" in panel.text()

    async def test_a_file_that_cannot_be_read_opens_a_message(self, show, tmp_path):
        write(tmp_path / "one", FLAT)
        (tmp_path / "bad.json").write_text("[/]{")
        async with show("train", (80, 24)) as panel:
            await panel.press("d")
            panel.app.screen.query_one("Input").value = f"{tmp_path}/one/"
            await panel.press("enter")
            await panel.settle()
            panel.app.screen.query_one("Input").value = f"{tmp_path}/bad.json"
            await panel.press("enter")
            await panel.until(lambda: "Cannot compare" in panel.text())
            assert "json_invalid" in panel.text()

    async def test_esc_chooses_nothing(self, show):
        async with show("train", (80, 24)) as panel:
            await panel.press("d", "escape")
            assert "┏━ Pipeline" in panel.text()

    def test_a_folder_without_end_offers_a_bounded_list(self, tmp_path):
        for number in range(candidates.LISTED + 50):
            (tmp_path / f"{number:04}.json").touch()
        assert len(candidates.paths(f"{tmp_path}/")) == candidates.LISTED

    @pytest.mark.parametrize(
        "words", ["/no/such/folder/x", "/etc/passwd/x", "~nobody-of-that-name/x", "/\0", "/\ud800"]
    )
    def test_a_path_that_leads_nowhere_offers_itself_alone(self, words):
        assert [one.path for one in candidates.paths(words)] == [words]

    def test_a_toml_file_is_a_profile_and_everything_else_a_drafter(self):
        assert candidates.typed("x/y.toml").kind == PROFILE
        assert candidates.typed("x/y").kind == candidates.typed("x/config.json").kind == DRAFTER


class TestParameters:
    def profile(self, tmp_path, name, rest=""):
        path = tmp_path / f"{name}.toml"
        path.write_text(f'[host]\naddress = "embedded"\n[target]\nmodel = "demo:smollm2-135m"\n{rest}')
        return comparing.profile_document(path)

    def test_profiles_differ_by_value_and_say_what_that_makes_anew(self, tmp_path):
        left = self.profile(tmp_path, "a")
        right = self.profile(tmp_path, "b", "[stages.train]\nepochs = 99\nsave_seconds = 5.0\n")
        found = comparing.compare(left, right)
        changed = {line.name: line for line in found.lines if line.differs}
        assert changed["stages.train.epochs"].kind == "changed"
        assert changed["stages.train.epochs"].words.startswith("new artifacts of train and")
        assert changed["stages.train.save_seconds"].kind == "harmless"
        assert len(changed) == 2 and not found.equal

    def test_a_value_that_repeats_the_default_is_no_difference(self, tmp_path):
        left = self.profile(tmp_path, "a")
        value = left.values["stages.train.epochs"]
        found = comparing.compare(left, self.profile(tmp_path, "b", f"[stages.train]\nepochs = {value}\n"))
        assert found.equal and found.counts["default"] == 1

    def test_a_run_that_read_other_artifacts_says_so(self):
        one = {"stage": "train", "parameters": {"epochs": 1}, "input_fingerprints": {"vocab": "a"}}
        other = {**one, "input_fingerprints": {"vocab": "b"}}
        found = comparing.compare(comparing.run_document("a", one), comparing.run_document("b", other))
        assert [line.name for line in found.lines if line.kind == "changed"] == ["input_fingerprints.vocab"]


NASTY = [
    "[/] [bold red]x[/]",
    "\x1b]0;t\x07\x1b[2J",
    "日本語の長い名前" * 20,
    "e" + "\u0301" * 400,
    "\u202egnp",
    "a\nb\tc",
    "",
]


@pytest.mark.parametrize("text", NASTY)
@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)], ids=str)
async def test_nasty_keys_and_values_leave_the_panel_whole(show, tmp_path, text, size):
    left = write(tmp_path / "one", {**FLAT, text: text})
    right = write(tmp_path / "two", {**FLAT, text: {text: [text]}, "architectures": [text]})
    async with show("train", size) as panel:
        await choose(panel, f"{left}/", f"{right}/")
        await panel.press("equals_sign", "G")
        for _ in range(3):
            for strip in panel.app.screen._compositor.render_strips():
                assert strip.cell_length == size[0]
                for segment in strip:
                    assert segment.control is None
                    assert not [one for one in segment.text if ord(one) < 32 or 127 <= ord(one) < 160]
            await panel.press("enter", "tab")


async def test_a_thousand_tensors_do_not_slow_the_keys(show, tmp_path):
    """Only the rows in view are drawn: a key costs about as much as with twenty rows."""
    experts = {f"expert_{number}": number for number in range(1200)}
    left, right = write(tmp_path / "one", {**FLAT, **experts}), write(tmp_path / "two", FLAT)
    async with show("train", (200, 60)) as panel:
        await choose(panel, f"{left}/", f"{right}/")
        table = panel.app.screen.query_one(DiffTable)
        drawn = []
        original = table._row
        table._row = lambda *arguments: drawn.append(1) or original(*arguments)
        await panel.press("equals_sign", "G", "equals_sign", "g")
        assert 0 < len(drawn) < 8 * 60
        assert len(table.rows) == 1200
