"""Figures of benches: none without what it means, none that compares what is not alike."""

from __future__ import annotations

import pytest

from eagle3_tui.benchfigures import Bench, figures, interval, not_comparable
from eagle3_tui.mockserving import _bench

THREE = _bench(3, (0.62, 0.41, 0.28), (0.34, 0.12, 0.06), 1.37, 64)
FIVE = _bench(5, (0.58, 0.35, 0.22, 0.13, 0.08), (0.31, 0.1, 0.05, 0.02, 0.01), 1.22, 128)


def values(*benches: Bench) -> dict[str, tuple[str, ...]]:
    return {figure.name.strip(): figure.values for figure in figures(benches)}


def test_every_figure_has_its_definition():
    made = figures([Bench("A", THREE), Bench("B", FIVE)])
    assert len(made) > 30 and all(len(figure.means) > 20 for figure in made)
    assert len({figure.key for figure in made}) == len(made)


def test_lengths_stand_beside_lengths_of_the_same_depth():
    told = values(Bench("A", THREE), Bench("B", FIVE))
    assert told["length, depth 3, in domain"] == ("2.31 (2.26 to 2.38)", "2.15 estimated")
    assert told["length, depth 5, in domain"] == ("-", "2.36 (2.31 to 2.43)")
    assert told["lossless"] == ("24 of 24 equal",) * 2


def test_what_was_measured_otherwise_is_named():
    benches = [Bench("A", THREE), Bench("B", FIVE)]
    assert not_comparable(benches) == ["max_new_tokens"]
    assert not_comparable(benches[:1]) == not_comparable([benches[0], benches[0]]) == []
    assert [figure.name for figure in figures(benches) if figure.differs] == ["recipe: depth", "recipe: max new tokens"]


def test_what_one_compares_or_only_one_bench_tells_is_no_obstacle():
    other = {**THREE, "recipe": {**THREE["recipe"], "against": ["ngram"], "depths": [1, 3], "device": "cpu"}}
    assert not_comparable([Bench("A", THREE), Bench("B", other)]) == []


def test_a_bench_tells_the_depth_at_each_load_and_its_own_control():
    told = values(Bench("A", THREE))
    assert (told["depth with 1 in flight"], told["depth with 8 in flight"]) == (("3",), ("off",))
    assert told["control raw text"] == ("1.31 beside 2.31: worse",)


def test_a_diagnosis_is_told_with_its_controls():
    controls = {"shuffled_d2t": {"failed_as_it_must": False}}
    found = {"verdict": "engine_runs_another_drafter", "equal_share": 0.412, "steps": 900, "controls": controls}
    made = {figure.name.strip(): figure for figure in figures([Bench("A", THREE, found)])}
    assert made["diagnosis"].values == ("engine runs another drafter",) and made["diagnosis"].role == "bad"
    assert made["steps predicted"].values == ("41.20 %",)
    assert made["control shuffled d2t"].values == ("did not fail",)


def test_what_was_not_measured_is_no_number():
    empty = {"acceptance_length": {"in_domain": None}, "by_depth": [], "lossless_equal": None, "lossless_total": None,
             "speedup_c1": None, "recommended_depth": None, "recipe": {"depth": 3}}  # fmt: skip
    told = values(Bench("A", empty))
    assert told["length, depth 3, in domain"] == ("not measured",)
    assert (told["lossless"], told["speed-up, one request"], told["recommended depth"]) == (
        ("not compared",), ("not measured",), ("-",))  # fmt: skip
    assert values(Bench("A", {**empty, "recommended_depth": 0}))["recommended depth"] == ("0: without it",)


@pytest.mark.parametrize("nasty", [None, 3, "x", [1, {}], {"a": [None]}, float("nan"), True, 10**400])
def test_a_manifest_of_any_shape_is_shown(nasty):
    summary = {name: nasty for name in THREE}
    figures([Bench("A", summary, {"verdict": nasty, "equal_share": nasty, "controls": nasty, "steps": nasty})])
    nested = {"acceptance_length": {"in_domain": nasty, "[/]": {"by_position": nasty, "overlap_13gram": nasty}},
              "by_depth": [nasty, {"depth": nasty}, {"depth": 2, "speedup_c1": nasty}], "recipe": {"[/]": nasty},
              "recommended_depth": nasty, "lossless_total": nasty}  # fmt: skip
    assert figures([Bench("A", nested), Bench("B", THREE)])
    interval(nasty)
