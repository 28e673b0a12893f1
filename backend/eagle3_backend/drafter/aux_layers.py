"""Which streams of the target a drafter reads: every way of counting them, as data and as functions.

Canonical ids, as in vLLM and speculators: id i is the stream entering layer i, 0 <= i <= n; id n is the last layer's
output before the final norm. SGLang reads a list of its own and turns it into these ids by a rule that depends on the
target's class and on the release (``set_eagle3_layers_to_capture`` in ``sglang/srt/models``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from eagle3_backend.findings import Finding, FindingError, error, warning

IDS = "eagle_aux_hidden_state_layer_ids"
NESTED_IDS = f"eagle_config.{IDS}"

ALWAYS, FROM_ONE, BELOW_LAST = "always", "from_one", "below_last"
"""SGLang adds one to each id: always; only to a list that starts with 1; only where the largest id is not n."""


@dataclass(frozen=True)
class Counting:
    """How SGLang reads a list of ids for targets of some classes, from release ``since`` on.

    ``default_shift`` is added to the default ids when a config names none. ``last_layer``: id n can be captured.
    """

    shift: str = ALWAYS
    since: Tuple[int, ...] = ()
    default_shift: int = 0
    last_layer: bool = False


_DEEPSEEK = (Counting(FROM_ONE, since=(0, 5, 14)), Counting())
_GEMMA = (Counting(last_layer=True, since=(0, 5, 14)), Counting())

SGLANG_COUNTING: Dict[str, Tuple[Counting, ...]] = {
    **dict.fromkeys(
        (
            "ApertusForCausalLM",
            "BailingMoEForCausalLM",
            "BailingMoeForCausalLM",
            "BailingMoeV2ForCausalLM",
            "Cosmos3ForConditionalGeneration",
            "ExaoneMoEForCausalLM",
            "ExaoneMoeForCausalLM",
            "Glm4MoeForCausalLM",
            "Glm5NextForConditionalGeneration",
            "IQuestCoderForCausalLM",
            "InternLM3ForCausalLM",
            "InternS1ProForConditionalGeneration",
            "InternS2MobiusForConditionalGeneration",
            "InternS2PreviewForConditionalGeneration",
            "Llama4ForCausalLM",
            "Llama4ForConditionalGeneration",
            "LlamaForCausalLM",
            "LongcatFlashForCausalLM",
            "MellumForCausalLM",
            "MiniMaxM2ForCausalLM",
            "Ministral3ForCausalLM",
            "MistralForCausalLM",
            "Phi3ForCausalLM",
            "Qwen2ForCausalLM",
            "Qwen2MoeForCausalLM",
            "Qwen2_5_VLForConditionalGeneration",
            "Qwen3ForCausalLM",
            "Qwen3MoeForCausalLM",
            "Qwen3NextForCausalLM",
            "Qwen3VLForConditionalGeneration",
            "Qwen3VLMoeForConditionalGeneration",
            "Qwen3_5ForCausalLM",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForCausalLM",
            "Qwen3_5MoeForConditionalGeneration",
            "SarvamMoEForCausalLM",
            "TeleFLMForCausalLM",
        ),
        (Counting(),),
    ),
    **dict.fromkeys(
        (
            "DeepseekV2ForCausalLM",
            "DeepseekV3ForCausalLM",
            "DeepseekV32ForCausalLM",
            "Glm4MoeLiteForCausalLM",
            "GlmMoeDsaForCausalLM",
            "KimiK25ForConditionalGeneration",
            "MistralLarge3ForCausalLM",
        ),
        _DEEPSEEK,
    ),
    **dict.fromkeys(
        (
            "Gemma3ForCausalLM",
            "Gemma3ForConditionalGeneration",
            "Gemma4ForCausalLM",
            "Gemma4ForConditionalGeneration",
            "Gemma4UnifiedForConditionalGeneration",
        ),
        _GEMMA,
    ),
    "GptOssForCausalLM": (Counting(BELOW_LAST, since=(0, 5, 23), last_layer=True), Counting()),
    "MiniMaxM3SparseForCausalLM": (Counting(last_layer=True),),
    "MiniMaxM3SparseForConditionalGeneration": (Counting(default_shift=1, last_layer=True),),
}
"""By the target's architecture, newest rule first (sgl-project/sglang#25454, sgl-project/sglang#32334).

A class that has no ``set_eagle3_layers_to_capture`` of its own counts as the class that it derives from.
"""


def counting_of(architecture: str, version: Optional[Tuple[int, ...]] = None) -> Counting:
    """SGLang's rule for a target; an unknown class is taken for one of the many that always add one.

    ``version`` None is the newest release.
    """
    rules = SGLANG_COUNTING.get(architecture, (Counting(),))
    return next(rule for rule in rules if version is None or version >= rule.since)


def default_layers(layers: int) -> Tuple[int, ...]:
    """Canonical ids that both engines take for a target of this many layers when a config names none."""
    return (2, layers // 2, layers - 3)


def from_sglang(
    ids: Sequence[int], architecture: str, layers: Optional[int], version: Optional[Tuple[int, ...]] = None
) -> Tuple[int, ...]:
    """Canonical ids of the streams that SGLang captures for a list under ``eagle_config``."""
    shift = counting_of(architecture, version).shift
    kept = (shift == FROM_ONE and bool(ids) and ids[0] != 1) or (shift == BELOW_LAST and max(ids, default=0) == layers)
    return tuple(ids) if kept else tuple(layer + 1 for layer in ids)


def for_sglang(
    aux_layers: Sequence[int], architecture: str, layers: Optional[int], version: Optional[Tuple[int, ...]] = None
) -> Tuple[int, ...]:
    """The list under ``eagle_config`` that SGLang reads as these canonical ids.

    Raises FindingError `aux_layers_inexpressible` where no list does.
    """
    wanted = tuple(aux_layers)
    last_is_out = bool(wanted) and wanted[-1] == layers and not counting_of(architecture, version).last_layer
    for ids in (tuple(layer - 1 for layer in wanted), wanted):
        if not last_is_out and from_sglang(ids, architecture, layers, version) == wanted:
            return ids
    raise FindingError(
        error(
            "aux_layers_inexpressible",
            f"No list makes SGLang capture the streams {list(wanted)} of {architecture or 'this target'}: "
            + (
                "it cannot capture the last layer's output." if last_is_out else "a list that starts with 1 is shifted."
            ),
            path=NESTED_IDS,
            actual=list(wanted),
            fix="Serve this drafter with vLLM, or train one on other aux layers.",
        )
    )


def check_ids(ids: Sequence[int], layers: Optional[int], path: str = IDS, shown: Sequence[int] = ()) -> List[Finding]:
    """Canonical ids must be ascending (they order the columns of fc), distinct, and streams that the target has.

    ``shown`` is the list as the file at ``path`` spells it, where that is another one.
    """
    actual = list(shown or ids)
    fix = "Write the layers that the drafter was trained on, each once and in rising order."
    if len(set(ids)) != len(ids):
        message = f"Aux layer ids are not distinct: {actual}."
        return [error("aux_layers_duplicate", message, path=path, actual=actual, fix=fix)]
    if list(ids) != sorted(ids):
        message = f"Aux layer ids are not ascending, but engines sort them, which permutes the columns of fc: {actual}."
        return [error("aux_layers_order", message, path=path, expected=sorted(actual), actual=actual, fix=fix)]
    if not ids or ids[0] < 0 or (layers is not None and ids[-1] > layers):
        end = "" if layers is None else f" to {layers}"
        message = f"The target's streams are counted from 0{end}; the aux layer ids are {actual}."
        return [error("aux_layers_out_of_range", message, path=path, actual=actual, fix=fix)]
    return []


def check_offset(ids: Sequence[int], layers: int, path: str = IDS, shown: Sequence[int] = ()) -> List[Finding]:
    """A warning where all ids lie one beside the usual ones: most likely they were copied from another counting."""
    usual = default_layers(layers)
    off = {layer - default for layer, default in zip(ids, usual)}
    if len(ids) != len(usual) or off not in ({-1}, {1}):
        return []
    actual = list(shown or ids)
    move = -off.pop()
    return [
        warning(
            "aux_layers_offset",
            f"Read as this layout and engine read them, the ids mean the streams {list(ids)}, each one beside the "
            f"usual {list(usual)}: they seem to be counted in another way, which costs most of the acceptance.",
            path=path,
            expected=[layer + move for layer in actual],
            actual=actual,
            fix="Find out which layers the drafter was trained on and write those.",
        )
    ]
