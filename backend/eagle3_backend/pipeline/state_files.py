"""Files of hidden states as libraries write them, one for each row, judged with the standard library alone.

A file holds ``token_ids`` [n] and ``hidden_states`` [n, layers, hidden]; in float8 also ``hidden_states_scales``, which
only a reader that knows of them applies. Nothing says which row, target or layers a file is from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from eagle3_backend.drafter.tensorfile import Tensor, TensorFile, read_header, read_integers
from eagle3_backend.findings import Finding, FindingError, error
from eagle3_backend.pipeline.judgement import Judgement

FLOATS = ("bfloat16", "float16", "float32")
"""Dtypes whose values are the states themselves."""
PATTERN = "hs_{i}.safetensors"
BLOCK = 1 << 24
"""Bytes that are looked at at a time, about."""


class _Format(NamedTuple):
    """Of a little-endian float: its bytes, which values of the last byte an infinite or NaN one has, what of the byte
    before has to be set with it, and the mantissa's bits in these two."""

    size: int
    high: bytes
    low: int
    mantissa: Tuple[int, int]


_FORMATS = {
    "float16": _Format(2, rb"[\x7c-\x7f\xfc-\xff]", 0x00, (0x03, 0xFF)),
    "bfloat16": _Format(2, rb"[\x7f\xff]", 0x80, (0x00, 0x7F)),
    "float32": _Format(4, rb"[\x7f\xff]", 0x80, (0x00, 0x7F)),
}


@dataclass(frozen=True)
class StateFile:
    """A file whose header is sound: its tokens, and where its states lie."""

    header: TensorFile
    token_ids: List[int]
    states: Tensor


def read_state_file(path: Path, scales: bool = False) -> StateFile:
    """Read tokens and the header. ``scales`` says that the reader applies those of float8 files.

    Raises FindingError for a file that is damaged, of another layout, of codes that the reader would take for values,
    or with rows for other than its tokens; OSError.
    """
    header = read_header(path)
    missing = [name for name in ("token_ids", "hidden_states") if name not in header.tensors]
    if missing:
        message = f"{path.name} has no tensor {missing[0]} in the layout of hidden states."
        raise FindingError(error("tensor_missing", message, path=str(path), actual=missing))
    ids, states = read_integers(header, "token_ids"), header.tensors["hidden_states"]
    if states.dtype not in FLOATS and not (scales and "hidden_states_scales" in header.tensors):
        raise FindingError(_codes(path, states.dtype, scales))
    if len(states.shape) != 3 or states.shape[0] != len(ids):
        raise FindingError(_rows(path, len(ids), states.shape))
    return StateFile(header, ids, states)


def _codes(path: Path, dtype: str, scales: bool) -> Finding:
    why = "has no scales for them" if scales else "is read without its scales"
    return error(
        "shard_dtype_mismatch",
        f"{path.name} holds {dtype} codes and {why}: training would take the codes for states.",
        path=str(path),
        expected=list(FLOATS),
        actual=dtype,
        fix="Name the reader that applies the scales, or write the states out as bfloat16 with the tool that made "
        "them.",
    )


def _rows(path: Path, tokens: int, shape: Sequence[int]) -> Finding:
    rows = shape[0] if shape else 0
    return error(
        "shard_seq_len_mismatch",
        f"{path.name} has {tokens} token ids and states for {rows} (shape {list(shape)}): those of the others were "
        "never written.",
        path=str(path),
        expected=tokens,
        actual=rows,
        fix="Make this file again; a server that prefills in chunks must save every chunk.",
    )


def nonfinite(file: StateFile) -> Tuple[int, int, List[int]]:
    """How many states are NaN, how many infinite, and the layer slots they lie in. Raises OSError."""
    form = _FORMATS.get(file.states.dtype)
    counts, slots = [0, 0], set()
    if form is None:
        return 0, 0, []
    _, layers, hidden = file.states.shape
    for place, is_nan in _places(file, form):
        counts[0 if is_nan else 1] += 1
        slots.add(place // hidden % layers)
    return counts[0], counts[1], sorted(slots)


def _places(file: StateFile, form: _Format) -> Iterator[Tuple[int, bool]]:
    """The numbers of the values that are not finite, and whether each is NaN."""
    pattern, step = re.compile(form.high, re.DOTALL), form.size
    with open(file.header.path, "rb") as handle:
        handle.seek(file.states.start)
        for start in range(file.states.start, file.states.end, BLOCK):
            data = handle.read(min(BLOCK, file.states.end - start))
            first = (start - file.states.start) // step
            high, low = data[step - 1 :: step], data[step - 2 :: step]
            for match in pattern.finditer(high):
                here = match.start()
                if low[here] & form.low == form.low:
                    set_bits = (high[here] & form.mantissa[0]) | (low[here] & form.mantissa[1])
                    rest = data[here * step : here * step + step - 2]
                    yield first + here, bool(set_bits or any(rest))


def judge_state_files(directory: Path, plan: Mapping[str, Any]) -> Judgement:
    """A directory of such files against the plan that made it.

    ``plan`` has ``expected_samples`` and may have ``layer_ids`` or ``layers``, ``num_layers_target``, ``hidden_size``,
    ``name_pattern`` (with {i}) and ``hidden_states_backend`` (``fp8`` applies scales). Values: ``complete`` and
    ``to_redo`` (numbers of rows), ``nan``, ``inf``, ``layer_slots`` where those lie. Raises OSError.
    """
    findings: List[Finding] = []
    missing: List[int] = []
    complete: List[int] = []
    totals: Dict[str, Any] = {"nan": 0, "inf": 0}
    slots: set = set()
    count = int(plan["expected_samples"])
    layers = len(plan["layer_ids"]) if "layer_ids" in plan else plan.get("layers")
    for number in range(count):
        path = directory / str(plan.get("name_pattern", PATTERN)).replace("{i}", str(number))
        if not path.exists():
            missing.append(number)
            continue
        try:
            file = read_state_file(path, plan.get("hidden_states_backend") == "fp8")
            faults = shape_faults(file, layers, plan.get("hidden_size"))
        except FindingError as problem:
            findings += problem.findings
            continue
        nan, infinite, found = nonfinite(file)
        if nan or infinite:
            faults.append(_not_finite(path, nan, infinite, found))
        totals["nan"] += nan
        totals["inf"] += infinite
        slots.update(found)
        findings += faults
        if not faults:
            complete.append(number)
    if missing:
        message = f"{len(missing)} of {count} files are not there: rows {', '.join(map(str, missing[:50]))}."
        fix = "Make these rows; finished files are kept."
        findings.append(error("shard_missing", message, path=str(directory), expected=count, actual=missing, fix=fix))
    redo = [number for number in range(count) if number not in set(complete)]
    values = {"complete": complete, "to_redo": redo, **totals, "layer_slots": sorted(slots)}
    return Judgement((*_plan_findings(plan), *findings), values)


def planned(directory: Path) -> Dict[str, Any]:
    """A plan for a directory that came without one: every number up to the highest, all shaped like the first that can
    be read. Raises OSError."""
    numbers = sorted(int(path.stem[3:]) for path in directory.glob("hs_*.safetensors") if path.stem[3:].isdigit())
    for number in numbers:
        try:
            states = read_state_file(directory / PATTERN.replace("{i}", str(number)), scales=True).states
        except FindingError:
            continue
        return {"expected_samples": numbers[-1] + 1, "layers": states.shape[1], "hidden_size": states.shape[2]}
    return {"expected_samples": max(numbers, default=-1) + 1}


def shape_faults(file: StateFile, layers: Optional[int], hidden: Optional[int]) -> List[Finding]:
    """A file's layers and width against those planned, where they are known."""
    path, found = file.header.path, file.states.shape[1:]
    wanted = (found[0] if layers is None else layers, found[1] if hidden is None else hidden)
    if wanted == found:
        return []
    return [
        error(
            "shard_shape_mismatch",
            f"{path.name} holds {found[0]} layers of width {found[1]}; {wanted[0]} of {wanted[1]} are planned.",
            path=str(path),
            expected=list(wanted),
            actual=list(found),
            fix="Make the states again for this plan, or plan what was captured.",
        )
    ]


def _plan_findings(plan: Mapping[str, Any]) -> Iterator[Finding]:
    """The last id must be the state before the final norm: another one trains without complaint."""
    ids, layers = plan.get("layer_ids"), plan.get("num_layers_target")
    if ids and layers and ids[-1] != layers:
        yield error(
            "last_hidden_layer_offset",
            f"The last captured state is the one entering layer {ids[-1]}; the teacher needs the one before the final "
            f"norm, id {layers}.",
            path=f"layer_ids[{len(ids) - 1}]",
            expected=layers,
            actual=ids[-1],
            fix=f"Capture the ids {[*ids[:-1], layers]}.",
        )


def _not_finite(path: Path, nan: int, infinite: int, slots: Sequence[int]) -> Finding:
    return error(
        "shard_nonfinite",
        f"{path.name} holds {nan} NaN and {infinite} infinite values, in layer slots {list(slots)}.",
        path=str(path),
        actual={"nan": nan, "inf": infinite},
        fix="Make this file again; one such row ends a training.",
    )
