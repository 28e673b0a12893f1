"""Generated drafters: a right one is silent on every engine that supports it, and each single fault is told by name."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eagle3_backend.drafter.aux_layers import default_layers, for_sglang
from eagle3_backend.drafter.checks import check
from eagle3_backend.drafter.config import LLAMA, QWEN3, DrafterConfig
from eagle3_backend.drafter.rope import Rope
from eagle3_backend.findings import Finding, FindingError, Severity


def support(name: str) -> Any:
    """A helper module; strategies are made before there are fixtures."""
    path = Path(__file__).parents[1] / "support" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"support_{name}", path)
    assert spec and spec.loader
    module = sys.modules.setdefault(f"support_{name}", importlib.util.module_from_spec(spec))
    if not hasattr(module, "__loader_ran__"):
        spec.loader.exec_module(module)
        module.__loader_ran__ = True
    return module


drafters, faults = support("drafters"), support("drafter_faults")

TARGETS = ("LlamaForCausalLM", "Qwen3ForCausalLM", "DeepseekV3ForCausalLM", "GptOssForCausalLM")
ROPES = (
    Rope(),
    Rope(500000.0),
    Rope(10000.0, "linear", {"factor": 2.0}),
    Rope(
        500000.0,
        "llama3",
        {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    ),
    Rope(10000.0, "yarn", {"factor": 4.0, "original_max_position_embeddings": 64}),
)
SUITABLE = (("flat", "vllm"), ("nested", "vllm"), ("flat", "sglang"))


@st.composite
def pairs(draw: Any) -> tuple[DrafterConfig, dict[str, Any]]:
    """A drafter and the config of a target that it fits."""
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.integers(1, 3))
    layers = draw(st.integers(6, 40))
    # transformers wants the heads of a flat Llama file to divide its width.
    width, vocabulary = 2 * heads * draw(st.integers(2, 6)), draw(st.integers(40, 120))
    rope = draw(st.sampled_from(ROPES))
    drafter = DrafterConfig(
        hidden_size=width,
        target_hidden_size=draw(st.sampled_from((width, width, width + 16))),
        intermediate_size=draw(st.integers(5, 60)),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=4 * draw(st.integers(1, 5)),
        vocab_size=vocabulary,
        draft_vocab_size=draw(st.one_of(st.just(vocabulary), st.integers(12, vocabulary - 1))),
        aux_layers=draw(aux_layers(layers)),
        rms_norm_eps=1e-5,
        max_position_embeddings=256,
        rope=rope,
        draft_class=draw(st.sampled_from((LLAMA, LLAMA, QWEN3))),
        **{flag: draw(st.booleans()) for flag in ("norm_before_residual", "norm_output")},
        **dict.fromkeys(draw(st.sampled_from(((), ("norm_before_fc",), ("fc_norm",)))), True),
    )
    target = {
        **drafters.TARGET,
        "architectures": [draw(st.sampled_from(TARGETS))],
        "hidden_size": drafter.target_hidden_size,
        "num_hidden_layers": layers,
        "vocab_size": vocabulary,
        "max_position_embeddings": 256,
        "rope_theta": rope.theta,
        "rope_scaling": rope.scaling,
    }
    return drafter, target


@st.composite
def aux_layers(draw: Any, layers: int) -> tuple[int, ...]:
    """The usual ids or others, but none that all lie one beside the usual: those look like a mistake."""
    usual = default_layers(layers)
    others = st.lists(st.integers(0, layers - 1), min_size=2, max_size=4, unique=True).map(
        lambda ids: tuple(sorted(ids))
    )
    beside = {tuple(layer + step for layer in usual) for step in (-1, 1)}
    valid = st.just(usual) if len(set(usual)) == len(usual) and list(usual) == sorted(usual) else others
    return draw(st.one_of(valid, others.filter(lambda ids: ids not in beside)))


def suits(drafter: DrafterConfig, target: dict[str, Any], engine: str) -> bool:
    """Whether the engine computes this drafter as it was trained."""
    if engine == "vllm":
        return True
    try:
        for_sglang(drafter.aux_layers, target["architectures"][0], target["num_hidden_layers"])
    except FindingError:
        return False
    return drafter.draft_class == LLAMA and not drafter.norm_before_residual


def written(drafter: DrafterConfig, target: dict[str, Any], layout: str) -> Any:
    """The checkpoint; where SGLang can be told no ids, its list is left out."""
    try:
        return drafters.checkpoint(drafter, layout, target)
    except FindingError:
        checkpoint = drafters.checkpoint(replace(drafter, aux_layers=(2, 3, 4)), layout, target)
        other = drafters.checkpoint(drafter, "nested", target)
        checkpoint.config[faults.IDS] = list(drafter.aux_layers)
        checkpoint.layer["num_aux_hidden_states"] = len(drafter.aux_layers)
        del checkpoint.config["eagle_config"][faults.IDS]
        checkpoint.tensors = {name.replace("layers.0.", "midlayer."): it for name, it in other.tensors.items()}
        return checkpoint


def alarms(checkpoint: Any, engine: str, target: dict[str, Any]) -> list[Finding]:
    findings = check(checkpoint.config, engine, target=target, inventory=checkpoint.inventory())
    return [finding for finding in findings if finding.severity is not Severity.INFO]


def names(finding: Finding, field: str) -> bool:
    return any(field in text for text in (finding.path, finding.message, finding.fix))


@pytest.mark.parametrize(("layout", "engine"), SUITABLE)
@given(pair=pairs())
@settings(max_examples=120, deadline=None)
def test_a_right_drafter_raises_no_alarm(layout: str, engine: str, pair: Any) -> None:
    drafter, target = pair
    if suits(drafter, target, engine):
        assert alarms(written(drafter, target, layout), engine, target) == []


@pytest.mark.parametrize(("layout", "engine"), SUITABLE)
@given(pair=pairs(), data=st.data())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_single_fault_is_told_by_the_name_of_its_field(layout: str, engine: str, pair: Any, data: Any) -> None:
    drafter, target = pair
    if not suits(drafter, target, engine):
        return
    found = faults.faults_for(engine, written(drafter, target, layout), target)
    for fault, spoiled in data.draw(st.lists(st.sampled_from(found), min_size=1, max_size=12, unique_by=id)):
        told = alarms(spoiled, engine, target)
        assert any(names(finding, fault.field) for finding in told), (fault.name, told)


@pytest.mark.parametrize(("layout", "engine"), SUITABLE)
def test_the_catalogue_covers_the_usual_drafter(layout: str, engine: str) -> None:
    """Each fault of the catalogue applies somewhere, and is told there."""
    for fault, spoiled in faults.faults_for(engine, drafters.checkpoint(layout=layout), drafters.TARGET):
        told = alarms(spoiled, engine, drafters.TARGET)
        assert any(names(finding, fault.field) for finding in told), (fault.name, told)
