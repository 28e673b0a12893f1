"""Which engine can put an EAGLE-3 drafter beside which target, by the architecture name of its config."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Mapping

_VLLM = """
    AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM Cohere2MoeForCausalLM CwmForCausalLM DeepseekForCausalLM
    DeepseekV2ForCausalLM DeepseekV3ForCausalLM Emu3ForConditionalGeneration Ernie4_5ForCausalLM
    FlexOlmoForCausalLM GPTBigCodeForCausalLM GPTNeoXForCausalLM Gemma4ForCausalLM Gemma4ForConditionalGeneration
    GlmForCausalLM GptOssForCausalLM GraniteForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM
    HunYuanVLForConditionalGeneration InternLM3ForCausalLM Jais2ForCausalLM K2HorizonForCausalLM
    KimiK25ForConditionalGeneration LLaMAForCausalLM LagunaForCausalLM Llama4ForCausalLM
    Llama4ForConditionalGeneration LlamaForCausalLM LlavaForConditionalGeneration MiMoForCausalLM
    MiMoV2FlashForCausalLM MiMoV2ForCausalLM MiniCPM3ForCausalLM MiniCPMForCausalLM MiniMaxM2ForCausalLM
    Ministral3ForCausalLM Mistral3ForConditionalGeneration MistralForCausalLM MistralLarge3ForCausalLM
    NemotronHForCausalLM NemotronH_Nano_VL_V2 Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM Phi3ForCausalLM
    PhiForCausalLM PixtralForConditionalGeneration Plamo3ForCausalLM Qwen2ForCausalLM
    Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM
    Qwen3OmniMoeForConditionalGeneration Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration
    Qwen3_5ForCausalLM Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration
    SarvamMLAForCausalLM SeedOssForCausalLM SmolLM3ForCausalLM Starcoder2ForCausalLM Step1ForCausalLM
    TeleChat2ForCausalLM TeleChat3ForCausalLM VaultGemmaForCausalLM
"""

_SGLANG = """
    ApertusForCausalLM BailingMoEForCausalLM BailingMoeForCausalLM BailingMoeV2ForCausalLM
    Cosmos3ForConditionalGeneration DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM
    ExaoneMoEForCausalLM ExaoneMoeForCausalLM Gemma3ForCausalLM Gemma3ForConditionalGeneration Gemma4ForCausalLM
    Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration Glm4MoeForCausalLM Glm4MoeLiteForCausalLM
    Glm5NextForConditionalGeneration GlmMoeDsaForCausalLM GptOssForCausalLM IQuestCoderForCausalLM
    InternLM3ForCausalLM InternS1ProForConditionalGeneration InternS2MobiusForConditionalGeneration
    InternS2PreviewForConditionalGeneration KimiK25ForConditionalGeneration Llama4ForCausalLM
    Llama4ForConditionalGeneration LlamaForCausalLM LongcatFlashForCausalLM MellumForCausalLM MiniMaxM2ForCausalLM
    MiniMaxM3SparseForCausalLM MiniMaxM3SparseForConditionalGeneration Ministral3ForCausalLM MistralForCausalLM
    MistralLarge3ForCausalLM Phi3ForCausalLM Qwen2ForCausalLM Qwen2MoeForCausalLM
    Qwen2_5_VLForConditionalGeneration Qwen3ForCausalLM Qwen3MoeForCausalLM Qwen3NextForCausalLM
    Qwen3VLForConditionalGeneration Qwen3VLMoeForConditionalGeneration Qwen3_5ForCausalLM
    Qwen3_5ForConditionalGeneration Qwen3_5MoeForCausalLM Qwen3_5MoeForConditionalGeneration
    Qwen4ExpForConditionalGeneration SarvamMoEForCausalLM TeleFLMForCausalLM
"""

READ_VERSION = {"vllm": "0.32.0", "sglang": "0.5.23"}

SUPPORTS_EAGLE3: Dict[str, FrozenSet[str]] = {"vllm": frozenset(_VLLM.split()), "sglang": frozenset(_SGLANG.split())}
"""Text-generating architectures whose class (or a class above it) gives hidden states of inner layers out
(`SupportsEagle3` in vLLM, `set_eagle3_layers_to_capture` in SGLang), read from the model registries of the releases in
`READ_VERSION`. Other releases differ: a name that is missing here can be accepted by hand."""


_OWN_HEAD = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "n_predict")


def has_own_head(target: Mapping[str, Any]) -> bool:
    """Whether a target's config.json says that it brings layers that draft for it (multi-token prediction)."""
    text = target.get("text_config") or target
    return any(isinstance(text.get(key), int) and text[key] > 0 for key in _OWN_HEAD)


def engines_for(architecture: str) -> Dict[str, bool]:
    """Engine name to whether it is known to serve an EAGLE-3 drafter beside this architecture."""
    return {engine: architecture in names for engine, names in SUPPORTS_EAGLE3.items()}
