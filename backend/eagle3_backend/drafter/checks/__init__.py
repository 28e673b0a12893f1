"""Preflight of a drafter: what no engine checks, told before a GPU is touched.

Each check is a small function from a `Subject` to findings; none looks further than headers and the two vocabulary
maps. Which release does what is in `capabilities`.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from eagle3_backend.drafter.capabilities import CURRENT, OLDEST, TITLES, Version
from eagle3_backend.drafter.checks import (
    architecture,
    aux_ids,
    embedding_head,
    files,
    flags,
    positions,
    quantisation,
    shapes,
    tensors,
    vocabulary,
)
from eagle3_backend.drafter.checks.subject import Subject
from eagle3_backend.drafter.inventory import Inventory
from eagle3_backend.findings import Finding, FindingError, info

__all__ = ["CHECKS", "Subject", "check", "check_subject", "facts"]


def check_release(subject: Subject) -> Iterator[Finding]:
    """Rules are known for the releases that were read."""
    oldest, newest = Version(OLDEST[subject.engine]), Version(CURRENT[subject.engine])
    if subject.version < oldest or newest < subject.version:
        yield info(
            "engine_version_unread",
            f"{subject.release} was not read; it is judged as the nearest of {TITLES[subject.engine]} {oldest} to "
            f"{newest}.",
            path="engine_version",
            expected=f"{oldest} to {newest}",
            actual=str(subject.version),
        )


CHECKS: Tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    check_release,
    files.check_files,
    files.check_config,
    architecture.check_layout,
    architecture.check_architecture,
    architecture.check_layer_keys,
    architecture.check_nulls,
    architecture.check_verifier,
    architecture.check_layer_names,
    architecture.check_layer_count,
    architecture.check_latent_attention,
    architecture.check_activation,
    architecture.check_experts,
    architecture.check_window,
    shapes.check_heads,
    shapes.check_head_dim,
    shapes.check_shapes,
    shapes.check_fc_columns,
    tensors.check_missing,
    tensors.check_unknown,
    tensors.check_dtypes,
    embedding_head.check_target_width,
    embedding_head.check_embedding,
    embedding_head.check_head,
    embedding_head.check_draft_vocabulary,
    embedding_head.check_tied,
    vocabulary.check_vocab_size,
    vocabulary.check_token_ids,
    vocabulary.check_maps_present,
    vocabulary.check_map_dtypes,
    vocabulary.check_maps,
    aux_ids.check_aux_ids,
    flags.check_norm_flags,
    flags.check_both_norms,
    flags.check_biases,
    flags.check_flag_weights,
    positions.check_rope,
    positions.check_mrope,
    positions.check_table,
    quantisation.check_plain_weights,
    quantisation.check_cache_scales,
)
"""All checks, in the order in which their findings are told."""

MAX_TOLD = 100
"""Most findings of one check."""


def check(
    config: Mapping[str, Any],
    engine: str,
    *,
    version: str = "",
    target: Optional[Mapping[str, Any]] = None,
    inventory: Optional[Inventory] = None,
    context: Optional[int] = None,
    environment: Optional[Mapping[str, str]] = None,
    token_ids: Optional[Tuple[Mapping[str, int], Mapping[str, int]]] = None,
) -> List[Finding]:
    """Everything that is wrong with a drafter on one engine. ``config`` and ``target`` are the config.json of each.

    ``version`` empty is the current release; ``context`` is the longest sequence that will be served, tokens;
    ``token_ids`` are those of the tokenizers beside drafter and target (`tokenizers.token_ids`). A config
    that cannot be read is a finding as well. Raises ValueError for a version that is none.
    """
    try:
        subject = Subject.of(
            config,
            engine,
            version=version,
            target=target,
            inventory=inventory,
            context=context,
            environment=environment,
            token_ids=token_ids,
        )
    except FindingError as problem:
        return [*(inventory.findings if inventory else ()), *problem.findings]
    return check_subject(subject)


def check_subject(subject: Subject) -> List[Finding]:
    """All findings about ``subject``, of one check at most `MAX_TOLD`: 100 000 tensors of something that is no drafter
    are told as quickly as twenty."""
    found: List[Finding] = []
    for one in CHECKS:
        try:
            told = list(islice(one(subject), MAX_TOLD + 1))
        except FindingError as problem:
            told = list(problem.findings)
        found += told[:MAX_TOLD]
        if len(told) > MAX_TOLD:
            message = f"There is more of the kind of {told[0].code} than is told."
            found.append(Finding("findings_left_off", told[-1].severity, message, told[-1].path))
    return found


def facts(subject: Subject) -> Dict[str, Any]:
    """What was read, beside the findings: the layout, the target's sizes and what the maps hold."""
    target = subject.target
    sizes = {
        "hidden_size": target.hidden_size if target else None,
        "num_hidden_layers": target.layers if target else None,
        "num_attention_heads": target.text.get("num_attention_heads") if target else None,
        "num_key_value_heads": target.text.get("num_key_value_heads") if target else None,
        "head_dim": target.head_dim if target else None,
        "vocab_size": target.vocab_size if target else None,
        "max_position_embeddings": target.max_position_embeddings if target else None,
        "architecture": target.architecture if target else None,
    }
    return {
        "detected_format": subject.reading.layout,
        "target": {name: value for name, value in sizes.items() if value is not None},
        **vocabulary.map_facts(subject),
    }
