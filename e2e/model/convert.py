"""GGUF to a Hugging Face folder: config, tokenizer with chat template, bf16 safetensors."""

from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

# What the GGUF reader leaves in the config that says nothing about the model.
READER_KEYS = {"quantization_config", "_model_name_or_path", "dtype"}


def convert(gguf: Path, destination: Path) -> None:
    """Write `destination` so that any `from_pretrained` reads it without the gguf package."""
    model = _dequantized(gguf)
    model.save_pretrained(destination)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # The reader keeps GPT-2's splitting; SmolLM also splits every digit off ("\n 1").
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(destination)
    # save_pretrained leaves the weights readable by the owner alone; pods run as another user.
    for file in destination.iterdir():
        file.chmod(0o644)


def _dequantized(gguf: Path) -> LlamaForCausalLM:
    read = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    # What was read from GGUF stays marked as quantized and refuses save_pretrained, even
    # dequantized; a fresh model with a clean config does not.
    config = LlamaConfig.from_dict(
        {key: value for key, value in read.config.to_dict().items() if key not in READER_KEYS}
    )
    clean = LlamaForCausalLM(config).to(torch.bfloat16)
    clean.load_state_dict(read.state_dict())
    clean.generation_config = read.generation_config
    return clean
