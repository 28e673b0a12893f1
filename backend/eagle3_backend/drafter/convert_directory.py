"""Converts a drafter with its weights: tensors are renamed and their bytes copied, never cast and never loaded.

The new directory appears under its name when it is whole, or not at all; the source is only read.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Collection, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from eagle3_backend.drafter.capabilities import ENGINES
from eagle3_backend.drafter.checks import embedding_head, files, flags, shapes, tensors, vocabulary
from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.drafter.configfile import CONFIG, open_config
from eagle3_backend.drafter.convert import Conversion, convert_config, findings_of
from eagle3_backend.drafter.folder import LocalFolder
from eagle3_backend.drafter.inventory import Inventory, read_inventory
from eagle3_backend.drafter.layouts import flat_tensor_name, nested_tensor_name
from eagle3_backend.drafter.reading import NESTED
from eagle3_backend.drafter.rewrite import Source, Values, rewrite, taken
from eagle3_backend.drafter.staging import occupied, staged
from eagle3_backend.drafter.tensorfile import Tensor
from eagle3_backend.drafter.weightfiles import KINDS
from eagle3_backend.findings import Finding, FindingError, Severity, error, info, warning

WEIGHTS = "model.safetensors"
EMBEDDING = "embed_tokens.weight"
KEEP, DROP, ADD = "keep", "drop", "add"
"""What happens to the embedding: it stays as it is, is left to the target, or is copied from the target."""

WEIGHT_CHECKS = (
    files.check_files,
    shapes.check_head_dim,
    shapes.check_shapes,
    shapes.check_fc_columns,
    tensors.check_missing,
    tensors.check_unknown,
    tensors.check_dtypes,
    embedding_head.check_embedding,
    embedding_head.check_head,
    vocabulary.check_maps_present,
    vocabulary.check_map_dtypes,
    vocabulary.check_maps,
    flags.check_flag_weights,
)
"""Checks of the tensors that will be written, under the config that will be written."""

_TARGET_EMBEDDINGS = tuple(
    prefix + EMBEDDING for prefix in ("model.", "", "model.language_model.", "language_model.model.", "language_model.")
)
"""Where targets keep their embedding: plain ones, and those that wrap a text model."""


@dataclass
class Plan:
    """What becomes of the tensors of a source, to be handed to `rewrite`."""

    names: Dict[str, str]
    drop: Set[str] = field(default_factory=set)
    add: Dict[str, Source] = field(default_factory=dict)
    findings: List[Finding] = field(default_factory=list)

    def result(self, source: Inventory) -> Inventory:
        """The inventory of the file that will be written."""
        kept = {self.names[name]: tensor for name, tensor in source.tensors.items() if name not in self.drop}
        added = {name: Tensor(value.dtype, value.shape, "", 0, 0) for name, value in self.add.items()}
        made = {name: list(value.data) for name, value in self.add.items() if isinstance(value, Values)}
        return replace(source, tensors={**kept, **added}, held={**source.held, **made})


def convert_directory(
    source: Path,
    destination: Path,
    to: str,
    *,
    target: Optional[Path] = None,
    verifier: Optional[str] = None,
    depth: Optional[int] = None,
    engines: Sequence[str] = ENGINES,
    embedding: str = KEEP,
    accepted: Collection[str] = (),
) -> Conversion:
    """Write the drafter in ``source`` as a new directory ``destination`` in the layout ``to``.

    ``source`` is a drafter's directory, or a config.json alone, of which only the config is written. ``target`` is the
    target's directory or config.json; its weights are needed to add an embedding. `convert_config` says what
    ``verifier``, ``depth`` and ``engines`` are. Raises FindingError with all findings when one of severity error is
    not in ``accepted``; then nothing was written.
    """
    given = open_config(str(source))
    goal = open_config(str(target)) if target else None
    goal_config = goal.config if goal else None
    _check_places(source, destination)
    conversion = convert_config(given.config, to, goal_config, verifier=verifier, depth=depth, engines=engines)
    findings = [*given.findings, *(goal.findings if goal else ()), *conversion.findings]
    plan, inventory = Plan({}), None
    if source.is_dir():
        inventory = read_inventory(LocalFolder(source))
        of_target = read_inventory(LocalFolder(target)) if target and target.is_dir() else None
        plan = plan_weights(inventory, of_target, conversion.source.drafter, to, embedding)
        findings += plan.findings
        findings += findings_of(
            WEIGHT_CHECKS, conversion.config, to, engines, goal_config, inventory=plan.result(inventory)
        )
    if any(finding.severity is Severity.ERROR and finding.code not in accepted for finding in findings):
        raise FindingError(*findings)
    try:
        findings += _write(source, destination, conversion.config, inventory, plan)
    except OSError as problem:
        message = f"The converted drafter cannot be written: {problem.strerror or problem}."
        fix = "Name a directory that can be written, on a disk with room."
        raise FindingError(*findings, error("file_unwritable", message, path=str(destination), fix=fix)) from problem
    return replace(conversion, findings=tuple(findings))


def plan_weights(
    inventory: Inventory, target: Optional[Inventory], drafter: DrafterConfig, to: str, embedding: str = KEEP
) -> Plan:
    """Names of the layout ``to``, maps only where they say something, and the embedding as it is wished."""
    flat = {name: flat_tensor_name(name) for name in inventory.tensors}
    plan = Plan({name: nested_tensor_name(new) if to == NESTED else new for name, new in flat.items()})
    held = {new: name for name, new in flat.items()}
    if "d2t" in held and drafter.draft_vocab_size == drafter.vocab_size:
        _leave_out_idle_maps(plan, inventory, held)
    elif inventory.whole and "d2t" in held and "t2d" not in held and drafter.draft_vocab_size < drafter.vocab_size:
        _rebuild_t2d(plan, inventory.integers(held["d2t"]), drafter.vocab_size)
    if embedding == DROP and EMBEDDING in held:
        _drop_embedding(plan, inventory, held[EMBEDDING], target)
    elif embedding == ADD and EMBEDDING not in held:
        _add_embedding(plan, target, (drafter.vocab_size, drafter.hidden_size))
    return plan


def _leave_out_idle_maps(plan: Plan, inventory: Inventory, held: Mapping[str, str]) -> None:
    """Zeros as the map of a whole vocabulary: not to have them means the same, and vLLM stops at them."""
    d2t = inventory.integers(held["d2t"])
    if d2t is None or any(d2t):
        return
    left_out = [name for name in ("d2t", "t2d") if name in held]
    plan.drop |= {held[name] for name in left_out}
    message = f"The draft vocabulary is the whole one, so no map is needed; left out: {', '.join(left_out)}."
    plan.findings.append(info("idle_maps_left_out", message, path="d2t", actual=left_out))


def _rebuild_t2d(plan: Plan, d2t: Optional[List[int]], vocabulary: int) -> None:
    """The flags of the target's ids that have a draft id; trainers and converters read them, engines do not."""
    kept = {draft + offset for draft, offset in enumerate(d2t or ())}
    if not kept or min(kept) < 0 or max(kept) >= vocabulary:
        return
    plan.add["t2d"] = Values("bool", (vocabulary,), bytes(token in kept for token in range(vocabulary)))
    plan.findings.append(
        info("t2d_rebuilt", "t2d was missing and is made from d2t.", path="t2d", actual=len(kept)),
    )


def _drop_embedding(plan: Plan, inventory: Inventory, name: str, target: Optional[Inventory]) -> None:
    plan.drop.add(name)
    theirs = _embedding_of(target) if target else None
    if target and theirs and _same_bytes(taken(inventory, name), taken(target, theirs)):
        return
    how = "is not the target's" if theirs else "cannot be compared with the target's"
    plan.findings.append(
        warning(
            "embedding_dropped",
            f"The embedding that is left out {how}: if it was trained with the drafter, that is lost.",
            path=EMBEDDING,
            fix="Name the target's directory (--target) to have both compared, or keep the embedding.",
        )
    )


def _add_embedding(plan: Plan, target: Optional[Inventory], wanted: Tuple[int, int]) -> None:
    name = _embedding_of(target) if target else None
    if target is None or name is None:
        plan.findings.append(
            error(
                "target_weights_missing",
                "The embedding is to be copied from the target, whose weights are not there or hold none.",
                path=EMBEDDING,
                fix="Name the target's directory with its weights (--target).",
            )
        )
        return
    tensor = taken(target, name)
    if tensor.shape != wanted:
        message = f"The target's embedding is {list(tensor.shape)}, the drafter needs {list(wanted)}."
        plan.findings.append(
            error("tensor_shape", message, path=EMBEDDING, expected=list(wanted), actual=list(tensor.shape))
        )
    plan.add[EMBEDDING] = tensor


def _embedding_of(target: Inventory) -> Optional[str]:
    return next((name for name in _TARGET_EMBEDDINGS if name in target.tensors), None)


def _same_bytes(left: Any, right: Any, chunk: int = 1 << 22) -> bool:
    """Whether two tensors of files are equal bit for bit."""
    if (left.dtype, left.shape) != (right.dtype, right.shape):
        return False
    with left.folder.open(left.tensor.file) as one, right.folder.open(right.tensor.file) as other:
        one.seek(left.tensor.start)
        other.seek(right.tensor.start)
        remaining = left.tensor.end - left.tensor.start
        while remaining > 0:
            piece = one.read(min(chunk, remaining))
            if not piece or piece != other.read(len(piece)):
                return False
            remaining -= len(piece)
    return True


def _check_places(source: Path, destination: Path) -> None:
    """The destination must be new, and must not lie within what is converted."""
    place, origin = destination.expanduser().resolve(), source.expanduser().resolve()
    if os.path.lexists(destination):
        raise FindingError(occupied(destination))
    if origin in place.parents:
        message = "The converted drafter would lie within its source, which a conversion does not change."
        fix = "Name a directory outside of it."
        raise FindingError(error("destination_in_source", message, path=str(destination), actual=str(origin), fix=fix))


def _write(
    source: Path, destination: Path, config: Mapping[str, Any], inventory: Optional[Inventory], plan: Plan
) -> List[Finding]:
    findings: List[Finding] = []
    with staged(destination) as stage:
        if inventory is not None:
            rewrite(inventory, stage / WEIGHTS, plan.names, plan.drop, plan.add)
            findings = _copy_others(LocalFolder(source), stage, inventory)
        _write_config(stage / CONFIG, config)
    return findings


def _write_config(path: Path, config: Mapping[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2, sort_keys=True, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())


def _open_other(source: LocalFolder, name: str) -> Optional[BinaryIO]:
    """A file to copy; None for other weights, and for what lies elsewhere or is not given out."""
    if any(kind.of([name]) for kind in KINDS):
        return None
    try:
        return source.open(name)
    except (FindingError, OSError):
        return None


def _copy_others(source: LocalFolder, stage: Path, inventory: Inventory) -> List[Finding]:
    """Files beside config and weights, as they are; what is no file of this directory is told."""
    left_out = []
    for name in source.names():
        if name == CONFIG or name in inventory.files or any(name == kind.index for kind in KINDS):
            continue
        read = _open_other(source, name)
        if read is None:
            left_out.append(name)
            continue
        with read, open(stage / name, "wb") as written:
            shutil.copyfileobj(read, written)
    if not left_out:
        return []
    message = f"Not copied, as they are other weights or no files of this directory: {', '.join(left_out)}."
    return [info("files_left_out", message, actual=left_out)]
