"""A real pretrained model: greedy output equals `transformers` generate token by token (fp32).

Covered: prompts one at a time and sixteen at once, cold and warm prefix cache, chunk sizes, and
a cache so small that requests are preempted. Left out: bf16, whose rounding decides ties.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.llm import LLM
from pagefleet_engine.request import SamplingParams
from pagefleet_engine.startup import build_engine_core

pytestmark = pytest.mark.model

NUM_TOKENS = 10
QUESTIONS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain what a graphics card does, in one sentence.",
    "List three colours.",
    "Who wrote Hamlet?",
    "Translate 'good morning' into Spanish.",
    "What is 7 times 8?",
    "Name a large river in Africa.",
    "Why is the sky blue?",
    "Give me a recipe for pancakes.",
    "What does HTTP stand for?",
    "Summarize: the cat sat on the mat because it was warm.",
    "Continue: once upon a time, in a small village,",
    "How many days are in a leap year?",
    "What is the opposite of cold?",
    "Tell me a short joke.",
]


@pytest.fixture(scope="module")
def folder() -> Path:
    from e2e.model import model_folder

    return model_folder()


@pytest.fixture(scope="module")
def prompts(folder: Path) -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": question}], add_generation_prompt=True
        )["input_ids"]
        for question in QUESTIONS
    ]


@pytest.fixture(scope="module")
def expected(folder: Path, prompts: list[list[int]]) -> list[list[int]]:
    """What transformers itself generates, one prompt at a time, without padding."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    answers = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=NUM_TOKENS,
            do_sample=False,
            pad_token_id=0,
        )
        answers.append(output[0, len(prompt) :].tolist())
    return answers


@pytest.fixture(scope="module")
def make_llm(folder: Path) -> Callable[..., LLM]:
    def make(*, num_blocks: int = 400, max_num_batched_tokens: int = 256) -> LLM:
        return LLM(
            build_engine_core(
                EngineConfig(
                    model=str(folder),
                    device="cpu",
                    dtype="float32",
                    max_model_len=1024,
                    max_num_batched_tokens=max_num_batched_tokens,
                    device_memory_bytes=4 << 30,
                    num_gpu_blocks_override=num_blocks,
                )
            )
        )

    return make


def answers(llm: LLM, prompts: list[list[int]]) -> list[list[int]]:
    sampling = SamplingParams(temperature=0, max_tokens=NUM_TOKENS)
    completions = llm.generate(prompts, sampling)
    llm.core.check_integrity()
    assert [each.error for each in completions] == [None] * len(prompts)
    return [each.token_ids for each in completions]


def test_cold_warm_alone_and_together_give_the_same_tokens(
    make_llm: Callable[..., LLM], prompts: list[list[int]], expected: list[list[int]]
) -> None:
    llm = make_llm()
    assert answers(llm, prompts) == expected  # sixteen at once, cold
    hits = llm.core.stats().prefix_cache_hits
    assert answers(llm, prompts) == expected  # and warm
    assert llm.core.stats().prefix_cache_hits > hits
    for prompt, answer in zip(prompts[:4], expected[:4], strict=True):
        assert answers(llm, [prompt]) == [answer]


def test_small_chunks_and_preemption_give_the_same_tokens(
    make_llm: Callable[..., LLM], prompts: list[list[int]], expected: list[list[int]]
) -> None:
    llm = make_llm(num_blocks=9, max_num_batched_tokens=48)
    assert answers(llm, prompts) == expected
    assert llm.core.stats().preemptions_recompute > 0
