"""A server that is there to give hidden states out: which layers, and whether nothing is missing in the files."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, Optional

from eagle3_backend.drafter.aux_layers import IDS, check_ids
from eagle3_backend.engines.preflight.launch import SPECULATIVE, Launch
from eagle3_backend.findings import Finding, error, warning

PATH = f"{SPECULATIVE}.draft_model_config.hf_config.{IDS}"
_TRANSFER = "--kv-transfer-config"


def check_capture(launch: Launch) -> Iterator[Finding]:
    """Ids count the streams that enter a layer; id N, the number of layers, is the last one before the final norm."""
    config = launch.speculative
    if config is None or not launch.capture:
        return
    ids = _ids(config)
    layers = launch.text.layers if launch.text else None
    if not ids:
        yield error("aux_layers_missing", "The capture names no layers.", path=PATH, fix="Name the aux layers and N.")
        return
    if launch.last_is_teacher and layers and ids[-1] != layers and ids[-1] == max(ids):
        yield _not_the_last(ids, layers)
    yield from check_ids(ids, layers, PATH)
    if config.get("num_speculative_tokens") != 1:
        yield error(
            "option_value_invalid",
            "A capture takes exactly one speculative token.",
            path=f"{SPECULATIVE}.num_speculative_tokens",
            expected=1,
            actual=config.get("num_speculative_tokens"),
        )
    yield from _check_files(launch)


def _not_the_last(ids: List[int], layers: int) -> Finding:
    return error(
        "last_hidden_layer_offset",
        f"The last id, {ids[-1]}, names the stream entering layer {ids[-1]}. The state before the final norm, from "
        f"which the target makes its tokens, is id {layers}, the number of layers.",
        path=f"{PATH}[{len(ids) - 1}]",
        expected=layers,
        actual=ids[-1],
        fix=f"Write {layers}.",
    )


def _check_files(launch: Launch) -> Iterator[Finding]:
    transfer = launch.options.get(_TRANSFER)
    extra = (transfer.get("kv_connector_extra_config") or {}) if isinstance(transfer, Mapping) else None
    if extra is None:
        yield error("capture_connector_missing", "Nothing writes the states down.", path=_TRANSFER)
    elif not extra.get("shared_storage_path"):
        yield warning(
            "capture_directory_missing",
            "The states would go to the system's temporary directory, which is seldom large enough.",
            path=f"{_TRANSFER}.kv_connector_extra_config.shared_storage_path",
            fix="Name a directory with room.",
        )
    if not launch.option("--no-enable-prefix-caching"):
        yield warning(
            "capture_prefix_cache",
            "Tokens that are found in the prefix cache are missing in the files.",
            path="--no-enable-prefix-caching",
            fix="Add --no-enable-prefix-caching.",
        )


def _ids(config: Mapping[str, Any]) -> List[int]:
    value: Optional[Any] = config
    for key in ("draft_model_config", "hf_config", IDS):
        value = value.get(key) if isinstance(value, Mapping) else None
    return [int(layer) for layer in value] if isinstance(value, list) else []
