"""Two drafters side by side: what is the same in other words, and what breaks where."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from eagle3_backend.drafter import diff
from eagle3_backend.drafter.diff import Kind
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.jsonfile import MAX_DEPTH, read_object
from eagle3_backend.drafter.reading import read_config
from eagle3_backend.findings import FindingError

PUBLISHED = Path(os.environ.get("EAGLE3_REFERENCE_CONFIGS") or Path(__file__).parents[3] / "shared/reference-configs")

FLAT = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_hidden_layers": 1,
    "vocab_size": 512,
    "draft_vocab_size": 256,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "torch_dtype": "bfloat16",
    "norm_before_residual": False,
    "eagle_aux_hidden_state_layer_ids": [2, 8, 13],
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 7, 12]},
}
LAYER_KEYS = [
    "model_type", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "num_hidden_layers", "vocab_size", "rms_norm_eps", "max_position_embeddings", "rope_theta", "rope_scaling",
]  # fmt: skip
NESTED = {
    "architectures": ["Eagle3DraftModel"],
    "speculators_model_type": "eagle3",
    "speculators_version": "0.9.0",
    "speculators_config": {
        "algorithm": "eagle3",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
        "verifier": {"architectures": ["LlamaForCausalLM"], "name_or_path": "org/target"},
    },
    "transformer_layer_config": {key: FLAT[key] for key in LAYER_KEYS},
    "draft_vocab_size": 256,
    "dtype": "bfloat16",
    "norm_before_residual": False,
    "eagle_aux_hidden_state_layer_ids": [2, 8, 13],
}
TARGET = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 16, "hidden_size": 64, "vocab_size": 512}


def changed(config, **values):
    """``config`` with other values; `...` takes a key away."""
    made = {**config, **values}
    return {key: value for key, value in made.items() if value is not ...}


def in_layer(**values):
    return {**NESTED, "transformer_layer_config": changed(NESTED["transformer_layer_config"], **values)}


def row(rows, field):
    (found,) = [one for one in rows if one.field == field]
    return found


def kinds(rows):
    return {one.field: one.kind for one in rows if one.kind is not Kind.SAME}


def test_a_config_equals_itself_key_by_key():
    for config in (FLAT, NESTED):
        rows = diff.compare(config, config)
        assert {one.kind for one in rows} == {Kind.SAME}
        assert diff.equal_in_effect(rows)


def test_both_layouts_of_a_drafter_are_equal_in_effect():
    rows = diff.compare(FLAT, NESTED, TARGET)
    assert diff.equal_in_effect(rows)
    assert row(rows, "hidden_size").kind is Kind.SPELLING
    assert row(rows, "hidden_size").right.paths == ("transformer_layer_config.hidden_size",)
    assert row(rows, "torch_dtype").kind is Kind.SPELLING
    assert row(rows, "architectures").kind is Kind.SPELLING
    assert row(rows, "speculators_config.verifier.name_or_path").kind is Kind.HARMLESS


@pytest.mark.parametrize(
    ("key", "value", "engines"),
    [
        ("hidden_size", 32, ["vllm", "sglang"]),
        ("norm_before_residual", True, ["vllm"]),
        ("max_position_embeddings", 4096, ["sglang"]),
        ("tie_word_embeddings", True, ["sglang"]),
        ("attention_bias", True, ["vllm"]),
        ("rope_theta", 5e5, ["vllm", "sglang"]),
        ("torch_dtype", "float16", ["sglang"]),
        ("num_aux_hidden_states", 4, ["vllm", "sglang"]),
    ],
)
def test_a_difference_breaks_where_the_engine_looks_at_it(key, value, engines):
    rows = diff.compare(FLAT, {**FLAT, key: value})
    assert not diff.equal_in_effect(rows)
    assert kinds(rows) == {key: Kind.BREAKING}
    found = row(rows, key)
    assert [effect.engine for effect in found.effects] == engines
    assert f"on {', '.join(engines)}" in found.words


@pytest.mark.parametrize("key", ["bos_token_id", "initializer_range", "use_cache", "max_window_layers"])
def test_a_difference_that_nobody_looks_at_is_harmless_and_says_why(key):
    rows = diff.compare(FLAT, {**FLAT, key: 7})
    assert kinds(rows) == {key: Kind.HARMLESS}
    assert row(rows, key).note
    assert diff.equal_in_effect(rows)


def test_an_unknown_key_is_shown_and_never_called_harmless():
    rows = diff.compare(FLAT, {**FLAT, "fancy": {"knob": [1, 2]}})
    assert row(rows, "fancy.knob").kind is Kind.UNKNOWN
    assert row(rows, "fancy.knob").right.written == [1, 2]
    assert not diff.equal_in_effect(rows)


def test_an_unknown_key_is_found_again_in_the_other_layout():
    rows = diff.compare({**FLAT, "fancy": 1}, in_layer(fancy=1), TARGET)
    assert row(rows, "fancy").kind is Kind.SPELLING
    assert diff.equal_in_effect(rows)


def test_an_unknown_key_at_two_places_is_compared_at_both():
    nested = {**in_layer(fancy=1), "fancy": None}
    flat = {**FLAT, "fancy": 1, "eagle3_tui_nested": {"fancy": None}}
    assert row(diff.compare(nested, flat, TARGET), "fancy").kind is Kind.SPELLING
    assert row(diff.compare(flat, nested, TARGET), "fancy").kind is Kind.SPELLING
    for other in ({**flat, "eagle3_tui_nested": {"fancy": 2}}, {**flat, "fancy": None}, {**FLAT, "fancy": 1}):
        assert row(diff.compare(nested, other, TARGET), "fancy").kind is Kind.UNKNOWN


def test_nothing_of_either_file_is_lost():
    left = {**FLAT, "fancy": {"a": 1, "b": {}}, "eagle_config": {**FLAT["eagle_config"], "norm_before_fc": True}}
    right = in_layer(fancy=2, rope_parameters={"rope_theta": 5e5, "rope_type": "default"}, dtype="float32")
    rows = diff.compare(left, right)
    for config, side in ((left, "left"), (right, "right")):
        shown = {path for one in rows for path in getattr(one, side).paths}
        for path, _ in diff._leaves(config):
            assert any(path == one or path.startswith(f"{one}.") for one in shown), path


def test_a_place_that_contradicts_the_one_that_counts_is_a_row_of_its_own():
    rows = diff.compare(FLAT, {**FLAT, "norm_before_fc": True, "eagle_config": {"norm_before_fc": False}})
    counted, other = [one for one in rows if one.field == "norm_before_fc"]
    assert (counted.right.value, counted.right.paths) == (False, ("eagle_config.norm_before_fc",))
    assert (other.right.written, other.right.paths, other.kind) == (True, ("norm_before_fc",), Kind.UNKNOWN)
    assert "contradicts" in other.words


class TestDefaults:
    @pytest.mark.parametrize(
        ("key", "value"),
        [("head_dim", 16), ("num_key_value_heads", 4), ("tie_word_embeddings", False), ("sliding_window", None),
         ("target_hidden_size", 64), ("layer_types", ["full_attention"]), ("num_aux_hidden_states", 3),
         ("norm_before_residual", False), ("hidden_act", "silu")],
    )  # fmt: skip
    def test_what_is_absent_equals_its_default(self, key, value):
        rows = diff.compare(changed(FLAT, **{key: ...}), {**FLAT, key: value})
        assert kinds(rows) == {key: Kind.DEFAULT}
        assert diff.equal_in_effect(rows)

    def test_an_absent_head_dim_is_not_a_head_dim_of_another_size(self):
        rows = diff.compare(changed(FLAT, head_dim=...), {**FLAT, "head_dim": 32})
        found = row(rows, "head_dim")
        assert (found.kind, found.left.value, found.left.written) == (Kind.BREAKING, 16, None)

    def test_an_absent_norm_before_residual_differs_by_layout(self):
        rows = diff.compare(changed(FLAT, norm_before_residual=...), changed(NESTED, norm_before_residual=...), TARGET)
        found = row(rows, "norm_before_residual")
        assert (found.kind, found.left.value, found.right.value) == (Kind.BREAKING, False, True)

    def test_a_window_that_no_layer_uses_is_no_difference(self):
        rows = diff.compare(FLAT, {**FLAT, "sliding_window": 2048, "use_sliding_window": False})
        assert diff.equal_in_effect(rows)
        rows = diff.compare(FLAT, {**FLAT, "sliding_window": 2048, "layer_types": ["sliding_attention"]})
        assert {name for name, kind in kinds(rows).items() if kind is Kind.BREAKING} == {
            "sliding_window",
            "layer_types",
        }


class TestRope:
    def test_the_base_may_move_into_rope_parameters(self):
        new = changed(
            FLAT, rope_theta=..., rope_scaling=..., rope_parameters={"rope_theta": 10000, "rope_type": "default"}
        )
        rows = diff.compare(FLAT, new)
        assert kinds(rows) == {"rope_theta": Kind.SPELLING, "rope_scaling": Kind.DEFAULT}

    def test_type_and_rope_type_are_the_same_word(self):
        old = {**FLAT, "rope_scaling": {"type": "linear", "factor": 2.0}}
        rows = diff.compare(old, {**FLAT, "rope_scaling": {"rope_type": "linear", "factor": 2.0}})
        assert kinds(rows) == {"rope_scaling": Kind.SPELLING}

    def test_a_member_that_repeats_the_default_changes_no_frequency(self):
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
        rows = diff.compare({**FLAT, "rope_scaling": yarn}, {**FLAT, "rope_scaling": {**yarn, "beta_fast": 32.0}})
        assert kinds(rows) == {"rope_scaling": Kind.SPELLING}
        rows = diff.compare({**FLAT, "rope_scaling": yarn}, {**FLAT, "rope_scaling": {**yarn, "beta_fast": 4.0}})
        assert kinds(rows) == {"rope_scaling": Kind.BREAKING}

    def test_scaling_that_was_lost_breaks_both_engines(self):
        scaled = {**FLAT, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
        found = row(diff.compare(scaled, FLAT), "rope_scaling")
        assert [effect.engine for effect in found.effects] == ["vllm", "sglang"]


class TestAuxLayers:
    IDS = "eagle_aux_hidden_state_layer_ids"
    INNER = f"eagle_config.{IDS}"

    def test_a_flat_list_for_both_engines_equals_the_nested_list(self):
        rows = diff.compare(FLAT, NESTED, TARGET)
        assert row(rows, self.IDS).kind is Kind.SAME
        assert row(rows, self.INNER).kind is Kind.SPELLING
        assert row(rows, self.INNER).left.value == row(rows, self.INNER).right.value == [2, 8, 13]

    def test_the_targets_class_decides_how_sglang_counts(self):
        flat = {**FLAT, "eagle_config": {self.IDS: [2, 8, 13]}}
        deepseek = {**TARGET, "architectures": ["DeepseekV3ForCausalLM"]}
        assert diff.equal_in_effect(diff.compare(flat, NESTED, deepseek))
        found = row(diff.compare(flat, NESTED, TARGET), self.INNER)
        assert (found.kind, found.left.value) == (Kind.BREAKING, [3, 9, 14])
        assert [effect.engine for effect in found.effects] == ["sglang"]

    def test_a_list_that_only_sglang_finds_leaves_vllm_with_the_targets_default(self):
        flat = changed(FLAT, **{self.IDS: ...})
        assert diff.equal_in_effect(diff.compare(flat, NESTED, TARGET))
        other = {**TARGET, "num_hidden_layers": 24}
        found = row(diff.compare(flat, NESTED, other), self.IDS)
        assert (found.kind, found.left.value) == (Kind.BREAKING, [2, 12, 21])

    def test_without_the_target_a_default_is_not_guessed(self):
        rows = diff.compare(FLAT, changed(FLAT, **{self.IDS: ...}))
        assert row(rows, self.IDS).kind is Kind.UNKNOWN
        assert "name the target" in row(rows, self.IDS).words

    def test_names_without_lists_are_equal(self):
        bare = changed(FLAT, eagle_config=..., **{self.IDS: ...})
        assert diff.equal_in_effect(diff.compare(bare, {**bare, self.IDS: None}))


class TestArchitectures:
    @pytest.mark.parametrize(
        ("name", "engines"),
        [("Eagle3LlamaForCausalLM", ["sglang"]), ("LlamaForCausalLM", ["sglang"]),
         ("Eagle3DeepseekV2ForCausalLM", ["vllm", "sglang"])],
    )  # fmt: skip
    def test_names_matter_where_another_class_is_loaded(self, name, engines):
        found = row(diff.compare(FLAT, {**FLAT, "architectures": [name]}), "architectures")
        assert [effect.engine for effect in found.effects] == engines

    def test_two_names_that_no_engine_knows_are_not_called_a_spelling(self):
        names = [{**FLAT, "architectures": [name]} for name in ("OneForCausalLMEagle3", "OtherForCausalLMEagle3")]
        assert kinds(diff.compare(*names)) == {"architectures": Kind.UNKNOWN}

    def test_two_names_of_one_nested_class_are_a_spelling(self):
        rows = diff.compare(NESTED, {**NESTED, "architectures": ["Eagle3Speculator"]})
        assert kinds(rows) == {"architectures": Kind.SPELLING}


class TestConvertedFiles:
    def test_what_a_flat_file_keeps_aside_is_the_nested_files(self):
        nested = {**NESTED, "auto_map": {"": "config.X"}, "embed_requires_grad": False, "fancy": 1}
        aside = {key: nested[key] for key in ("auto_map", "embed_requires_grad", "fancy", "speculators_config",
                                              "speculators_model_type", "speculators_version")}  # fmt: skip
        rows = diff.compare({**FLAT, "eagle3_tui_nested": aside}, nested, TARGET)
        assert diff.equal_in_effect(rows)
        assert kinds(rows)["fancy"] is Kind.SPELLING
        assert row(rows, "auto_map").bookkeeping

    def test_another_verifier_matters_to_nested_files_alone(self):
        config = {**NESTED["speculators_config"], "verifier": {"name_or_path": "org/other"}}
        found = row(
            diff.compare(NESTED, {**NESTED, "speculators_config": config}), "speculators_config.verifier.name_or_path"
        )
        assert (found.kind, [effect.engine for effect in found.effects]) == (Kind.BREAKING, ["vllm"])
        rows = diff.compare({**FLAT, "eagle3_tui_nested": {"speculators_config": config}}, NESTED, TARGET)
        assert row(rows, "speculators_config.verifier.name_or_path").kind is Kind.HARMLESS

    def test_another_model_type_is_harmless_and_none_is_not(self):
        assert kinds(diff.compare(FLAT, {**FLAT, "model_type": "qwen2"})) == {"model_type": Kind.HARMLESS}
        assert kinds(diff.compare(FLAT, changed(FLAT, model_type=...))) == {"model_type": Kind.BREAKING}
        assert not diff.equal_in_effect(diff.compare(NESTED, in_layer(model_type="qwen3")))


class TestSummary:
    def test_paths_are_those_of_the_files(self):
        told = diff.summary(diff.compare(NESTED, in_layer(hidden_size=32, head_dim=...)))
        assert told["effective_differences"] == {
            "transformer_layer_config.hidden_size": [64, 32],
            "transformer_layer_config.head_dim": [16, None],
        }

    def test_versions_are_ignored(self):
        told = diff.summary(diff.compare({**FLAT, "transformers_version": "4"}, {**FLAT, "transformers_version": "5"}))
        assert told["ignored"] == ["transformers_version"]
        assert told["effective_differences"] == {} and told["equal_in_effect"]

    def test_it_is_plain_json(self):
        rows = diff.compare(FLAT, NESTED)
        json.dumps([diff.summary(rows), [one.to_json() for one in rows]], allow_nan=False)


NONSENSE = [None, True, -1, 0, 1e400, "x", "", [], [[]], {}, {"rope_type": []}, {"": {"": None}}, 10**30]


@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_no_value_of_any_key_makes_it_stumble(value):
    keys = [*FLAT, "layer_types", "sliding_window", "rope_parameters", "eagle_config", "transformer_layer_config",
            "speculators_config", "speculators_model_type", "quantization_config"]  # fmt: skip
    for key in keys:
        for base in (FLAT, NESTED):
            rows = diff.compare({**base, key: value}, base, TARGET)
            assert diff.compare({**base, key: value}, {**base, key: value}) is not None
            assert rows


def test_true_is_not_one():
    assert row(diff.compare({**FLAT, "fancy": True}, {**FLAT, "fancy": 1}), "fancy").kind is Kind.UNKNOWN


def test_a_config_nested_without_end_is_refused(tmp_path):
    deep = "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)
    (tmp_path / "config.json").write_text(f'{{"a": {deep}}}')
    config, findings = read_object(LocalFolder(tmp_path), "config.json")
    assert config is None and [one.code for one in findings] == ["json_invalid"]


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="no published configs")
def test_published_configs_compare_with_one_another():
    configs = {path.stem: json.loads(path.read_text()) for path in sorted(PUBLISHED.glob("*.json"))}
    assert configs
    for name, left in configs.items():
        assert {one.kind for one in diff.compare(left, left)} <= {Kind.SAME}, name
        for right in configs.values():
            there, back = diff.compare(left, right), diff.compare(right, left)
            assert {(one.field, one.kind) for one in there} == {(one.field, one.kind) for one in back}


class TestBesideTheReader:
    """What the comparison calls equal is one drafter to the reader, too: both tell keys and defaults alike."""

    @pytest.mark.parametrize("layout", ["flat", "nested"])
    @pytest.mark.parametrize("fields", [{}, {"draft_vocab_size": 96, "fc_norm": True}])
    def test_no_change_of_the_drafter_is_called_equal(
        self, drafters, drafter_faults, harmless_changes, layout, fields
    ) -> None:
        right, target = drafters.checkpoint(replace(drafters.DRAFTER, **fields), layout), drafters.TARGET
        changed = [
            (entry.name, made.config)
            for engine in ("vllm", "sglang")
            for every in (drafter_faults.faults_for, harmless_changes.changes_for)
            for entry, made in every(engine, right, target)
            if made.config != right.config and entry.name != "ids_left_out"  # these are the target's default
        ]
        read = read_config(right.config, target).drafter
        alike = [name for name, config in changed if diff.equal_in_effect(diff.compare(right.config, config, target))]
        unlike = [name for name, config in changed if not _reads_as(read, config, target)]
        assert len(alike) > 15 and len(unlike) > 15
        assert set(alike) & set(unlike) == set()


def _reads_as(drafter, config, target) -> bool:
    try:
        return read_config(config, target).drafter == drafter
    except FindingError:
        return False
