"""Tiny random models of several families, and engines that run them in one or several ranks."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.llm import LLM, Completion
from pagefleet_engine.request import SamplingParams

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 150,  # not a multiple of what it is padded to
    "max_position_embeddings": 128,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
}

# A shared beginning for the prefix cache, several lengths for the chunks.
PROMPTS = [[5 + i * 7 % 140 for i in range(length)] for length in (1, 3, 19, 41)]


def save_model(folder: Path, family: str, **extra: Any) -> Path:
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**SMALL, **extra})
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)
    return folder


@contextmanager
def open_llm(folder: Path, *, tensor: int = 1, stages: int = 1, **settings: Any) -> Iterator[LLM]:
    """An engine in this process; its other ranks end with the block."""
    defaults: dict[str, Any] = {
        "device": "cpu",
        "dtype": "float32",
        "block_size": 8,
        "max_num_batched_tokens": 16,
        "device_memory_bytes": 8 << 30,
        "num_gpu_blocks_override": 64,
    }
    llm = LLM.from_config(
        EngineConfig(
            model=str(folder),
            tensor_parallel_size=tensor,
            pipeline_parallel_size=stages,
            **{**defaults, **settings},
        )
    )
    try:
        yield llm
    finally:
        llm.close()


def generate(llm: LLM, prompts: list[list[int]] = PROMPTS, tokens: int = 8) -> list[Completion]:
    sampling = SamplingParams(temperature=0, max_tokens=tokens, logprobs=1, ignore_eos=True)
    return llm.generate(prompts, sampling)


def assert_same(found: list[Completion], expected: list[Completion]) -> None:
    """The same tokens, and log-probabilities equal up to another order of summation."""
    assert [each.error for each in found] == [None] * len(expected)
    assert [each.token_ids for each in found] == [each.token_ids for each in expected]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(
            torch.tensor([each.logprob for each in one.logprobs]),
            torch.tensor([each.logprob for each in other.logprobs]),
            atol=2e-4,
            rtol=2e-4,
        )
