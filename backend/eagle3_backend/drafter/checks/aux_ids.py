"""Which streams of the target the engine captures, read by its own rule, against those the drafter was trained on."""

from __future__ import annotations

from typing import Any, Iterator, Optional, Sequence, Tuple

from eagle3_backend.drafter.aux_layers import (
    IDS,
    NESTED_IDS,
    check_ids,
    check_offset,
    counting_of,
    default_layers,
    for_sglang,
    from_sglang,
)
from eagle3_backend.drafter.checks.subject import Subject
from eagle3_backend.findings import Finding, FindingError, error, warning

_COST = "which costs most of the acceptance"


def check_aux_ids(subject: Subject) -> Iterator[Finding]:
    """Present, ascending, distinct, in range, and what they were trained as."""
    if not subject.drafter.aux_input:
        return
    yield from (_vllm if subject.engine == "vllm" else _sglang)(subject)


def _vllm(subject: Subject) -> Iterator[Finding]:
    """The top level as it is, sorted; else ``eagle_config``, which only the V1 model runner looks at."""
    top, inner, layers = _named(subject), subject.reading.engine_ids, _layers(subject)
    if top:
        yield from _judge(top, layers, IDS, top)
        yield from _two_lists(subject, top, inner)
        yield from _miscounted(subject, top)
        return
    usual = default_layers(layers) if layers else ()
    if not inner or subject.nested:
        yield _missing(subject, IDS, usual, usual)
        return
    findings = list(_judge(inner, layers, NESTED_IDS, inner))
    yield from findings
    if not findings and layers and inner != usual:
        yield from _only_for_others(subject, inner, usual)


def _sglang(subject: Subject) -> Iterator[Finding]:
    """Only ``eagle_config``, with one added by a rule of the target's class."""
    yield from _single_stream(subject)
    top, inner, layers = _named(subject), subject.reading.engine_ids, _layers(subject)
    if not inner:
        yield from _sglang_default(subject, top)
        return
    read = from_sglang(inner, _architecture(subject), layers, subject.version.numbers)
    yield from _judge(read, layers, NESTED_IDS, inner)
    if layers and read[-1] == layers and not _counting(subject).last_layer:
        yield error(
            "aux_layers_out_of_range",
            f"The ids {list(inner)} ask for the output of the last layer, which {subject.release} does not capture: "
            "fc then gets too few columns.",
            path=NESTED_IDS,
            actual=list(inner),
            fix="Serve this drafter with vLLM, or train one on earlier layers.",
        )
    yield from _two_lists(subject, top, inner)
    yield from _miscounted(subject, read)


def _miscounted(subject: Subject, ids: Sequence[int]) -> Iterator[Finding]:
    """Engines capture the streams of one list and size ``fc`` by another key; a wrong ``fc`` is told by its shape."""
    count, columns = subject.aux_count, subject.fc_columns
    told = any(finding.code == "aux_count_contradiction" for finding in subject.reading.findings)
    fits = columns is None or columns == count * subject.drafter.target_hidden_size
    if subject.drafter_class is not None and len(set(ids)) != count and fits and not told:
        yield error(
            "aux_count_mismatch",
            f"The config names {len(set(ids))} aux layers, which {subject.release} captures, but it sizes fc for "
            f"{count} and stops when they meet.",
            path=subject.path("unnamed_aux_count"),
            expected=len(set(ids)),
            actual=count,
            fix=f"Write num_aux_hidden_states: {len(set(ids))}.",
        )


def _single_stream(subject: Subject) -> Iterator[Finding]:
    """SGLang applies ``fc`` only where its input is wider than the drafter (`srt/models/llama_eagle3.py`)."""
    drafter = subject.drafter
    if subject.aux_count == 1 and drafter.hidden_size == drafter.target_hidden_size:
        yield error(
            "aux_count_unsupported",
            f"The drafter reads one stream of its own width, for which {subject.release} leaves fc out without a word.",
            path=subject.path("aux_layers"),
            expected=">= 2",
            actual=1,
            fix="Serve this drafter with vLLM.",
        )


def _sglang_default(subject: Subject, top: Tuple[int, ...]) -> Iterator[Finding]:
    """No list that SGLang looks at: it takes the target's default, which may be what the top level says."""
    layers = _layers(subject)
    usual = default_layers(layers) if layers else ()
    captured = tuple(layer + _counting(subject).default_shift for layer in usual)
    if not top:
        yield _missing(subject, NESTED_IDS, captured, _spelled(subject, captured))
        return
    yield from _judge(top, layers, IDS, top)
    if layers and top != captured:
        yield error(
            "aux_layers_missing",
            f"{subject.release} does not look at the ids of the top level and captures {list(captured)} instead of "
            f"{list(top)}, {_COST}.",
            path=NESTED_IDS,
            expected=_spelled(subject, top),
            fix="Write the list that it reads as these layers; converting to the flat layout does.",
        )


def _judge(ids: Sequence[int], layers: Optional[int], path: str, shown: Sequence[int]) -> Iterator[Finding]:
    faults = check_ids(ids, layers, path, shown)
    yield from faults
    if not faults and layers:
        yield from check_offset(ids, layers, path, shown)


def _two_lists(subject: Subject, top: Tuple[int, ...], inner: Tuple[int, ...]) -> Iterator[Finding]:
    """A list for each engine has to lead to the same layers on both."""
    if not top or not inner or subject.target is None:
        return
    read = from_sglang(inner, _architecture(subject), _layers(subject), _sglang_release(subject))
    if read != top:
        yield warning(
            "aux_layers_contradiction",
            f"vLLM reads the streams {list(top)} at the top level, SGLang {list(read)} under eagle_config; the drafter "
            f"was trained on one of them, and the other engine captures others, {_COST}.",
            path=NESTED_IDS,
            expected=_spelled(subject, top),
            actual=list(inner),
            fix="Find out which layers the drafter was trained on and convert it again.",
        )


def _missing(subject: Subject, path: str, captured: Sequence[int], expected: Any) -> Finding:
    default = f" {list(captured)}" if captured else " its default for the target"
    return warning(
        "aux_layers_missing",
        f"The config names no aux layers; {subject.release} captures{default}, which is right only if the drafter was "
        "trained on them.",
        path=path,
        expected=list(expected) if expected else None,
        fix="Write the layers that the drafter was trained on.",
    )


def _only_for_others(subject: Subject, inner: Tuple[int, ...], usual: Tuple[int, ...]) -> Iterator[Finding]:
    """A list under ``eagle_config`` alone, which is usually written for SGLang, whose counting is another."""
    read = from_sglang(inner, _architecture(subject), _layers(subject))
    if not subject.can("eagle_config_ids"):
        vllm = f"vLLM's V2 model runner does not look there and captures {list(usual)}, its V1 runner takes "
    elif read != inner:
        vllm = f"{subject.release} takes "
    else:
        return
    yield warning(
        "aux_layers_missing",
        f"The ids stand under eagle_config alone: {vllm}{list(inner)} as they are; SGLang reads them as the streams "
        f"{list(read)}.",
        path=IDS,
        expected=list(read),
        fix=f"Write {IDS} at the top level in vLLM's counting; converting to the flat layout does.",
    )


def _named(subject: Subject) -> Tuple[int, ...]:
    """The ids of the top level, where they have only one meaning."""
    return subject.drafter.aux_layers if subject.path("aux_layers") != subject.layer_path(NESTED_IDS) else ()


def _spelled(subject: Subject, ids: Sequence[int]) -> Any:
    """The list that SGLang reads as these streams, None where there is none."""
    try:
        return list(for_sglang(ids, _architecture(subject), _layers(subject), _sglang_release(subject)))
    except FindingError:
        return None


def _sglang_release(subject: Subject) -> Optional[Tuple[int, ...]]:
    return subject.version.numbers if subject.engine == "sglang" else None


def _counting(subject: Subject) -> Any:
    return counting_of(_architecture(subject), _sglang_release(subject))


def _architecture(subject: Subject) -> str:
    return subject.target.architecture if subject.target else ""


def _layers(subject: Subject) -> Optional[int]:
    return subject.target.layers if subject.target else None
