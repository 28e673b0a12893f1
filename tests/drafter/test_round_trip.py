"""Generated drafters: what is written is read back, and a conversion there and back changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from eagle3_backend.drafter.aux_layers import IDS, SGLANG_COUNTING, for_sglang
from eagle3_backend.drafter.config import DEEPSEEK, LLAMA, QWEN3, DrafterConfig, MlaShape, Packaging
from eagle3_backend.drafter.convert import convert_config
from eagle3_backend.drafter.diff import compare, equal_in_effect
from eagle3_backend.drafter.layouts import flat_config, nested_config
from eagle3_backend.drafter.reading import FLAT, NESTED, read_config
from eagle3_backend.drafter.rope import Rope
from eagle3_backend.findings import FindingError, Severity

LAYERS = 40
sizes = st.integers(1, 1 << 20)
factors = st.floats(0.125, 1024.0)
token_ids = st.none() | st.integers(0, 1 << 20) | st.lists(st.integers(0, 1 << 20), min_size=1, max_size=3)
names = st.text(min_size=1, max_size=20)
values = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.lists(st.integers(), max_size=3)
unheard_of = st.dictionaries(st.from_regex(r"x_[a-d]{1,2}", fullmatch=True), values, max_size=3)

YARN = {"factor": factors, "original_max_position_embeddings": sizes}
LLAMA3 = {**YARN, "low_freq_factor": factors, "high_freq_factor": factors}
ropes = st.builds(
    lambda theta, scaling: Rope(theta, *scaling),
    st.floats(1.0, 1e8),
    st.one_of(
        st.just(("default", {})),
        st.tuples(st.just("default"), st.fixed_dictionaries({"partial_rotary_factor": factors})),
        st.tuples(st.just("linear"), st.fixed_dictionaries({"factor": factors})),
        st.tuples(st.just("llama3"), st.fixed_dictionaries(LLAMA3)),
        st.tuples(st.just("yarn"), st.fixed_dictionaries(YARN, optional={"mscale": factors, "beta_fast": factors})),
        st.tuples(
            st.just("default"), st.fixed_dictionaries({"mrope_section": st.lists(sizes, min_size=3, max_size=3)})
        ),
    ),
)


@st.composite
def drafters(draw: st.DrawFn, latent: bool = False) -> DrafterConfig:
    """Any drafter that the canonical form can hold and a layout has a place for."""
    count = draw(st.integers(1, 6))
    aux_layers = draw(st.sets(st.integers(0, LAYERS - 1), min_size=count, max_size=count) | st.just(set()))
    layers = draw(st.integers(1, 3))
    window = draw(st.none() | sizes)
    windowed = [draw(st.booleans()) for _ in range(layers)]
    mla = MlaShape(draw(st.none() | sizes), *(draw(sizes) for _ in range(4))) if latent else None
    vocabulary = draw(sizes)
    target_head = draw(st.booleans())
    return DrafterConfig(
        hidden_size=draw(sizes),
        target_hidden_size=draw(sizes),
        intermediate_size=draw(sizes),
        heads=draw(sizes),
        kv_heads=draw(sizes),
        head_dim=mla.head_dim if mla else draw(sizes),
        vocab_size=vocabulary,
        draft_vocab_size=vocabulary if target_head else draw(sizes),
        aux_layers=tuple(sorted(aux_layers)),
        rms_norm_eps=draw(st.floats(1e-12, 1e-2)),
        max_position_embeddings=draw(sizes),
        rope=draw(ropes),
        draft_class=DEEPSEEK if latent else draw(st.sampled_from([LLAMA, QWEN3])),
        layers=layers,
        mla=mla,
        unnamed_aux_count=3 if aux_layers else draw(st.integers(1, 6)),
        aux_input=draw(st.booleans()),
        norm_before_residual=draw(st.booleans()),
        norm_before_fc=draw(st.booleans()),
        fc_norm=draw(st.booleans()),
        norm_output=draw(st.booleans()),
        windows=tuple(window if one else None for one in windowed) if window and any(windowed) else (),
        attention_bias=draw(st.booleans()),
        mlp_bias=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
        target_head=target_head,
        hidden_act=draw(st.sampled_from(["silu", "gelu"])),
        quantization=draw(st.none() | st.fixed_dictionaries({"quant_method": st.just("fp8")})),
        bos_token_id=draw(token_ids),
        eos_token_id=draw(token_ids),
        pad_token_id=draw(token_ids),
    )


@st.composite
def packagings(draw: st.DrawFn) -> Packaging:
    """Everything else that a file may say, unheard-of keys at every level included."""
    nested = draw(unheard_of)
    if draw(st.booleans()):
        nested["speculators_version"] = draw(names)
    if draw(st.booleans()):
        nested["speculators_config"] = {"x_of_speculators": 1, "verifier": {"x_of_verifier": 2}}
    return Packaging(
        dtype=draw(st.none() | st.sampled_from(["bfloat16", "float16"])),
        verifier=draw(names),
        verifier_architectures=tuple(draw(st.lists(names, max_size=2))),
        speculative_tokens=draw(st.integers(1, 16)),
        rope_parameters=draw(st.booleans()),
        layer_keys=draw(unheard_of),
        eagle_keys=draw(unheard_of),
        nested_keys=nested,
    )


targets = st.builds(
    lambda architecture: {"architectures": [architecture], "num_hidden_layers": LAYERS},
    st.sampled_from([*SGLANG_COUNTING, "NeverHeardOfForCausalLM"]),
)


def engine_ids(drafter: DrafterConfig, target: dict) -> tuple:
    """The list for SGLang, or none where it cannot be told these layers."""
    try:
        return for_sglang(drafter.aux_layers, target["architectures"][0], LAYERS) if drafter.aux_layers else ()
    except FindingError:
        return ()


def read(config: dict, target: dict) -> tuple[DrafterConfig, Packaging]:
    """Through JSON text, and without a fault: a drafter may lack its ids, and nothing else is to be told."""
    reading = read_config(json.loads(json.dumps(config)), target)
    assert {finding.code for finding in reading.findings} <= {"aux_layers_missing"}
    return reading.drafter, reading.packaging


@given(drafters() | drafters(latent=True), packagings(), targets)
@settings(deadline=None)
def test_a_flat_file_is_read_as_it_was_meant(drafter: DrafterConfig, packaging: Packaging, target: dict) -> None:
    assert read(flat_config(drafter, packaging, engine_ids(drafter, target)), target) == (drafter, packaging)


@given(drafters(), packagings(), targets)
@settings(deadline=None)
def test_a_nested_file_is_read_as_it_was_meant(drafter: DrafterConfig, packaging: Packaging, target: dict) -> None:
    assert read(nested_config(drafter, packaging), target) == (drafter, packaging)


@given(drafters(), packagings(), targets, st.booleans())
@settings(max_examples=50, deadline=None)
def test_a_conversion_there_and_back_changes_nothing_but_a_tie(
    drafter: DrafterConfig, packaging: Packaging, target: dict, from_flat: bool
) -> None:
    if from_flat:
        source = flat_config(drafter, packaging, engine_ids(drafter, target))
    else:
        source = nested_config(drafter, packaging)
    ways = (NESTED, FLAT) if from_flat else (FLAT, NESTED)
    there = convert_config(source, ways[0], target)
    back = convert_config(there.config, ways[1], target)
    untied = replace(drafter, tie_word_embeddings=False)
    assert read(there.config, target) == read(back.config, target) == (untied, packaging)
    # The comparison reads files in its own way, and agrees; a tie is what only SGLang looks at.
    for written in (there.config, back.config):
        assert equal_in_effect(compare(source, written, target)) is not drafter.tie_word_embeddings


@given(drafters(), packagings(), targets)
@settings(max_examples=50, deadline=None)
def test_layers_that_sglang_is_told_are_those_that_vllm_reads(
    drafter: DrafterConfig, packaging: Packaging, target: dict
) -> None:
    conversion = convert_config(nested_config(drafter, packaging), FLAT, target)
    for_one_engine = {key: value for key, value in conversion.config.items() if key != IDS}
    refused = any(finding.code == "aux_layers_inexpressible" for finding in conversion.findings)
    assert refused <= any(finding.severity is Severity.ERROR for finding in conversion.findings)
    assert read_config(for_one_engine, target).drafter.aux_layers == (() if refused else drafter.aux_layers)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def places(value: dict, path: tuple = ()) -> list[tuple]:
    """The way to every value of a config."""
    found = []
    for key, inner in value.items():
        found += [(*path, key), *(places(inner, (*path, key)) if isinstance(inner, dict) else ())]
    return found


@given(drafters() | drafters(latent=True), packagings(), targets, st.booleans(), st.data())
@settings(deadline=None)
def test_whatever_a_key_holds_is_read_or_is_a_finding_that_names_it(
    drafter: DrafterConfig, packaging: Packaging, target: dict, nested: bool, data: st.DataObject
) -> None:
    if nested and drafter.mla is None:
        config = nested_config(drafter, packaging)
    else:
        config = flat_config(drafter, packaging, engine_ids(drafter, target))
    config = json.loads(json.dumps(config))
    way = data.draw(st.sampled_from(places(config)))
    level = config
    for key in way[:-1]:
        level = level[key]
    level[way[-1]] = data.draw(anything)
    try:
        read_config(config, target)
    except FindingError as problem:
        (finding,) = problem.findings
        assert finding.code == "drafter_config_invalid"
        assert finding.path.split("[")[0].startswith(".".join(way)) or way[0] == "architectures"


@given(drafters() | drafters(latent=True))
@settings(deadline=None)
def test_json_and_back_is_the_same_drafter(drafter: DrafterConfig) -> None:
    assert DrafterConfig.from_json(json.loads(json.dumps(drafter.to_json()))) == drafter
