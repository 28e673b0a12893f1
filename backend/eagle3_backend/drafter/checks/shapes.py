"""Shapes of the tensors against the sizes of the config: the smallest explanation of what does not fit.

Each shape is a product or a sum of config fields. Where all tensors that a field shapes agree on another value of it,
the field is wrong and is named with that value; a tensor that disagrees with the others is named itself.
"""

from __future__ import annotations

from typing import Iterator, List, Optional, Set, Tuple

from eagle3_backend.drafter.checks.subject import Subject
from eagle3_backend.drafter.checks.tensors import Shape, Sizes, expected_shapes, sizes_of
from eagle3_backend.findings import Finding, error

_FIELDS = {
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "head_dim": "head_dim",
    "vocab_size": "vocab_size",
    "draft_vocab_size": "draft_vocab_size",
    "target_hidden_size": "target_hidden_size",
}
"""Config key to field of the canonical form; the sizes of latent attention stand beside the layer's other sizes."""


def check_shapes(subject: Subject) -> Iterator[Finding]:
    """What does not fit, named by the field that explains all of it, else tensor by tensor."""
    if subject.quantised or subject.drafter_class is None:
        return
    sizes = sizes_of(subject)
    wrong = _misfits(subject, sizes)
    if not wrong:
        return
    fields = _explanations(subject, sizes, wrong)
    if len(fields) == 1 and len(wrong) > 1:
        (key, value), tensors = fields[0], sorted(wrong)
        if not (key == "draft_vocab_size" and key in subject.reading.absent):
            yield _wrong_field(subject, key, value, sizes[key], tensors)
        return
    expected = expected_shapes(subject, sizes)
    for name in sorted(wrong):
        yield _wrong_tensor(subject, name, expected[name], [f"{key} {value}" for key, value in fields])


def check_head_dim(subject: Subject) -> Iterator[Finding]:
    """Without weights, a head size that is left out is that of the target, which hidden_size / heads need not be."""
    target, drafter = subject.target, subject.drafter
    if "head_dim" not in subject.reading.absent or drafter.mla or subject.tensors or target is None:
        return
    same_heads = target.text.get("num_attention_heads") == drafter.heads and target.hidden_size == drafter.hidden_size
    if target.head_dim and same_heads and target.head_dim != drafter.head_dim:
        yield _head_dim_missing(subject, target.head_dim, "its target's heads are")


def check_heads(subject: Subject) -> Iterator[Finding]:
    """Heads have to be shared out evenly, and some readers want them to divide the width even where they need not."""
    drafter = subject.drafter
    if drafter.mla is None and drafter.heads % drafter.kv_heads:
        yield error(
            "heads_indivisible",
            f"{drafter.heads} heads cannot share {drafter.kv_heads} keys evenly, so {subject.release} stops.",
            path=subject.path("kv_heads"),
            expected=f"a divisor of {drafter.heads}",
            actual=drafter.kv_heads,
            fix="Write the numbers of heads that the weights have.",
        )
    llama = not subject.nested and subject.config.get("model_type") == "llama"
    if llama and drafter.hidden_size % drafter.heads and not subject.can("takes_any_head_count"):
        yield error(
            "heads_indivisible",
            f"{drafter.heads} heads do not divide the width {drafter.hidden_size}; with head_dim that would be right, "
            f"but transformers 5, by which {subject.release} reads a flat file of model_type llama, refuses it.",
            path=subject.path("heads"),
            expected=f"a divisor of {drafter.hidden_size}",
            actual=drafter.heads,
            fix="Serve the nested layout with vLLM, or train a drafter with another number of heads.",
        )


def check_fc_columns(subject: Subject) -> Iterator[Finding]:
    """``fc`` reads the aux streams side by side; engines size it by rules of their own."""
    columns, width = subject.fc_columns, subject.drafter.target_hidden_size
    if columns is None or not subject.drafter.aux_input or subject.quantised:
        return
    wanted = subject.aux_count * width
    if columns == wanted or width_is_the_fault(subject):
        return
    streams = f", which is {columns // width} streams" if columns % width == 0 else ""
    yield error(
        "fc_input_mismatch",
        f"fc.weight has {columns} columns{streams}; {subject.release} builds it for {subject.aux_count} streams of "
        f"{width} and stops at these weights.",
        path="fc.weight",
        expected=wanted,
        actual=columns,
        fix=f"Write num_aux_hidden_states: {columns // width} {_beside(subject)}."
        if streams
        else "Check target_hidden_size and num_aux_hidden_states against the target that this drafter was trained for.",
    )


def width_is_the_fault(subject: Subject) -> bool:
    """Whether ``fc`` fits streams as wide as the target, so that only target_hidden_size is missing or wrong."""
    target = subject.target
    if target is None or not target.hidden_size or target.hidden_size == subject.drafter.target_hidden_size:
        return False
    return subject.fc_columns == subject.aux_count * target.hidden_size


def _beside(subject: Subject) -> str:
    return "into transformer_layer_config" if subject.nested else "at the top level of the config"


def _fits(found: Tuple[int, ...], wanted: Shape) -> bool:
    return len(found) == len(wanted) and all(length in (None, other) for other, length in zip(found, wanted))


def _misfits(subject: Subject, sizes: Sizes) -> Set[str]:
    expected = expected_shapes(subject, sizes)
    return {
        name
        for name, tensor in subject.tensors.items()
        if name in expected and not _fits(tuple(tensor.shape), expected[name])
    }


def _explanations(subject: Subject, sizes: Sizes, wrong: Set[str]) -> List[Tuple[str, int]]:
    """Every single field with a value that makes all tensors fit."""
    found = []
    for key in sizes:
        value = _candidate(subject, sizes, key, wrong)
        if value is not None and not _misfits(subject, {**sizes, key: value}):
            found.append((key, value))
    return found


def _candidate(subject: Subject, sizes: Sizes, key: str, wrong: Set[str]) -> Optional[int]:
    """The value of ``key`` that would make the first wrong tensor fit: lengths are linear in each field."""
    at_one, at_two = (expected_shapes(subject, {**sizes, key: value}) for value in (1, 2))
    now = expected_shapes(subject, sizes)
    for name in sorted(wrong):
        found = subject.tensors[name].shape
        if len(found) != len(now[name]):
            return None
        for length, wanted, one, two in zip(found, now[name], at_one[name], at_two[name]):
            if wanted is None or one is None or two is None or length == wanted or one == two:
                continue
            steps, rest = divmod(length - one, two - one)
            return steps + 1 if rest == 0 and steps >= 0 else None
    return None


def _wrong_field(subject: Subject, key: str, value: int, now: int, tensors: List[str]) -> Finding:
    field = _FIELDS.get(key)
    path = subject.path(field) if field else subject.layer_path(key)
    absent = field in subject.reading.absent
    if key == "head_dim" and absent:
        return _head_dim_missing(subject, value, "the weights are for heads of")
    given = f"is left out, which means {now}" if absent else f"is {now}"
    return error(
        "head_dim_mismatch" if key == "head_dim" else "config_size_mismatch",
        f"{path} {given}, but the weights are for {value}: engines stop at {_several(tensors)}, or take a part of it.",
        path=path,
        expected=value,
        actual=None if absent else now,
        fix=f"Write {key}: {value}, if these are the weights that you mean.",
    )


def _head_dim_missing(subject: Subject, value: int, whose: str) -> Finding:
    drafter = subject.drafter
    return error(
        "head_dim_missing",
        f"head_dim is left out, so engines take hidden_size / num_attention_heads = {drafter.hidden_size} / "
        f"{drafter.heads} = {drafter.head_dim}, while {whose} {value}.",
        path=subject.path("head_dim"),
        expected=value,
        fix=f"Write head_dim: {value}.",
    )


def _wrong_tensor(subject: Subject, name: str, wanted: Shape, fields: List[str]) -> Finding:
    found = list(subject.tensors[name].shape)
    guess = f" ({' or '.join(fields)} would fit it)" if fields else ""
    return error(
        "tensor_shape",
        f"{subject.file_names[name]} is {found}, the config asks for {list(wanted)}{guess}: engines stop at it, or "
        "take a part of it.",
        path=subject.file_names[name],
        expected=list(wanted),
        actual=found,
        fix="Take config and weights from the same export.",
    )


def _several(names: List[str]) -> str:
    return f"{names[0]} and {len(names) - 1} more" if len(names) > 1 else names[0]
