from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from eagle3_backend.findings import FindingError
from eagle3_tui import keymap
from eagle3_tui.widgets.footer import chosen

TERMINALS_TAKE = {f"ctrl+{letter}" for letter in "abhijmoqsz"} | {"ctrl+["}


def test_a_key_means_one_thing_in_each_context() -> None:
    assert keymap.clashes(keymap.KEYS) == []


def test_a_clash_is_seen() -> None:
    moved = tuple(replace(key, keys=("f",)) if key.id == "wrap" else key for key in keymap.KEYS)
    assert ("log", "f", ["follow", "wrap"]) in keymap.clashes(moved)


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(keymap, "KEYS", keymap.KEYS)


def test_a_key_is_moved_by_its_id_everywhere(table) -> None:
    keymap.rebind({"stop": ("f8",)})
    assert "| `f8` | stop | stop the stage" in keymap.keys_table()
    assert next(key for key in chosen("pipeline", 80) if key.id == "stop").keys == ("f8",)


@pytest.mark.parametrize(("moves", "code"), [({"stpo": ("f8",)}, "key_unknown"), ({"stop": ("s",)}, "keys_clash")])
def test_a_faulty_move_is_refused_and_changes_nothing(table, moves, code) -> None:
    before = keymap.KEYS
    with pytest.raises(FindingError) as refused:
        keymap.rebind(moves)
    assert refused.value.findings[0].code == code and keymap.KEYS is before


def test_ids_are_unique_so_that_keys_can_be_moved() -> None:
    assert max(Counter(key.id for key in keymap.KEYS).values()) == 1


def test_every_scope_is_reached_from_some_context() -> None:
    reached = {scope for scopes in keymap.CONTEXTS.values() for scope in scopes}
    assert {key.scope for key in keymap.KEYS} <= reached


def test_keys_that_terminals_and_multiplexers_take_are_left_alone() -> None:
    assert not TERMINALS_TAKE & {one for key in keymap.KEYS for one in key.keys}


@pytest.mark.parametrize("context", ["pipeline", "log", "stage", "stage log", "help"])
@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
def test_the_footer_cuts_no_key_in_half(context: str, width: int) -> None:
    words = "  ".join(f"{keymap.name_of(key.keys[0])} {key.help}" for key in chosen(context, width))
    assert len(words) + 1 <= width


def test_the_footer_at_80_columns_holds_what_a_new_operator_needs() -> None:
    assert {"start", "stop", "resume", "open", "help", "quit"} <= {key.id for key in chosen("pipeline", 80)}


def test_the_smallest_footer_still_says_how_to_leave() -> None:
    assert {"help", "quit"} & {key.id for key in chosen("pipeline", 40)}


def test_the_table_for_the_readme_names_every_key() -> None:
    table = keymap.keys_table()
    assert table.count("\n") == len(keymap.KEYS) + 2
    assert all(key.about in table for key in keymap.KEYS)
