from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="the train environment runs these")

from safetensors.torch import load_file, save_file  # noqa: E402

from eagle3_backend.findings import FindingError  # noqa: E402
from eagle3_backend.stages import demo_target, target  # noqa: E402

pytestmark = pytest.mark.torch

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 12,
    "hidden_size": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 6,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 2,
    "bos_token_id": 1,
}


@pytest.fixture
def model(tmp_path):
    """A directory like a model's: config, tokenizer, template and three tensors, with changes."""

    def make(tensors=None, **config):
        directory = tmp_path / "model"
        directory.mkdir(exist_ok=True)
        (directory / "config.json").write_text(json.dumps({**CONFIG, **config}))
        (directory / "tokenizer.json").write_text("{}")
        (directory / "chat_template.jinja").write_text("{{ messages }}")
        save_file(tensors or weights(), directory / "model.safetensors")
        return directory

    return make


def weights(prefix=""):
    return {
        f"{prefix}model.norm.weight": torch.ones(4),
        f"{prefix}model.embed_tokens.weight": torch.arange(24.0).reshape(6, 4),
        f"{prefix}lm_head.weight": torch.arange(24.0).reshape(6, 4) + 1,
        f"{prefix}model.layers.0.input_layernorm.weight": torch.ones(4),
    }


def run(attempt, directory, **parameters):
    context = attempt("target", {}, model=str(directory), **parameters)
    target.run(context)
    return context


def code(raised):
    return raised.value.findings[0].code


def test_facts_say_what_the_later_stages_need(attempt, model):
    facts = json.loads((run(attempt, model()).output / "facts.json").read_text())
    assert (facts["layers"], facts["hidden_size"], facts["vocab_size"], facts["head_dim"]) == (12, 4, 6, 2)
    assert facts["aux_layers"] == [2, 6, 9]
    assert (facts["eos"], facts["final_norm"], facts["logit_scale"]) == ([2], "rms", 1.0)
    assert facts["template_hash"]
    assert facts["engines"] == {"vllm": True, "sglang": True}


def test_the_target_in_small_holds_tokenizer_config_and_the_three_tensors(attempt, model):
    output = run(attempt, model()).output
    assert {path.name for path in output.iterdir()} >= {"config.json", "tokenizer.json", "chat_template.jinja"}
    tensors = load_file(output / "head.safetensors")
    assert {name: tensor.dtype for name, tensor in tensors.items()} == dict.fromkeys(target.TENSORS, torch.bfloat16)
    assert torch.equal(tensors["lm_head.weight"].float(), weights()["lm_head.weight"])


def test_tied_embeddings_are_the_head(attempt, model):
    tensors = {name: tensor for name, tensor in weights().items() if name != "lm_head.weight"}
    small = load_file(run(attempt, model(tensors)).output / "head.safetensors")
    assert torch.equal(small["lm_head.weight"], small["embed_tokens.weight"])


def test_a_wrapped_text_model_is_read_through_its_wrapper(attempt, model):
    inner = {key: value for key, value in CONFIG.items() if key != "architectures"}
    directory = model(weights("language_model."), text_config={**inner, "num_hidden_layers": 20})
    facts = run(attempt, directory).summary
    assert facts["layers"] == 20
    assert (facts["architecture"], facts["model_type"]) == ("LlamaForCausalLM", "llama")


def test_a_generation_config_decides_when_a_turn_ends(attempt, model):
    directory = model()
    (directory / "generation_config.json").write_text('{"eos_token_id": [2, 5]}')
    assert run(attempt, directory).summary["eos"] == [2, 5]


def test_granite_divides_its_logits_and_cohere_multiplies(attempt, model):
    assert run(attempt, model(logits_scaling=8.0)).summary["logit_scale"] == 0.125
    assert run(attempt, model(logit_scale=0.0625)).summary["logit_scale"] == 0.0625


@pytest.mark.parametrize("layers", [4, 6, 30, 61])
def test_default_aux_layers_are_inside_the_target_ascending_and_different(layers):
    ids = target.default_aux_layers(layers)
    assert ids == sorted(set(ids))
    assert ids[0] > 0
    assert ids[-1] < layers


def test_other_weights_are_another_revision(attempt, model):
    first = run(attempt, model()).summary["revision"]
    assert run(attempt, model()).summary["revision"] == first
    changed = {**weights(), "model.layers.0.input_layernorm.weight": torch.ones(4, 2)}
    assert run(attempt, model(changed)).summary["revision"] != first


def test_a_directory_without_tokenizer_is_refused(attempt, model):
    directory = model()
    (directory / "tokenizer.json").unlink()
    with pytest.raises(FindingError) as raised:
        run(attempt, directory)
    assert code(raised) == "tokenizer_missing"


def test_an_architecture_that_the_engine_does_not_know_is_refused_unless_accepted(attempt, model):
    directory = model(architectures=["MambaForCausalLM"])
    with pytest.raises(FindingError) as raised:
        run(attempt, directory)
    assert code(raised) == "target_unsupported"
    assert raised.value.findings[0].actual == "MambaForCausalLM"
    context = run(attempt, directory, accepted=["target_unsupported"])
    assert context.summary["layers"] == 12


def test_an_unknown_architecture_is_told_also_when_its_config_has_other_names(attempt, model):
    directory = model()
    config = {"architectures": ["GPT2LMHeadModel"], "n_layer": 12, "n_head": 2, "n_embd": 4, "vocab_size": 6}
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(FindingError) as raised:
        run(attempt, directory)
    assert code(raised) == "target_unsupported"
    with pytest.raises(FindingError) as raised:
        run(attempt, directory, accepted=["target_unsupported"])
    assert code(raised) == "target_config_invalid"
    assert "num_hidden_layers" in raised.value.findings[0].message


@pytest.mark.parametrize("value", ["twelve", None, []])
def test_a_config_with_a_wrong_value_is_refused(attempt, model, value):
    with pytest.raises(FindingError) as raised:
        run(attempt, model(num_hidden_layers=value))
    assert code(raised) == "target_config_invalid"


@pytest.mark.parametrize("name", ["lm_head.weight_packed", "lm_head.qweight"])
def test_a_packed_head_is_refused(attempt, model, name):
    tensors = {name: tensor for name, tensor in weights().items() if name != "lm_head.weight"}
    with pytest.raises(FindingError) as raised:
        run(attempt, model({**tensors, name: torch.ones(2, 2, dtype=torch.int32)}))
    assert code(raised) == "head_quantised"


def test_a_head_in_eight_bits_is_refused_with_its_type(attempt, model):
    with pytest.raises(FindingError) as raised:
        run(attempt, model({**weights(), "lm_head.weight": torch.ones(6, 4, dtype=torch.int8)}))
    assert code(raised) == "head_quantised"
    assert raised.value.findings[0].actual == "int8"


def test_a_git_lfs_pointer_is_told_from_weights(attempt, model):
    directory = model()
    (directory / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    with pytest.raises(FindingError) as raised:
        run(attempt, directory)
    assert code(raised) == "lfs_pointer"


def test_pickled_weights_are_not_loaded(attempt, model):
    directory = model()
    (directory / "model.safetensors").rename(directory / "pytorch_model.bin")
    with pytest.raises(FindingError) as raised:
        run(attempt, directory)
    assert code(raised) == "target_weights_missing"


def test_a_target_that_is_not_there_is_refused(attempt, tmp_path):
    with pytest.raises(FindingError) as raised:
        run(attempt, tmp_path / "nowhere")
    assert code(raised) == "target_unavailable"


def test_a_model_without_template_is_warned_of(attempt, model):
    directory = model()
    (directory / "chat_template.jinja").unlink()
    assert run(attempt, directory).codes() == ["chat_template_missing"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo target as the stage makes it: downloaded and converted once."""
    return demo_target.provide(tmp_path_factory.mktemp("models"), print)


def test_the_demo_target_splits_numbers_digit_by_digit(demo):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(demo))
    assert tokenizer.tokenize("2024 rivers") == ["2", "0", "2", "4", "Ġrivers"]


def test_the_demo_target_ends_its_turns_in_both_configs(demo):
    for name in ("config.json", "generation_config.json"):
        assert json.loads((demo / name).read_text())["eos_token_id"] == 2


def test_the_demo_target_opens_a_turn_as_it_was_trained_to(demo):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(demo))
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer("Hi")["input_ids"][0] != 1


def test_the_demo_target_knows_the_capital_of_france(demo):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(demo))
    model = AutoModelForCausalLM.from_pretrained(str(demo), dtype=torch.float32)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**ids, max_new_tokens=16, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"


def test_a_demo_target_that_is_there_is_not_made_again(demo):
    told = []
    assert demo_target.provide(demo.parent, told.append) == demo
    assert told == []


def test_a_wrong_conversion_is_refused(demo, tmp_path):
    import shutil

    shutil.copytree(demo, tmp_path / "model", ignore=shutil.ignore_patterns("model.safetensors"))
    config = json.loads((demo / "config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps({**config, "eos_token_id": 0}))
    with pytest.raises(FindingError) as raised:
        demo_target.verify(tmp_path / "model")
    assert [finding.path for finding in raised.value.findings] == ["eos_token_id"]
