"""The model folder is an ordinary Hugging Face folder, and its source is pinned."""

import json
import struct
from pathlib import Path

import pytest

from e2e.model import built_model_folder, source
from e2e.model.source import FetchError, check_sha256


def test_a_file_that_was_not_pinned_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    with pytest.raises(FetchError, match=f"expected {source.SHA256}"):
        check_sha256(other)


def test_an_empty_cache_has_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGEFLEET_CACHE", str(tmp_path))
    assert built_model_folder() is None


@pytest.fixture
def folder() -> Path:
    found = built_model_folder()
    assert found, "run `make model` first"
    return found


@pytest.mark.model
def test_config_is_the_models_own(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["dtype"] == "bfloat16"
    assert "quantization_config" not in config
    assert (config["num_hidden_layers"], config["vocab_size"]) == (30, 49152)


@pytest.mark.model
def test_weights_are_bf16_and_readable_by_any_user(folder: Path) -> None:
    weights = folder / "model.safetensors"
    assert weights.stat().st_mode & 0o444 == 0o444
    with weights.open("rb") as handle:
        (length,) = struct.unpack("<Q", handle.read(8))
        header = json.loads(handle.read(length))
    tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
    assert {entry["dtype"] for entry in tensors.values()} == {"BF16"}
    # The tied embedding is stored once: 272 tensors, no lm_head.
    assert len(tensors) == 272


@pytest.mark.model
def test_tokenizer_has_the_chat_template_and_splits_digits_off(folder: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.tokenize("a\n 1") == ["a", "ĊĠ", "1"]
    messages = [{"role": "user", "content": "Hi"}]
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
