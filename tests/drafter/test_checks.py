"""What is told of a drafter, engine by engine and release by release."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eagle3_backend.drafter.checks import Subject, check, facts
from eagle3_backend.drafter.checks.vocabulary import map_findings
from eagle3_backend.drafter.config import DEEPSEEK, QWEN3, MlaShape
from eagle3_backend.drafter.inventory import Inventory
from eagle3_backend.drafter.rope import Rope
from eagle3_backend.findings import Severity

IDS = "eagle_aux_hidden_state_layer_ids"


@pytest.fixture
def told(drafters):
    """Code to finding of what is told of a checkpoint; information is left out."""

    def run(checkpoint, engine="vllm", version="", **facts):
        facts.setdefault("target", drafters.TARGET)
        findings = check(checkpoint.config, engine, version=version, inventory=checkpoint.inventory(), **facts)
        return {finding.code: finding for finding in findings if finding.severity is not Severity.INFO}

    return run


@pytest.fixture
def make(drafters):
    """A checkpoint in a layout, of the usual drafter with these fields changed."""

    def run(layout="flat", **fields):
        return drafters.checkpoint(replace(drafters.DRAFTER, **fields), layout)

    return run


class TestTraps:
    """What looks wrong and is not."""

    @pytest.mark.parametrize(("layout", "engine"), [("flat", "vllm"), ("flat", "sglang"), ("nested", "vllm")])
    def test_a_right_drafter(self, told, make, layout, engine):
        assert told(make(layout), engine) == {}

    def test_heads_whose_size_is_not_their_share_of_the_width(self, told, make):
        assert told(make(heads=8, head_dim=16)) == {}

    def test_no_maps_for_the_whole_vocabulary(self, told, make):
        assert told(make(draft_vocab_size=96)) == {}

    @pytest.mark.parametrize(("engine", "version"), [("sglang", ""), ("vllm", "0.27.1")])
    def test_zeros_as_maps_of_the_whole_vocabulary(self, told, make, engine, version):
        checkpoint = make(draft_vocab_size=96)
        checkpoint.tensors["d2t"] = ("int64", (96,))
        assert told(checkpoint, engine, version) == {}

    def test_dtype_by_its_old_name(self, told, make):
        checkpoint = make()
        del checkpoint.config["dtype"]
        assert told(checkpoint) == {}

    def test_the_base_in_its_new_place(self, told, make, drafters):
        checkpoint = make()
        checkpoint.layer["rope_parameters"] = {"rope_type": "default", "rope_theta": checkpoint.layer.pop("rope_theta")}
        assert told(checkpoint) == {}

    def test_a_target_that_wraps_its_text_model(self, told, make, drafters):
        wrapped = {"architectures": ["LlamaForCausalLM"], "text_config": drafters.TARGET}
        assert told(make(), target=wrapped) == {}

    def test_a_target_whose_config_leaves_its_rotary_base_to_its_class(self, told, make, drafters):
        target = {key: value for key, value in drafters.TARGET.items() if key != "rope_theta"}
        assert told(make(rope=Rope(500000.0)), target=target) == {}

    def test_an_embedding_of_its_own_with_another_width(self, told, drafters):
        drafter = replace(drafters.DRAFTER, target_hidden_size=64)
        target = {**drafters.TARGET, "hidden_size": 64}
        for layout in ("flat", "nested"):
            assert told(drafters.checkpoint(drafter, layout), target=target) == {}

    def test_buffers_that_engines_skip(self, told, make):
        checkpoint = make()
        checkpoint.tensors["midlayer.self_attn.rotary_emb.inv_freq"] = ("float32", (4,))
        assert told(checkpoint) == {}

    def test_a_drafter_with_latent_attention(self, told, drafters):
        mla = MlaShape(q_lora_rank=8, kv_lora_rank=6, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=8)
        drafter = replace(drafters.DRAFTER, draft_class=DEEPSEEK, mla=mla, head_dim=12, kv_heads=4)
        checkpoint = drafters.checkpoint(drafter)
        heads, width = drafter.heads, drafter.hidden_size
        attention = {
            "q_a_proj": (8, 2 * width),
            "q_a_layernorm": (8,),
            "q_b_proj": (heads * 12, 8),
            "kv_a_proj_with_mqa": (10, 2 * width),
            "kv_a_layernorm": (6,),
            "kv_b_proj": (heads * 16, 6),
            "o_proj": (width, heads * 8),
        }
        kept = {name: entry for name, entry in checkpoint.tensors.items() if "self_attn" not in name}
        own = {f"midlayer.self_attn.{name}.weight": ("bfloat16", shape) for name, shape in attention.items()}
        checkpoint.tensors = {**kept, **own}
        for engine in ("vllm", "sglang"):
            assert told(checkpoint, engine) == {}
        whole = {**checkpoint.config, "q_lora_rank": None}
        assert "q_lora_rank_missing" in {finding.code for finding in check(whole, "sglang")}
        checkpoint.layer["qk_nope_head_dim"] = 10
        finding = told(checkpoint)["config_size_mismatch"]
        assert (finding.path, finding.expected, finding.actual) == ("qk_nope_head_dim", 8, 10)


class TestReleases:
    """The same files on two releases."""

    def test_names_of_the_layer(self, told, make, drafters):
        checkpoint = make()
        checkpoint.tensors = {name.replace("midlayer.", "layers.0."): it for name, it in checkpoint.tensors.items()}
        assert told(checkpoint, "sglang", "0.5.14") == {}
        assert told(checkpoint, "sglang", "0.5.10")["layer_names_layout"].actual == "layers.0"

    def test_three_streams_only(self, told, make):
        checkpoint = make(aux_layers=(2, 5, 7, 9))
        assert told(checkpoint, "sglang", "0.5.14") == {}
        finding = told(checkpoint, "sglang", "0.5.10")["fc_input_mismatch"]
        assert (finding.expected, finding.actual) == (96, 128)

    @pytest.mark.parametrize("flag", ["norm_before_fc", "fc_norm", "norm_output"])
    def test_norms_that_came_later(self, told, make, flag):
        checkpoint = make(**{flag: True})
        assert told(checkpoint, "sglang") == {}
        assert told(checkpoint, "sglang", "0.5.10")["norm_flag_unsupported"].path.endswith(flag)

    def test_norms_that_the_nested_reader_learnt_later(self, told, make):
        checkpoint = make("nested", norm_output=True)
        assert told(checkpoint) == {}
        assert told(checkpoint, version="0.24.0")["norm_flag_unsupported"].path == "norm_output"
        assert told(make(norm_output=True), version="0.24.0") == {}

    def test_more_layers_than_one(self, told, make):
        checkpoint = make(layers=2)
        second = [
            (name.replace("midlayer", "layers.1"), it) for name, it in checkpoint.tensors.items() if "mid" in name
        ]
        for name, (dtype, shape) in second:
            inputs = "q_proj" in name or "k_proj" in name or "v_proj" in name
            checkpoint.tensors[name] = (dtype, (shape[0], 32) if inputs else shape)
        assert told(checkpoint) == told(checkpoint, "sglang") == {}
        assert told(checkpoint, "sglang", "0.5.10")["draft_layer_count"].expected == 1

    def test_the_ids_of_a_deepseek_target(self, told, drafters):
        target = {**drafters.TARGET, "architectures": ["DeepseekV3ForCausalLM"]}
        checkpoint = drafters.checkpoint()
        checkpoint.config["eagle_config"][IDS] = [2, 6, 9]
        assert told(checkpoint, "sglang", target=target) == {}
        assert told(checkpoint, "sglang", "0.5.10", target=target)["aux_layers_offset"].expected == [1, 5, 8]

    def test_a_release_that_was_not_read_is_told_as_information(self, drafters):
        findings = check(drafters.checkpoint().config, "vllm", version="0.9.1", target=drafters.TARGET)
        assert [(finding.code, finding.severity) for finding in findings] == [("engine_version_unread", Severity.INFO)]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_mixture_of_experts_is_not_what_engines_build(told, make, engine):
    checkpoint = make()
    checkpoint.config.update(use_moe=True, n_routed_experts=8)
    (finding,) = told(checkpoint, engine).values()
    assert (finding.code, finding.path) == ("experts_unsupported", "use_moe")
    checkpoint.config["use_moe"] = False
    assert told(checkpoint, engine) == {}


class TestIdsUnderEagleConfigAlone:
    """Taken as they are by vLLM until its second model runner, which does not look there."""

    @pytest.mark.parametrize(("version", "second"), [("0.28.0", False), ("0.32.0", True)])
    def test_they_mean_one_thing_on_vllm_and_another_on_sglang(self, told, make, version, second):
        checkpoint = make(aux_layers=(3, 6, 8))
        del checkpoint.config[IDS]
        message = told(checkpoint, "vllm", version)["aux_layers_missing"].message
        assert ("V2" in message) == second
        assert "takes [2, 5, 7] as they are" in message and "[3, 6, 8]" in message

    def test_a_list_that_both_read_alike_is_right_while_vllm_looks_there(self, told, make, drafters):
        target = {**drafters.TARGET, "architectures": ["DeepseekV3ForCausalLM"]}
        checkpoint = make(aux_layers=(3, 6, 8))
        del checkpoint.config[IDS]
        checkpoint.config["eagle_config"][IDS] = [3, 6, 8]
        assert told(checkpoint, "vllm", "0.28.0", target=target) == {}
        assert set(told(checkpoint, "vllm", target=target)) == {"aux_layers_missing"}


class TestWhatVllmStopsAt:
    """Confirmed with the classes of vLLM 0.32.0 itself."""

    def test_zeros_as_maps_of_the_whole_vocabulary(self, told, make):
        checkpoint = make(draft_vocab_size=96)
        checkpoint.tensors["d2t"] = ("int64", (96,))
        assert set(told(checkpoint)) == {"d2t_idle"}

    def test_a_map_that_belongs_to_a_draft_vocabulary_that_is_not_told(self, told, make):
        """What is missing is the size, so nothing advises to remove the map."""
        checkpoint = make()
        del checkpoint.config["draft_vocab_size"]
        assert set(told(checkpoint)) == {"draft_vocab_size_missing"}

    @pytest.mark.parametrize("key", ["hidden_act", "rms_norm_eps"])
    def test_a_nested_layer_without_a_key_that_has_no_default_there(self, told, make, key):
        checkpoint = make("nested")
        del checkpoint.layer[key]
        (finding,) = told(checkpoint).values()
        assert (finding.code, finding.path) == ("drafter_config_invalid", f"transformer_layer_config.{key}")

    def test_a_flat_file_may_leave_them_to_transformers(self, told, make):
        checkpoint = make()
        del checkpoint.layer["hidden_act"]
        assert told(checkpoint) == {}

    @pytest.mark.parametrize("key", ["rms_norm_eps", "hidden_act", "mlp_bias", "max_position_embeddings", "use_cache"])
    def test_a_null_in_a_flat_file(self, told, make, key):
        checkpoint = make()
        checkpoint.config[key] = None
        for engine in ("vllm", "sglang"):
            (finding,) = told(checkpoint, engine).values()
            assert (finding.code, finding.path) == ("drafter_config_invalid", key)
        assert "drafter_config_invalid" not in told(checkpoint, "sglang", "0.5.10")

    @pytest.mark.parametrize("key", ["rms_norm_eps", "hidden_act", "use_cache", "attention_dropout", "head_dim"])
    def test_a_null_in_a_flat_qwen3_file(self, told, make, key):
        checkpoint = make(draft_class=QWEN3)
        checkpoint.config[key] = None
        finding = told(checkpoint)["drafter_config_invalid"]
        assert (finding.path, "qwen3" in finding.message) == (key, True)

    @pytest.mark.parametrize(("key", "refused"), [("rms_norm_eps", True), ("use_cache", True), ("mlp_bias", False)])
    def test_a_null_in_a_flat_deepseek_file(self, told, make, key, refused):
        checkpoint = make()
        checkpoint.config.update({"model_type": "deepseek_v3", key: None})
        finding = told(checkpoint).get("drafter_config_invalid")
        assert (finding.path if finding else "") == (key if refused else "")

    @pytest.mark.parametrize("key", ["mlp_bias", "num_key_value_heads", "pretraining_tp"])
    def test_a_null_that_transformers_takes_in_a_flat_qwen3_file(self, told, make, key):
        checkpoint = make(draft_class=QWEN3, kv_heads=4)
        checkpoint.config[key] = None
        assert told(checkpoint) == {}

    @pytest.mark.parametrize("key", ["head_dim", "rope_scaling", "num_key_value_heads", "attention_dropout"])
    def test_a_null_that_transformers_takes(self, told, make, key):
        checkpoint = make(kv_heads=4)
        checkpoint.config[key] = None
        assert told(checkpoint) == told(checkpoint, "sglang") == {}

    def test_a_nested_qwen3_layer_without_the_number_of_its_keys(self, told, make):
        checkpoint = make("nested", draft_class=QWEN3, kv_heads=4)
        del checkpoint.layer["num_key_value_heads"]
        assert told(checkpoint)["drafter_config_invalid"].path == "transformer_layer_config.num_key_value_heads"


class TestPositions:
    """Table of positions against the context."""

    @pytest.mark.parametrize(
        ("engine", "version", "environment", "severity"),
        [
            ("vllm", "0.24.0", {}, "error"),
            ("vllm", "0.32.0", {}, "warning"),
            ("sglang", "0.5.23", {}, "error"),
            ("sglang", "0.5.23", {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}, "warning"),
            ("sglang", "0.5.23", {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "0"}, "error"),
        ],
    )
    def test_a_context_past_the_table(self, told, make, engine, version, environment, severity):
        found = told(make(max_position_embeddings=128), engine, version, context=400, environment=environment)
        finding = found["max_position_too_short"]
        assert (finding.severity.value, finding.expected, finding.actual) == (severity, 400, 128)

    def test_a_context_within_the_table(self, told, make):
        assert told(make(max_position_embeddings=128), context=100) == {}

    def test_a_table_that_a_scaling_stretches(self, told, make):
        rope = Rope(kind="linear", members={"factor": 4.0})
        target = {"rope_scaling": {"type": "linear", "factor": 4.0}}
        assert told(make(max_position_embeddings=128, rope=rope), "sglang", context=400, target=target) == {}

    def test_a_table_shorter_than_the_targets_where_no_context_is_named(self, told, make):
        finding = told(make("nested", max_position_embeddings=128))["max_position_too_short"]
        assert finding.path == "transformer_layer_config.max_position_embeddings"
        assert (finding.severity.value, finding.expected) == ("warning", 512)

    def test_multimodal_members_stop_parallel_drafting_only(self, told, make):
        checkpoint = make("nested", rope=Rope(members={"mrope_section": [1, 1, 2]}))
        assert "rope_mrope_unsupported" not in told(checkpoint)
        checkpoint.config["speculators_model_type"] = "peagle"
        path = "transformer_layer_config.rope_scaling.mrope_section"
        assert told(checkpoint)["rope_mrope_unsupported"].path == path


class TestHeads:
    """Numbers of heads that readers refuse although the weights fit."""

    def test_heads_that_do_not_divide_the_width(self, told, make):
        checkpoint = make(heads=6, head_dim=16)
        assert told(checkpoint)["heads_indivisible"].path == "num_attention_heads"
        assert told(checkpoint, "sglang", "0.5.10") == {}
        assert told(make("nested", heads=6, head_dim=16)) == {}
        assert told(make(heads=6, head_dim=16, draft_class=QWEN3)) == {}

    def test_heads_that_cannot_share_the_keys(self, told, make):
        assert told(make("nested", heads=4, kv_heads=3))["heads_indivisible"].actual == 3


class TestIds:
    """Where each engine looks for aux layers."""

    def test_a_list_for_sglang_alone_is_off_by_one_on_vllm(self, told, make):
        checkpoint = make()
        del checkpoint.config[IDS]
        finding = told(checkpoint)["aux_layers_offset"]
        assert (finding.expected, finding.actual) == ([2, 6, 9], [1, 5, 8])
        assert told(checkpoint, "sglang") == {}

    def test_an_unusual_list_for_sglang_alone_is_not_what_vllm_captures(self, told, make):
        checkpoint = make(aux_layers=(2, 5, 8))
        del checkpoint.config[IDS]
        assert told(checkpoint)["aux_layers_missing"].expected == [2, 5, 8]

    def test_a_list_for_vllm_alone_is_harmless_where_it_is_the_default(self, told, make):
        checkpoint = make()
        del checkpoint.config["eagle_config"][IDS]
        assert told(checkpoint, "sglang") == {}

    def test_an_unusual_list_for_vllm_alone_is_wrong_on_sglang(self, told, make):
        checkpoint = make(aux_layers=(2, 5, 8))
        del checkpoint.config["eagle_config"][IDS]
        finding = told(checkpoint, "sglang")["aux_layers_missing"]
        assert (finding.severity.value, finding.expected) == ("error", [1, 4, 7])

    def test_the_last_layers_output_on_sglang(self, told, make):
        checkpoint = make()
        checkpoint.config[IDS], checkpoint.config["eagle_config"][IDS] = [2, 6, 12], [1, 5, 11]
        assert told(checkpoint) == {}
        assert told(checkpoint, "sglang")["aux_layers_out_of_range"].actual == [1, 5, 11]

    def test_one_stream_of_the_drafters_width_on_sglang(self, told, make):
        checkpoint = make(aux_layers=(6,))
        assert told(checkpoint) == {}
        assert told(checkpoint, "sglang")["aux_count_unsupported"].actual == 1

    def test_more_ids_than_fc_is_built_for(self, drafters):
        config = drafters.checkpoint(replace(drafters.DRAFTER, aux_layers=(2, 5, 7, 9)), "nested").config
        assert check(config, "vllm", target=drafters.TARGET) == []
        del config["transformer_layer_config"]["num_aux_hidden_states"]
        (finding,) = check(config, "vllm", target=drafters.TARGET)
        assert (finding.code, finding.expected, finding.actual) == ("aux_count_mismatch", 4, 3)
        assert finding.path == "transformer_layer_config.num_aux_hidden_states"

    def test_no_ids_and_no_target(self, told, make):
        checkpoint = make("nested")
        del checkpoint.config[IDS]
        finding = told(checkpoint, target=None)["aux_layers_missing"]
        assert (finding.path, finding.expected, finding.actual) == (IDS, None, None)


class TestHeadAndEmbedding:
    """What a drafter may leave to its target."""

    def test_a_head_left_to_the_target(self, told, make):
        whole = make(draft_vocab_size=96)
        del whole.tensors["lm_head.weight"]
        assert told(whole) == {}
        assert told(whole, "sglang")["lm_head_missing"].expected == [96, 32]
        whole.config["draft_vocab_size"] = None
        assert told(whole, "sglang") == {}

    def test_a_null_vocabulary_with_a_reduced_head(self, told, make):
        checkpoint = make()
        checkpoint.config["draft_vocab_size"] = None
        for engine in ("vllm", "sglang"):
            finding = told(checkpoint, engine)["draft_vocab_size_missing"]
            assert (finding.expected, finding.actual) == (40, None)

    def test_a_size_under_a_key_that_no_engine_reads(self, drafters):
        config = drafters.checkpoint().config
        config["truncated_vocab_size"] = config.pop("draft_vocab_size")
        codes = {finding.code: finding for finding in check(config, "vllm", target=drafters.TARGET)}
        assert codes["draft_vocab_size_missing"].expected == 40

    def test_a_trained_embedding_is_replaced_by_sglang(self, told, make):
        checkpoint = make()
        checkpoint.tensors["embed_tokens.weight"] = ("bfloat16", (96, 32))
        assert told(checkpoint) == told(checkpoint, "sglang") == {}
        checkpoint.config["embed_requires_grad"] = True
        assert told(checkpoint, "sglang")["embedding_replaced"].severity is Severity.WARNING

    def test_a_drafter_of_another_width(self, told, make, drafters):
        target = {**drafters.TARGET, "hidden_size": 64}
        assert told(make(), target=target)["hidden_size_mismatch"].expected == 64

    def test_a_width_that_is_not_told_without_weights(self, drafters):
        config = drafters.checkpoint().config
        del config["target_hidden_size"]
        (finding,) = check(config, "vllm", target={**drafters.TARGET, "hidden_size": 64})
        assert (finding.code, finding.expected) == ("target_hidden_size_missing", 64)

    def test_tied_to_the_embedding(self, told, make):
        checkpoint = make(tie_word_embeddings=True)
        assert told(checkpoint) == {}
        assert told(checkpoint, "sglang")["tie_word_embeddings_draft"].expected is False


class TestShapes:
    """The smallest explanation of what does not fit."""

    def test_one_wrong_tensor_is_named_itself(self, told, make):
        checkpoint = make()
        checkpoint.tensors["midlayer.self_attn.q_proj.weight"] = ("bfloat16", (16, 64))
        found = told(checkpoint)
        assert list(found) == ["tensor_shape"]
        assert found["tensor_shape"].path == "midlayer.self_attn.q_proj.weight"

    @pytest.mark.parametrize("layout", ["flat", "nested"])
    def test_a_wrong_field_is_named_once_with_its_place(self, told, make, layout):
        checkpoint = make(layout)
        checkpoint.layer["intermediate_size"] = 56
        found = told(checkpoint)
        assert list(found) == ["config_size_mismatch"]
        assert found["config_size_mismatch"].path.endswith("intermediate_size")
        assert (found["config_size_mismatch"].expected, found["config_size_mismatch"].actual) == (48, 56)

    def test_weights_of_another_drafter_are_told_tensor_by_tensor(self, told, make):
        checkpoint = make()
        checkpoint.tensors["midlayer.self_attn.q_proj.weight"] = ("bfloat16", (16, 64))
        checkpoint.tensors["midlayer.mlp.up_proj.weight"] = ("bfloat16", (16, 32))
        findings = check(checkpoint.config, "vllm", inventory=checkpoint.inventory())
        assert [finding.code for finding in findings] == ["tensor_shape", "tensor_shape"]

    def test_columns_of_fc_by_the_engines_own_count(self, told, make):
        checkpoint = make("nested", aux_layers=(2, 5, 7, 9))
        assert told(checkpoint) == {}
        del checkpoint.layer["num_aux_hidden_states"]
        finding = told(checkpoint)["fc_input_mismatch"]
        assert (finding.expected, finding.actual) == (96, 128)
        assert "num_aux_hidden_states: 4 into transformer_layer_config" in finding.fix

    def test_the_qwen3_class_counts_the_top_level_too(self, told, make):
        checkpoint = make("nested", aux_layers=(2, 5, 7, 9), draft_class=QWEN3)
        del checkpoint.layer["num_aux_hidden_states"]
        assert told(checkpoint) == {}


class TestWeights:
    """Files that are not there or not whole."""

    def test_an_unknown_tensor_stops_vllm_and_is_skipped_by_sglang(self, told, make):
        checkpoint = make()
        checkpoint.tensors["extra.weight"] = ("bfloat16", (1,))
        severities = [told(checkpoint, engine)["tensor_unknown"].severity.value for engine in ("vllm", "sglang")]
        assert severities == ["error", "warning"]

    def test_an_incomplete_directory_is_not_told_tensor_by_tensor(self, drafters):
        checkpoint = drafters.checkpoint()
        files = {
            "model-00001-of-00002.safetensors": checkpoint.file(),
            "model-00002-of-00002.safetensors": b"version https://git-lfs.github.com/spec/v1\n",
        }
        del checkpoint.tensors["norm.weight"]
        inventory = drafters.read_inventory(drafters.MemoryFolder(files))
        findings = check(checkpoint.config, "vllm", target=drafters.TARGET, inventory=inventory)
        assert "lfs_pointer" in {finding.code for finding in findings}
        assert "tensor_missing" not in {finding.code for finding in findings}

    def test_a_manifest_stands_for_a_checkpoint_that_is_elsewhere(self, drafters):
        checkpoint = drafters.checkpoint()
        manifest = {name: [dtype, list(shape)] for name, (dtype, shape) in checkpoint.tensors.items()}
        inventory = Inventory.from_manifest(manifest)
        assert check(checkpoint.config, "vllm", target=drafters.TARGET, inventory=inventory) == []
        del manifest["d2t"]
        inventory = Inventory.from_manifest(manifest)
        codes = [finding.code for finding in check(checkpoint.config, "vllm", inventory=inventory)]
        assert codes == ["d2t_missing"]

    def test_quantised_weights_have_their_methods_names_and_shapes(self, told, make):
        checkpoint = make()
        checkpoint.layer["quantization_config"] = {"quant_method": "fp8"}
        assert list(told(checkpoint)) == ["quantization_config_on_plain_weights"]
        for name, (_, shape) in list(checkpoint.tensors.items()):
            if "proj" in name:
                checkpoint.tensors[name] = ("float8_e4m3fn", shape)
                checkpoint.tensors[name.replace(".weight", ".weight_scale")] = ("float32", (1,))
        assert told(checkpoint) == {}
        checkpoint.layer["quantization_config"]["kv_cache_quant_algo"] = "FP8"
        assert list(told(checkpoint)) == ["draft_kv_fp8"]

    def test_a_config_that_cannot_be_read_is_a_finding(self, drafters):
        config = drafters.checkpoint().config
        config["hidden_size"] = "wide"
        assert [finding.code for finding in check(config, "vllm")] == ["drafter_config_invalid"]


def test_the_nested_layout_on_sglang(told, make):
    assert list(told(make("nested"), "sglang")) == ["model_type_missing"]
    assert "norm_before_residual_unsupported" in told(make("nested", norm_before_residual=True), "sglang")


def test_a_window_on_sglang(told, make):
    checkpoint = make(windows=(64,))
    assert told(checkpoint) == {}
    assert told(checkpoint, "sglang")["sliding_window_unsupported"].severity is Severity.WARNING
    assert told(checkpoint, "sglang", "0.5.10")["sliding_window_unsupported"].severity is Severity.ERROR


def test_a_bias_on_sglang(told, make):
    checkpoint = make(attention_bias=True)
    for name in ("q", "k", "v", "o"):
        rows = checkpoint.tensors[f"midlayer.self_attn.{name}_proj.weight"][1][0]
        checkpoint.tensors[f"midlayer.self_attn.{name}_proj.bias"] = ("bfloat16", (rows,))
    assert told(checkpoint) == {}
    assert "attention_bias_unsupported" in told(checkpoint, "sglang")


def test_facts_are_told_beside_the_findings(drafters):
    checkpoint = drafters.checkpoint()
    subject = Subject.of(checkpoint.config, "vllm", target=drafters.TARGET, inventory=checkpoint.inventory())
    known = facts(subject)
    assert (known["detected_format"], known["t2d_true"], known["max_target_id_as_offset"]) == ("flat", 40, 95)
    assert known["target"]["head_dim"] == 8


KEPT = [1, 2, 5, 9]
D2T = [1, 1, 3, 6]
T2D = [target in KEPT for target in range(10)]


@pytest.mark.parametrize(
    ("d2t", "t2d", "codes"),
    [
        (D2T, T2D, []),
        (D2T, None, []),
        ([0, 0, 0, 0], T2D, ["d2t_placeholder"]),
        ([0, 0, 0, 0], [True] * 10, ["d2t_placeholder", "t2d_count_mismatch"]),
        (KEPT, T2D, ["d2t_absolute_ids"]),
        ([3, 5, 8, 9], None, ["d2t_absolute_ids"]),
        (D2T, [True] * 5 + [False] * 5, ["t2d_count_mismatch"]),
        (D2T, [target in (1, 2, 5, 8) for target in range(10)], ["vocab_map_inconsistent"]),
        ([1, 0, 3, 6], None, ["vocab_map_inconsistent"]),
        ([1, 1, 3, 7], None, ["vocab_map_inconsistent"]),
    ],
)
def test_a_faulty_vocabulary_map_is_told_by_its_fault(d2t, t2d, codes) -> None:
    assert [finding.code for finding in map_findings(d2t, t2d, 10)] == codes


def test_offsets_that_rise_at_every_step_are_suspicious_where_nothing_else_tells() -> None:
    (finding,) = map_findings([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], None, 100)
    assert (finding.code, finding.severity) == ("d2t_absolute_ids", Severity.WARNING)


def test_only_zeros_are_right_without_a_reduced_vocabulary() -> None:
    assert map_findings([0] * 10, None, 10) == []
    assert [finding.code for finding in map_findings([1] * 10, None, 10)] == ["vocab_map_inconsistent"]
