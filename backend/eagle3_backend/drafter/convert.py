"""Converts a drafter's config between the nested and the flat layout, so that it means the same on every engine.

The source is read into the canonical form and written anew. What an engine cannot express is a finding, never a key
that is gone; keys that this product has no field for travel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from eagle3_backend.drafter.aux_layers import (
    NESTED_IDS,
    SGLANG_COUNTING,
    check_ids,
    check_offset,
    default_layers,
    for_sglang,
)
from eagle3_backend.drafter.capabilities import ENGINES
from eagle3_backend.drafter.checks import Subject, architecture, flags
from eagle3_backend.drafter.config import LLAMA, DrafterConfig, Packaging
from eagle3_backend.drafter.inventory import Inventory
from eagle3_backend.drafter.keys import ARCHITECTURES, EAGLE, LAYER
from eagle3_backend.drafter.layouts import flat_config, nested_config
from eagle3_backend.drafter.reading import FLAT, NESTED, Reading, read_config
from eagle3_backend.drafter.target import Target
from eagle3_backend.findings import Finding, FindingError, Severity, info, warning

DEFAULT_DEPTH = 3
"""Draft tokens that a nested file proposes where nobody says how many (as speculators writes it)."""

ENGINE_CHECKS = (
    architecture.check_layout,
    architecture.check_architecture,
    architecture.check_verifier,
    architecture.check_layer_count,
    flags.check_biases,
    architecture.check_window,
    flags.check_norm_flags,
    flags.check_both_norms,
)
"""Checks of the written file that tell what an engine cannot do with it."""

KEPT = "norm_before_residual_unsupported"
"""A warning here: the key is kept and the file is right for vLLM. A launch on SGLang is refused on its own account."""


@dataclass(frozen=True)
class Conversion:
    """A config in the other layout, what it was read from, and what is to be known about it.

    A finding of severity error means that the config must not be used for an engine that was asked for.
    """

    config: Dict[str, Any]
    source: Reading
    findings: Tuple[Finding, ...]


def convert_config(
    config: Mapping[str, Any],
    to: str,
    target: Optional[Mapping[str, Any]] = None,
    *,
    verifier: Optional[str] = None,
    depth: Optional[int] = None,
    engines: Sequence[str] = ENGINES,
) -> Conversion:
    """Write a drafter's config.json in the layout ``to``; a config of that layout already is written anew.

    ``target`` is the target's config.json: it settles how SGLang counts layers. ``verifier`` and ``depth`` are what a
    nested file says of its target's name and of the draft tokens; they come from the source where it has them.
    Raises FindingError for a config that cannot be read, and for one that the layout has no place for.
    """
    reading = read_config(config, target)
    facts = Target.of(target) if target else None
    findings = [*_of_reading(reading), *_aux_layers(reading, facts)]
    drafter, packaging = reading.drafter, reading.packaging
    if drafter.tie_word_embeddings:
        findings.append(_untied(reading))
        drafter = replace(drafter, tie_word_embeddings=False)
    try:
        if to == NESTED:
            packaging = _for_nested(packaging, facts, verifier, depth, findings)
            written = nested_config(drafter, packaging)
        else:
            packaging = replace(packaging, verifier=verifier or packaging.verifier)
            written = flat_config(drafter, packaging, _engine_ids(drafter, facts, engines, findings))
    except FindingError as problem:
        raise FindingError(*findings, *problem.findings) from problem
    findings += _renamed(config, written, reading, to)
    findings += findings_of(ENGINE_CHECKS, written, to, engines, target)
    return Conversion(written, reading, tuple(findings))


def _of_reading(reading: Reading) -> Iterator[Finding]:
    """Either layout written here has canonical ids, so a guess about the counting would be written down as a fact."""
    for finding in reading.findings:
        doubtful = finding.code == "aux_layers_target_unknown"
        yield replace(finding, severity=Severity.ERROR) if doubtful else finding


def _aux_layers(reading: Reading, target: Optional[Target]) -> List[Finding]:
    """Faults of the ids; one beside the usual ones is an error where the two engines read the file differently."""
    ids, path = reading.drafter.aux_layers, reading.paths["aux_layers"]
    if not ids:
        return []
    layers = target.layers if target else None
    for_one_engine = path.endswith(NESTED_IDS)
    shown = reading.engine_ids if for_one_engine else ids
    faults = check_ids(ids, layers, path, shown)
    if for_one_engine:
        faults.append(_now_for_vllm(ids, path, shown))
    if layers is None or any(finding.severity is Severity.ERROR for finding in faults):
        return faults
    disputed = for_one_engine and reading.engine_ids == default_layers(layers)
    severity = Severity.ERROR if disputed else Severity.WARNING
    return [*faults, *(replace(finding, severity=severity) for finding in check_offset(ids, layers, path, shown))]


def _now_for_vllm(ids: Sequence[int], path: str, shown: Sequence[int]) -> Finding:
    return info(
        "aux_layers_for_vllm",
        f"The ids stood under eagle_config alone, where vLLM's newer runner does not look; {list(ids)} are written at "
        "the top level too.",
        path=path,
        expected=list(ids),
        actual=list(shown),
    )


def _for_nested(
    packaging: Packaging,
    target: Optional[Target],
    verifier: Optional[str],
    depth: Optional[int],
    findings: List[Finding],
) -> Packaging:
    """With the verifier and the depth that a nested file must have."""
    tokens = depth or packaging.speculative_tokens
    if tokens is None:
        tokens = DEFAULT_DEPTH
        findings.append(
            info(
                "speculative_tokens_assumed",
                f"The source does not say how many tokens are drafted; the file proposes {tokens}.",
                path="speculators_config.proposal_methods[0].speculative_tokens",
                actual=tokens,
                fix="Name the depth (--depth).",
            )
        )
    architectures = packaging.verifier_architectures
    if verifier is not None and verifier != packaging.verifier:
        architectures = (target.architecture,) if target and target.architecture else ()
    return replace(
        packaging,
        verifier=verifier or packaging.verifier,
        verifier_architectures=architectures,
        speculative_tokens=tokens,
    )


def _engine_ids(
    drafter: DrafterConfig, target: Optional[Target], engines: Sequence[str], findings: List[Finding]
) -> Tuple[int, ...]:
    """The list for SGLang; none where the drafter names no layers, or where no list means these."""
    if not drafter.aux_layers:
        return ()
    architecture, layers = (target.architecture, target.layers) if target else ("", None)
    try:
        ids = for_sglang(drafter.aux_layers, architecture, layers)
    except FindingError as problem:
        severity = Severity.ERROR if "sglang" in engines else Severity.INFO
        findings += [replace(finding, severity=severity) for finding in problem.findings]
        return ()
    if architecture not in SGLANG_COUNTING and "sglang" in engines:
        findings.append(
            warning(
                "aux_layers_target_unknown",
                f"How SGLang counts layers of {architecture or 'a target that is not given'} is not known; the list "
                "for it is written as for most targets.",
                path=NESTED_IDS,
                actual=list(ids),
                fix="Name the target (--target), or measure acceptance after the launch.",
            )
        )
    return ids


def _untied(reading: Reading) -> Finding:
    return warning(
        "tie_word_embeddings_draft",
        "tie_word_embeddings was true and is written false: SGLang would use the embedding as head and leave the "
        "drafter's own one unused.",
        path=reading.paths["tie_word_embeddings"],
        expected=False,
        actual=True,
        fix="Nothing, if the drafter has a head of its own.",
    )


def _renamed(config: Mapping[str, Any], written: Mapping[str, Any], reading: Reading, to: str) -> Iterator[Finding]:
    """Names that became others, and keys whose meaning went into other keys."""
    draft_class = reading.drafter.draft_class
    before = str((config.get("architectures") or [""])[0])
    name = ARCHITECTURES.get(draft_class, before)
    if reading.layout == FLAT and before != name:
        yield info(
            "architecture_renamed",
            f"The architecture {before or 'that is not named'} is taken for {name}, the name that most engines know.",
            path="architectures[0]",
            expected=name,
            actual=before or None,
        )
    model_type = config.get("model_type")
    if reading.layout == FLAT and draft_class == LLAMA and model_type not in (None, "llama"):
        yield info(
            "model_type_replaced",
            f"The model type {model_type} is written as llama, which is what engines build for this architecture.",
            path="model_type",
            expected="llama",
            actual=model_type,
        )
    names = set(_names(written))
    respelled = [path for path, name in _leaves(config) if name not in names]
    if respelled:
        yield info(
            "keys_respelled",
            f"Others, or a default, say in the {to} file what these keys say: {', '.join(respelled)}.",
            actual=respelled,
        )


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _names(inner)


def _leaves(config: Mapping[str, Any]) -> Iterator[Tuple[str, str]]:
    """Path and name of the keys that a file sets at its top level, in its layer and in either one's eagle_config."""
    for prefix in ("", LAYER + ".", EAGLE + ".", f"{LAYER}.{EAGLE}."):
        level: Any = config
        for part in prefix.split(".")[:-1]:
            level = level.get(part) if isinstance(level, Mapping) else None
        if isinstance(level, Mapping):
            yield from ((prefix + name, name) for name, value in level.items() if value is not None)


def findings_of(
    questions: Iterable[Callable[[Subject], Iterator[Finding]]],
    written: Mapping[str, Any],
    to: str,
    engines: Sequence[str],
    target: Optional[Mapping[str, Any]],
    inventory: Optional[Inventory] = None,
) -> Iterator[Finding]:
    """What the engines have to say of a config that was written, each thing once.

    The nested layout is read by vLLM alone; SGLang is asked about it only where nobody else is.
    """
    told: Set[Tuple[str, str]] = set()
    for engine in [engine for engine in engines if to == FLAT or engine == "vllm"] or engines:
        subject = Subject.of(written, engine, target=target, inventory=inventory)
        for finding in (finding for question in questions for finding in question(subject)):
            if (finding.code, finding.path) not in told:
                told.add((finding.code, finding.path))
                yield replace(finding, severity=Severity.WARNING) if finding.code == KEPT else finding
