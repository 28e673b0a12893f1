"""What a kernel or an operator does, told by its name: the rules are data, the first that matches wins.

Names are those that vLLM, SGLang, FlashInfer, FlashAttention, CUTLASS, cuBLAS, Triton, NCCL and PyTorch give their
kernels. A name that no rule knows is reported with its time, so that this table can grow.
"""

from __future__ import annotations

import re
from typing import Dict, Mapping, NamedTuple, Optional, Pattern, Tuple

CATEGORIES: Mapping[str, str] = {
    "attention": "attention, with the writing of its cache",
    "moe": "experts: their matrix products, routing, and the order of tokens",
    "gemm": "matrix products: projections of attention, MLP, head",
    "all_reduce": "all-reduce that nothing hides",
    "communication": "other communication that nothing hides",
    "sampling": "sampling and the verdict on drafts",
    "drafter": "the drafter's passes, whatever they do",
    "elementwise": "norms, activations, rotary positions, quantisation and the like",
    "copy": "copies that nothing hides",
    "other": "what no rule knows",
    "gap": "host gaps: nothing runs on the device",
}
"""Every category of a share, in the order in which they are shown, and what it holds."""

COMMUNICATION = ("all_reduce", "communication")

_RULES: Tuple[Tuple[str, str], ...] = (
    # vLLM's and SGLang's custom all-reduce, TensorRT-LLM's fused ones, AMD's quick reduce, torch's symmetric memory.
    (
        "all_reduce",
        r"all_?reduce|cross_device_reduce|quick_?reduce|one_?shot_lamport|two_?shot_(?:lamport|sync)|lamport_style|"
        r"multimem_one_shot|two_shot_all|twoshot|oneshot",
    ),
    (
        "communication",
        r"nccl|rccl|nvshmem|c10d::|gloo:|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|deep_?ep\b|"
        r"(?:intranode|internode|internode_ll)::|pplx|mscclpp|broadcast_?kernel_nv|signal_pad|multimem_",
    ),
    (
        "attention",
        r"flash_?attn|flash_?attention|flash_?fwd|flash::|flash_?mla|flash_?infer.*(?:attention|prefill|decode)|fmha|"
        r"(?:batch|single)(?:decode|prefill)with|batchprefill|batchdecode|persistent_?(?:attention|variable)|"
        r"paged_?attention|unified_attention|attention_with_kv|cpu_attention|mla_?(?:decode|kernel|fwd|combine|prefill)|"
        r"cutlass_mla|decode_attention|extend_attention|prefill_attention|_fwd_(?:grouped_)?kernel|"
        r"merge_attn_states|merge_?states?(?:kernel|_)|reshape_and_cache|concat_and_cache|gather_cache|cp_gather|"
        r"kv_?cache|set_kv_buffer|set_mla_kv|cascade|xqa|kernel_mha|mha_fwd|scaled_dot_product|sdpa|sparse_attn|"
        r"indexer|mqa_logits|attn_fwd|attn_decode|split_?kv|kernel_unified|ragged_attention|scheduler_metadata|"
        # Linear attention and state spaces stand in its place; the tables of its cache are part of it.
        r"attn|attention|gated_delta|gdn_|kda_|mamba|causal_conv1d|selective_scan|chunk_(?:fwd|state|scan|o|bwd)|"
        r"fused_recurrent|lightning|solve_tril|seg_la_|_fwd_(?:none_)?diag|_fwd_kv_|(?:^|[_:])mla(?:_|$)|"
        r"kv_indices|kv_splits|page_table|page_indices|cache_locs?|req_to_token|reduce_segments|(?:^|_)dcp_|"
        r"index_topk|topk_index|index_logits|sparse_topk|kpool",
    ),
    (
        "moe",
        r"fused_moe|moe|grouped_?topk|topk_?gating|group(?:ed)?_?gemm(?!a)|group_?problem_?shape|m_?grouped|expert|"
        r"silu_and_mul_masked|ep_scatter|ep_gather|deep_gemm.*group|routing(?:main|custom|renormalize|deepseek|indices)|"
        r"expand_?input_?rows|finalize_?moe|permute_?(?:rows|tokens)|ptr_?array|batched_?marlin|bmm_.*(?:swiglu|routed)|src2dst|gateup_input|"
        r"post_reorder|router_|routing_|problem_sizes|topk_softmax|topk_sigmoid|gate_topk|hash_topk",
    ),
    (
        "copy",
        r"^mem(?:cpy|set)|copy_kernel|_copy_|\bcopy_?\b|aten::(?:copy_|_to_copy|to$|clone|contiguous)|catarray|"
        r"fillfunctor|aten::(?:cat|fill_|zero_|stack)$|swap_blocks",
    ),
    (
        "sampling",
        r"(?<!up)sampl(?:e|ing)|reject|top_?k|top_?p|min_?p_|radix_?sort|devicesort|segmented_?sort|bitonic|aten::(?:sort|topk)|"
        r"arg_?max|arg_?min|multinomial|gumbel|soft_?max|penalt|logprob|logits|bincount|philox|exponential|"
        r"distribution_|verify_?tree|verify_?chain|tree_?speculative|build_?tree|merge_?sort|spec_decode|eagle|next_token|draft_tokens|"
        r"vocab_?mask|bitmask|inverse_cdf|renorm|"
        r"residual_mass|sumexp|bad_words|temperature|watermark|thinking|token_filter|bonus|accept|^expand_kernel|"
        r"draft_(?:extend|inputs)|logit",
    ),
    # Before the matrix products, whose names Gemma and fused quantisation share.
    ("elementwise", r"rms_?norm|layer_?norm|silu_mul"),
    (
        "gemm",
        r"gemm(?!a)|gemv|cublas|nvjet|split_?k(?!v|ernel)|xmma|hmma|s16816|s1688|cutlass|marlin|machete|awq|gptq|exllama|wvsplit|"
        r"matmul|mat_?mul|scaled_mm|\b\w*_mm\b|mm_kernel|triton_(?:tem|mm)|dot_kernel|onednn|mkldnn|dnnl|"
        r"aten::(?:mm|addmm|bmm|baddbmm|linear|matmul|mv|addmv|dot|_scaled_mm)|block_fp8|tinygemm|gemvx|linear|"
        r"lora_|sgmv|bgmv|w4a16|w8a8|w4a8|rowwise_kernel|_wo_a_",
    ),
    (
        "elementwise",
        r"rms_?norm|layer_?norm|group_?norm|l2_?norm|rotary|rope|silu|gelu|swiglu|relu|act_and_mul|act_kernel|tensor_kernel_scan|fused_add|"
        r"elementwise|pointwise|triton_(?:poi|red|per)_|quant|embedding|index_?(?:select|put|kernel|elementwise)?_?kernel|"
        r"vectorized|reduce_kernel|scan_?kernel|cumsum|arange|gather|scatter|where|clamp|tanh|sigmoid|norm|mrope|scale_shift|"
        r"glu_|gating|cast_|mean_kernel|sum_kernel|hadamard|fwht|swizzle|mxfp|residual_add|concat_"
        r"aten::(?:add|sub|mul|div|neg|pow|rsqrt|mean|sum|cos|sin|exp|log|max|min|maximum|minimum|eq|ne|lt|le|gt|ge|"
        r"index|masked_fill|bitwise_\w+|logical_\w+|any|all|abs|floor_divide|remainder|repeat_interleave|where)_?\b",
    ),
    # Views, allocations and the like: known, and of no weight on a device.
    (
        "other",
        r"^aten::|^torch::|prims::|^detach|slot_mapping|prepare_|input_batch|block_table|metadata|"
        r"seq_?lens?|position_kernel|alloc_|write_zeros|zero_|pad_|input_ids|expand_idx",
    ),
)

_COMPILED: Tuple[Tuple[str, Pattern[str]], ...] = tuple((name, re.compile(rule)) for name, rule in _RULES)

_CACHE: Dict[str, Optional[str]] = {}


def category_of(name: str) -> Optional[str]:
    """The category of a kernel's or an operator's name; None when no rule knows it."""
    if name not in _CACHE:
        lowered = name.lower()
        _CACHE[name] = next((category for category, rule in _COMPILED if rule.search(lowered)), None)
    return _CACHE[name]


class Pass(NamedTuple):
    """A part of the work that a trace names: ``kind`` is ``decode`` (a decode or verify step), ``prefill`` (any step
    with a prompt in it), ``draft`` or ``sample``; ``requests`` in it, None where it is not told."""

    kind: str
    requests: Optional[int] = None


_VLLM_STEP = re.compile(r"^execute_(?:\d+_)?context_(\d+)\(.*\)_generation_(\d+)\(")
_SGLANG_STEP = re.compile(r"^step\[(\w+) bs=(\d+)")
_SAMPLE = "gpu_model_runner: sample"
_DRAFT = "gpu_model_runner: draft"


def pass_of(annotation: str) -> Optional[Pass]:
    """What an annotation of an engine's own marks; None for any other.

    vLLM marks each step with its requests in prefill and in decode, and its scopes with
    ``VLLM_CUSTOM_SCOPES_FOR_PROFILING=1``; SGLang marks each forward pass of target and drafter.
    """
    if found := _VLLM_STEP.match(annotation):
        return Pass("prefill" if int(found.group(1)) else "decode", int(found.group(2)))
    if found := _SGLANG_STEP.match(annotation):
        stage = found.group(1)
        kind = "draft" if stage.startswith("DRAFT") else "decode" if stage in ("VERIFY", "DECODE") else "prefill"
        return Pass(kind, int(found.group(2)))
    if annotation == _DRAFT:
        return Pass("draft")
    return Pass("sample") if annotation == _SAMPLE else None
