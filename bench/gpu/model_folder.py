"""A model folder with Llama-3-8B's shape and random weights, for runs without a download."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FULL_LAYERS = 32
FEW_LAYERS = 4
BYTES_OF_LAYER = 436_224_000  # in bf16
BYTES_OF_EMBEDDINGS = 2_101_346_304
MEMORY = "/dev/shm"
SPARE = 1.5  # of the weights: both copies while the file is written, and the rest of the process


def needed_bytes(layers: int) -> float:
    """Of the device and of the folder, for a model of so many layers in bf16."""
    return SPARE * (layers * BYTES_OF_LAYER + BYTES_OF_EMBEDDINGS)


@contextmanager
def random_llama(layers: int) -> Iterator[Path]:
    """Written from the GPU, to where temporary files go."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
        max_position_embeddings=8192,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        bos_token_id=128000,
        eos_token_id=128001,
    )
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("cuda"):
            model = LlamaForCausalLM(config)
        torch.set_default_dtype(torch.float32)
        model.to(torch.bfloat16).save_pretrained(folder)
        del model
        torch.cuda.empty_cache()
        yield Path(folder)


def roomiest_folder() -> str:
    """Memory is faster, but a container has often 64 MiB of it: where there is most room."""
    usable = [folder for folder in (MEMORY, tempfile.gettempdir()) if os.access(folder, os.W_OK)]
    return max(usable, key=free_bytes)


def free_bytes(folder: str | None = None) -> int:
    """In this folder, else where temporary files go."""
    return shutil.disk_usage(folder or tempfile.gettempdir()).free
