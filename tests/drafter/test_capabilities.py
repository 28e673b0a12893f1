from __future__ import annotations

from pathlib import Path

import pytest

from eagle3_backend.drafter import capabilities
from eagle3_backend.drafter.capabilities import CURRENT, ENGINES, Version, can, class_of
from eagle3_backend.drafter.capability_table import table


def test_versions_are_ordered_by_their_numbers() -> None:
    assert Version("0.5.9") < Version("0.5.10") < Version("0.5.10.1")
    assert Version("0.32") == Version("0.32.0+cpu") == Version("v0.32.0rc1")
    assert str(Version("0.32.0+cpu")) == "0.32.0"


@pytest.mark.parametrize("text", ["", "newest", "+cpu"])
def test_a_version_begins_with_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="is not a version"):
        Version(text)


@pytest.mark.parametrize(
    ("name", "without", "since"),
    [("raises_position_table", ("vllm", "0.26.0"), "0.27.1"), ("layer_0_names", ("sglang", "0.5.10"), "0.5.14")],
)
def test_a_capability_begins_with_a_release(name: str, without: tuple, since: str) -> None:
    engine, before = without
    assert [can(engine, Version(version), name) for version in (before, since)] == [False, True]


def test_a_capability_may_end_with_a_release() -> None:
    assert can("vllm", Version("0.28.0"), "eagle_config_ids")
    assert not can("vllm", Version("0.29.0"), "eagle_config_ids")


@pytest.mark.parametrize(
    ("engine", "version", "name", "title"),
    [
        ("vllm", "0.32.0", "LlamaForCausalLMEagle3", "Llama"),
        ("vllm", "0.32.0", "LlamaForCausalLM", "Llama"),
        ("vllm", "0.32.0", "Qwen3ForCausalLM", "Qwen3"),
        ("vllm", "0.32.0", "PeagleLlamaForCausalLM", None),
        ("sglang", "0.5.23", "LlamaForCausalLMEagle3", "Llama"),
        ("sglang", "0.5.23", "LlamaForCausalLM", None),
        ("sglang", "0.5.23", "Eagle3LlamaForCausalLM", None),
        ("sglang", "0.5.23", "Eagle3DeepseekV2ForCausalLM", "DeepSeek (MLA)"),
        ("sglang", "0.5.10", "Eagle3DeepseekV2ForCausalLM", None),
    ],
)
def test_an_architecture_leads_to_a_class(engine: str, version: str, name: str, title: str | None) -> None:
    found = class_of(engine, Version(version), name)
    assert (found and found.title) == title


def test_a_name_that_stands_for_a_nested_file_is_taken_as_it_is() -> None:
    for name in capabilities.NESTED_ARCHITECTURES.values():
        assert class_of("vllm", Version("0.32.0"), name, nested=True) is not None


def test_every_row_of_the_table_answers_for_every_engine() -> None:
    rows = table()
    assert len({row.title for row in rows}) == len(rows)
    assert all(set(row.cells) == set(ENGINES) and all(row.cells.values()) for row in rows)


def test_every_support_names_releases_that_exist_in_order() -> None:
    for capability in capabilities.CAPABILITIES:
        for engine in ENGINES:
            support = capability.of(engine)
            if support is not None and support.since:
                assert Version(capabilities.OLDEST[engine]) < Version(support.since) <= Version(CURRENT[engine])


def test_every_change_between_releases_is_asked_for_by_a_check() -> None:
    """A row that says since or until, and that no check asks for, would be known and not told."""
    room = Path(capabilities.__file__).parent
    asked = "".join(path.read_text(encoding="utf-8") for path in room.glob("checks/*.py"))
    changing = [
        row.name
        for row in capabilities.CAPABILITIES
        if any(support and (support.since or support.until) for support in (row.vllm, row.sglang))
    ]
    assert [name for name in changing if f'"{name}"' not in asked] == []
