"""Kernel and operator names that engines and their libraries use, recorded from sources and documentation."""

from __future__ import annotations

import pytest

from eagle3_backend.engines.traces.rules import CATEGORIES, Pass, category_of, pass_of

RECORDED = {
    "all_reduce": [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllReduce_RING_LL_Sum_half(ncclDevComm*, unsigned long, ncclWork*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, vllm::RankSignals, int)",
        "void vllm::cross_device_reduce_2stage<__half, 8>(vllm::RankData*)",
        "void sglang::cross_device_reduce_1stage<__nv_bfloat16, 4>(sglang::RankData*)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<(pattern)1>",
        "void flashinfer::trtllm_mnnvl_allreduce::oneshotAllreduceFusionKernel<2, __nv_bfloat16>",
        "multimem_all_reduce_kernel<c10::BFloat16>",
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::CodecFP>",
        "c10d::allreduce_",
        "gloo:all_reduce",
        "_C::shm_allreduce",
    ],
    "communication": [
        "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
        "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Broadcast_RING_LL",
        "void deep_ep::intranode::dispatch<8, 768>(int4*, float*)",
        "void deep_ep::internode_ll::combine<true, 7168, 8>(void*)",
        "nvshmemi_transfer_amo_nonfetch",
        "c10d::_allgather_base_",
        "c10d::alltoall_base_",
    ],
    "attention": [
        "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>",
        "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90>>",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0>",
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits>",
        "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u>",
        "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64VarSeqQ128Kv128PersistentContext",
        "kernel_unified_attention_2d",
        "kernel_unified_attention_3d",
        "_fwd_grouped_kernel_stage1",
        "_fwd_kernel_stage2",
        "void vllm::paged_attention_v2_kernel<unsigned short>",
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>",
        "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>",
        "void vllm::merge_attn_states_kernel<float, 128u>",
        "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 16, 8>>",
        "cutlass::fmha::device::MLA",
        "store_kv_cache_kernel",
        "vllm::unified_attention_with_output",
        "_C::cpu_attention_with_kv_cache",
        "_split_kv_stage1",
        "_topk_index_kernel",
        "fused_recurrent_gated_delta_rule_packed_decode_kernel",
        "_causal_conv1d_update_kernel",
        "create_flashinfer_kv_indices_triton",
        "_C::get_scheduler_metadata",
        "aten::scaled_dot_product_attention",
    ],
    "moe": [
        "fused_moe_kernel",
        "void vllm::moe::topkGatingSoftmax<4, 64, 4, 16>",
        "void vllm::moe::moe_align_block_size_kernel<int>",
        "void marlin_moe_wna16::Marlin<__nv_bfloat16, 4>",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<>>>",
        "sm90_fp8_gemm_1d2d_m_grouped_contiguous",
        "void grouped_topk_fused_kernel<float>",
        "void tensorrt_llm::kernels::cutlass_kernels::expandInputRowsKernel",
        "void tensorrt_llm::kernels::cutlass_kernels::finalizeMoeRoutingKernel",
        "_silu_and_mul_masked_post_quant_fwd",
        "ep_scatter_kernel",
        "topk_softmax_triton_kernel",
        "_mxfp8_grouped_gemm_kernel",
        "post_reorder_triton_kernel",
        "vllm::moe_forward",
    ],
    "gemm": [
        "nvjet_tst_128x64_64x8_2x1_v_bz_TNT",
        "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>",
        "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>",
        "void gemv2T_kernel_val<int, int, __nv_bfloat16>",
        "void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256, 1, 8, 8>",
        "void machete::MacheteKernelTemplate",
        "sm90_fp8_gemm_1d2d_impl",
        "_w8a8_block_fp8_matmul",
        "triton_tem_fused_mm_3",
        "aten::addmm",
        "aten::linear",
        "_C::onednn_mm",
        "_batched_gemm_split_k_reduce_kernel",
        "_lora_shrink_kernel",
    ],
    "sampling": [
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>",
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>",
        "void at_cuda_detail::cub::DeviceSegmentedRadixSortKernel<>",
        "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<>",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>>>",
        "rejection_greedy_sample_kernel",
        "sample_recovered_tokens_kernel",
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 2>",
        "eagle_prepare_next_token_padded_kernel",
        "void verify_tree_greedy<int>",
        "void VerifyTreeGreedy<int, long>",
        "void at::native::warpMergeSortKVInPlace<-1, -1, 128, 16, float>",
        "_gumbel_sample_kernel",
        "_topk_log_softmax_kernel",
        "_compute_global_residual_mass",
        "expand_kernel",
        "fill_bonus_tokens",
        "aten::argmax",
    ],
    "elementwise": [
        "void vllm::rms_norm_kernel<c10::BFloat16>",
        "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>",
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>",
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>",
        "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>",
        "triton_red_fused_add_mean_mul_pow_rsqrt_0",
        "triton_poi_fused_mul_silu_1",
        "void vllm::dynamic_per_token_scaled_fp8_quant_kernel",
        "_per_token_group_quant_fp8",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "_C::rms_norm",
        "_gemma_fused_add_rmsnorm_kernel",
        "_grouped_gemma_rmsnorm_kernel",
        "_silu_mul_fp8_quant_deep_gemm",
        "aten::silu",
    ],
    "copy": [
        "Memcpy HtoD (Pinned -> Device)",
        "Memset (Device)",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy_alignedK_contig<>",
        "aten::copy_",
    ],
}


@pytest.mark.parametrize(("category", "name"), [(key, name) for key, found in RECORDED.items() for name in found])
def test_a_recorded_name_has_its_category(category, name):
    assert category_of(name) == category


def test_every_category_of_work_has_recorded_names():
    assert set(CATEGORIES) - set(RECORDED) == {"drafter", "other", "gap"}


@pytest.mark.parametrize("name", ["my_very_own_kernel", "", "kernel_17", "void foo<bar>(int)"])
def test_a_name_that_no_rule_knows_has_none(name):
    assert category_of(name) is None


@pytest.mark.parametrize(
    ("annotation", "part"),
    [
        ("execute_context_0(0)_generation_8(32)", Pass("decode", 8)),
        ("execute_context_2(311)_generation_6(24)", Pass("prefill", 6)),
        (
            "execute_335_context_1(sq311sk311sqsq96721sqsk96721)_generation_6(sq24sk900sqsq96sqsk3600)",
            Pass("prefill", 6),
        ),
        ("step[VERIFY bs=4]", Pass("decode", 4)),
        ("step[DECODE bs=16]", Pass("decode", 16)),
        ("step[EXTEND bs=2 toks=512]", Pass("prefill", 2)),
        ("step[DRAFT bs=4]", Pass("draft", 4)),
        ("gpu_model_runner: draft", Pass("draft")),
        ("gpu_model_runner: sample", Pass("sample")),
        ("gpu_model_runner: forward", None),
        ("ProfilerStep#3", None),
    ],
)
def test_annotations_of_both_engines_mark_the_parts_of_their_work(annotation, part):
    assert pass_of(annotation) == part
