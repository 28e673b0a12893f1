"""What is checked: one drafter before one release of one engine, with what is known of its target and its launch."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Dict, Mapping, Optional, Tuple

from eagle3_backend.drafter import capabilities
from eagle3_backend.drafter.capabilities import CURRENT, IDS, DrafterClass, Version
from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.drafter.inventory import Inventory
from eagle3_backend.drafter.keys import LAYER
from eagle3_backend.drafter.reading import NESTED, Reading, read_config
from eagle3_backend.drafter.target import Target
from eagle3_backend.drafter.tensorfile import Tensor

TokenIds = Mapping[str, int]

LAYER_NAME = re.compile(r"(?:midlayer|layers\.(?P<index>\d+))\.(?P<rest>.+)")
_FIRST_LAYER = "layers.0."
_LEGACY_NORMS = {"aux_norm_low": "fc_norm.0", "aux_norm_mid": "fc_norm.1", "aux_norm_high": "fc_norm.2"}
_LIFTED = ("draft_vocab_size", "norm_before_fc", "fc_norm", "norm_output")


@dataclass(frozen=True)
class Subject:
    """A drafter, the engine that is to serve it, and the facts beside it.

    ``inventory`` None: only the config is known. ``context`` is the longest sequence that will be served, tokens;
    ``environment`` holds the variables that the engine will be started with. ``token_ids`` are those of the tokenizers
    beside drafter and target, where both have one.
    """

    config: Mapping[str, Any]
    reading: Reading
    engine: str
    version: Version
    target: Optional[Target] = None
    inventory: Optional[Inventory] = None
    context: Optional[int] = None
    environment: Mapping[str, str] = field(default_factory=dict)
    token_ids: Optional[Tuple[TokenIds, TokenIds]] = None

    @classmethod
    def of(
        cls,
        config: Mapping[str, Any],
        engine: str,
        *,
        version: str = "",
        target: Optional[Mapping[str, Any]] = None,
        inventory: Optional[Inventory] = None,
        context: Optional[int] = None,
        environment: Optional[Mapping[str, str]] = None,
        token_ids: Optional[Tuple[TokenIds, TokenIds]] = None,
    ) -> Subject:
        """From the config.json of drafter and target. ``version`` empty is the current release.

        Raises FindingError for a config that cannot be read, ValueError for a version that is none.
        """
        return cls(
            config,
            read_config(config, target),
            engine,
            Version(version or CURRENT[engine]),
            Target.of(target) if target else None,
            inventory,
            context,
            environment or {},
            token_ids,
        )

    @property
    def drafter(self) -> DrafterConfig:
        return self.reading.drafter

    @property
    def nested(self) -> bool:
        return self.reading.layout == NESTED

    @property
    def release(self) -> str:
        """The engine and its release in words."""
        return f"{capabilities.TITLES[self.engine]} {self.version}"

    def can(self, capability: str) -> bool:
        """Whether the engine does what this row of the capability table says."""
        return capabilities.can(self.engine, self.version, capability)

    def path(self, field_name: str) -> str:
        """The key of the file that holds a field of the canonical form."""
        return self.reading.paths[field_name]

    def layer_path(self, key: str) -> str:
        """The dotted path of a key that stands beside the layer's sizes."""
        return f"{LAYER}.{key}" if self.nested else key

    @cached_property
    def layer(self) -> Mapping[str, Any]:
        """The level of the file that holds the layer's sizes."""
        level = self.config[LAYER] if self.nested else self.config
        assert isinstance(level, Mapping)
        return level

    @cached_property
    def seen(self) -> Mapping[str, Any]:
        """The config as the engine's model class gets it.

        vLLM lifts the layer of a nested file and copies a few keys of the top level into it
        (`transformers_utils/configs/speculators/algos.py`).
        """
        if not self.nested:
            return self.config
        seen: Dict[str, Any] = {**self.layer, **{key: self.config.get(key) for key in _LIFTED}}
        for key in ("target_hidden_size", IDS):
            if self.config.get(key):
                seen[key] = self.config[key]
        return seen

    @cached_property
    def architecture(self) -> str:
        """The architecture name by which the engine chooses its model class; empty where there is none."""
        if self.nested:
            algorithm = str(self.config.get("speculators_model_type", ""))
            model_type = str(self.layer.get("model_type", "llama"))
            return capabilities.NESTED_ARCHITECTURES.get((algorithm, model_type), "")
        names = self.config.get("architectures") or [""]
        return str(names[0])

    @cached_property
    def drafter_class(self) -> Optional[DrafterClass]:
        """What the engine loads this drafter into; None where it knows no class of that name."""
        return capabilities.class_of(self.engine, self.version, self.architecture, self.nested)

    @cached_property
    def aux_count(self) -> int:
        """How many streams the engine sizes ``fc`` for, by the keys that its class asks."""
        for key in self.drafter_class.counted_by if self.drafter_class else ():
            value: Any = self.seen
            for part in key.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
            if value and self.can("any_aux_count"):
                return len(value) if isinstance(value, list) else int(value)
        return 3

    @property
    def fc_columns(self) -> Optional[int]:
        """Columns of ``fc.weight``, None where it is not there or no matrix."""
        tensor = self.tensors.get("fc.weight")
        return tensor.shape[1] if tensor is not None and len(tensor.shape) == 2 else None

    @cached_property
    def tensors(self) -> Dict[str, Tensor]:
        """The tensors by the names of the flat layout; empty where only the config is known."""
        return {name: self._listed[file_name] for name, file_name in self.file_names.items()}

    @cached_property
    def layers_held(self) -> int:
        """How many layers the file holds."""
        matches = (LAYER_NAME.fullmatch(name) for name in self.tensors)
        return len({match["index"] or "0" for match in matches if match})

    @cached_property
    def numbers_first_layer(self) -> bool:
        """Whether the file calls its first layer ``layers.0`` and not ``midlayer``."""
        return any(name.startswith(_FIRST_LAYER) for name in self.file_names.values())

    @property
    def _listed(self) -> Dict[str, Tensor]:
        return self.inventory.tensors if self.inventory else {}

    @cached_property
    def file_names(self) -> Dict[str, str]:
        """The name of the flat layout to the name in the file."""
        return {self._flat_name(name): name for name in self._listed}

    def _flat_name(self, name: str) -> str:
        if self.engine == "sglang":
            if name.startswith("model."):
                name = name[len("model.") :]
            if name.startswith("aux_norm_"):
                module, dot, rest = name.partition(".")
                name = _LEGACY_NORMS.get(module, module) + dot + rest
        return f"midlayer.{name[len(_FIRST_LAYER) :]}" if name.startswith(_FIRST_LAYER) else name

    @property
    def weights_known(self) -> bool:
        """Whether every tensor of the checkpoint is listed, so that one that is not listed is missing."""
        return self.inventory is not None and self.inventory.whole

    @property
    def quantised(self) -> bool:
        """Whether the config says that weights are quantised: their shapes and names are those of the method."""
        return self.drafter.quantization is not None
