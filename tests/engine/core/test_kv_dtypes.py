"""KV cache dtypes through the whole engine: size, chunks, shared prefixes, preemption, quality.

Covered: every dtype on a tiny model; on SmolLM2 (marked) how often a quantized cache changes the
most probable next token. Left out: CUDA.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.engine_core import EngineCore
from pagefleet_engine.errors import ConfigError
from pagefleet_engine.limits import resolve_limits
from pagefleet_engine.llm import LLM
from pagefleet_engine.model_runner import ModelRunner
from pagefleet_engine.request import SamplingParams
from pagefleet_engine.startup import build_engine_core
from pagefleet_kernels import AttentionMetadata
from pagefleet_memory import (
    KV_CACHE_DTYPES,
    EngineLimits,
    ModelShape,
    accelerator_from_labels,
    cpu_accelerator,
    kv_block_bytes,
)
from tests.support.tiny_model import save_tiny_model

PROMPTS = [[5 + i % 60 for i in range(length)] for length in (1, 19, 30, 41)]
QUANTIZED = ("int8", "fp8_e4m3", "int8k_int4v", "int4")


def engine(folder: Path, **settings: Any) -> EngineCore:
    defaults: dict[str, Any] = {
        "device": "cpu",
        "dtype": "float32",
        "block_size": 8,
        "max_num_batched_tokens": 64,
        "device_memory_bytes": 4 << 30,
        "num_gpu_blocks_override": 64,
    }
    return build_engine_core(EngineConfig(model=str(folder), **{**defaults, **settings}))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny"))


def generated(core: EngineCore) -> tuple[list[list[int]], torch.Tensor]:
    """The greedy tokens of PROMPTS, and their log-probabilities."""
    sampling = SamplingParams(temperature=0, max_tokens=8, logprobs=1, ignore_eos=True)
    completions = LLM(core).generate(PROMPTS, sampling)
    core.check_integrity()
    assert [each.error for each in completions] == [None] * len(PROMPTS)
    logprobs = [item.logprob for each in completions for item in each.logprobs]
    return [each.token_ids for each in completions], torch.tensor(logprobs)


@pytest.mark.parametrize("dtype", KV_CACHE_DTYPES)
def test_the_pool_takes_the_bytes_that_the_memory_model_counts(dtype: str, tiny: Path) -> None:
    core = engine(tiny, kv_cache_dtype=dtype)
    shape = ModelShape.from_config(json.loads((tiny / "config.json").read_text()))
    limits = EngineLimits(**core.ledger().limits)  # type: ignore[arg-type]
    assert pool_bytes(core) == 64 * kv_block_bytes(shape, limits)
    generated(core)


def pool_bytes(core: EngineCore) -> int:
    """What the cache takes, as the ledger that the operator reads has it."""
    (term,) = [term for term in core.ledger().terms if term.name == "kv_pool"]
    assert term.measured_bytes is not None
    return term.measured_bytes


@pytest.mark.parametrize(
    ("dtype", "ratio"),
    [
        ("int8", 64 * 4 / 68),
        ("fp8_e4m3", 64 * 4 / 68),
        ("int8k_int4v", 2 * 64 * 4 / (68 + 40)),
        ("int4", 64 * 4 / 40),
    ],
)
def test_a_quantized_cache_holds_that_many_times_the_tokens(dtype: str, ratio: float) -> None:
    """Against float32 with heads of 64; against bfloat16 it is half of it: 1.88, 2.37 and 3.2."""
    shape = ModelShape.from_config(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "vocab_size": 49152,
            "max_position_embeddings": 8192,
        }
    )
    plain = EngineLimits(
        dtype="float32", max_model_len=512, max_num_seqs=1, max_num_batched_tokens=64
    )
    small = replace(plain, kv_cache_dtype=dtype)
    assert kv_block_bytes(shape, plain) / kv_block_bytes(shape, small) == pytest.approx(ratio)


@pytest.mark.parametrize("dtype", QUANTIZED)
def test_chunks_prefixes_and_preemption_do_not_change_an_answer(dtype: str, tiny: Path) -> None:
    core = engine(tiny, kv_cache_dtype=dtype)
    expected, logprobs = generated(core)
    variants = {
        "warm prefix cache": core,
        "chunks of 3": engine(tiny, kv_cache_dtype=dtype, max_num_batched_tokens=3),
        "preemption": engine(tiny, kv_cache_dtype=dtype, num_gpu_blocks_override=10),
    }
    for name, variant in variants.items():
        tokens, again = generated(variant)
        assert tokens == expected, name
        # A sum in another order can move a value over a rounding boundary: one step of one code.
        torch.testing.assert_close(again, logprobs, atol=5e-3, rtol=0)
    assert core.stats().prefix_cache_hits > 0
    assert variants["preemption"].stats().preemptions_recompute > 0


@pytest.mark.parametrize("dtype", KV_CACHE_DTYPES)
def test_every_dtype_stays_near_the_computations_own(dtype: str, tiny: Path) -> None:
    first = slice(None, None, 8)  # of each answer: later ones follow from other tokens
    _, plain = generated(engine(tiny))
    _, other = generated(engine(tiny, kv_cache_dtype=dtype))
    # e4m3 rounds by up to 6 %, 4 bits a value by up to 3 % of its group's range, and random weights
    # damp nothing; a wrong cache is off by units.
    tolerance = 0.6 if "int4" in dtype else 0.2
    torch.testing.assert_close(other[first], plain[first], atol=tolerance, rtol=0)


def test_fp8_is_refused_on_a_gpu_without_it_with_what_works() -> None:
    shape = ModelShape.from_config(
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 512,
            "intermediate_size": 1024,
            "num_hidden_layers": 8,
            "num_attention_heads": 8,
            "vocab_size": 32000,
            "max_position_embeddings": 4096,
            "torch_dtype": "bfloat16",
        }
    )
    config = EngineConfig(model="/m", kv_cache_dtype="fp8_e4m3")
    a100 = accelerator_from_labels("NVIDIA-A100-SXM4-80GB", 81920)
    with pytest.raises(ConfigError, match="use int8") as caught:
        resolve_limits(config, shape=shape, accelerator=a100)
    assert (caught.value.field, caught.value.value) == ("kv_cache_dtype", "fp8_e4m3")
    for fine in (
        accelerator_from_labels("NVIDIA-H100-80GB-HBM3", 81559),
        cpu_accelerator(1 << 30, bf16=False),
    ):
        assert resolve_limits(config, shape=shape, accelerator=fine).kv_cache_dtype == "fp8_e4m3"
    int8 = replace(config, kv_cache_dtype="int8")
    assert resolve_limits(int8, shape=shape, accelerator=a100).kv_cache_dtype == "int8"


def test_a_width_that_a_dtype_cannot_store_is_refused_with_what_works(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        head_dim=6,
        max_position_embeddings=64,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="head_dim=6: int4 stores multiples of 4") as caught:
        engine(tmp_path, kv_cache_dtype="int4", max_num_batched_tokens=16)
    assert (caught.value.field, caught.value.value) == ("kv_cache_dtype", "int4")


TEXTS = [
    "The river rises in the mountains, crosses the plain and reaches the sea after a thousand "
    "miles. Along its banks people have built towns, bridges and mills for many centuries.",
    "Water boils at one hundred degrees Celsius at sea level. At higher altitudes the pressure of "
    "the air is lower, and so water boils at a lower temperature, which makes cooking slower.",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + "
    "fibonacci(n - 2)\n\nfor i in range(10):\n    print(fibonacci(i))\n",
    "Once upon a time there was a little girl who lived in a small house near the forest. Every "
    "morning she walked to the village to buy bread, and every evening she read a book.",
    "The first president of the United States was George Washington. The second was John Adams, "
    "and the third was Thomas Jefferson. Abraham Lincoln was the sixteenth president.",
    "To make pancakes, mix two cups of flour with two eggs, a pinch of salt and a cup of milk. "
    "Heat some butter in a pan, pour in the batter and turn it when the edges are golden.",
]


@pytest.fixture(scope="module")
def smollm2() -> Path:
    from e2e.model import model_folder

    return model_folder()


@pytest.fixture(scope="module")
def teacher_forced(smollm2: Path) -> Callable[[str], torch.Tensor]:
    """The most probable next token after each token of TEXTS, for a cache dtype."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    texts = [tokenizer(text)["input_ids"] for text in TEXTS]

    def predict(dtype: str) -> torch.Tensor:
        core = engine(smollm2, kv_cache_dtype=dtype, block_size=16, max_model_len=256)
        runner = core._executor
        assert isinstance(runner, ModelRunner)
        return torch.cat([next_tokens(runner, ids) for ids in texts])

    return predict


@torch.inference_mode()
def next_tokens(runner: ModelRunner, token_ids: list[int]) -> torch.Tensor:
    """One prefill through the paged cache, with logits of every row."""
    positions = torch.arange(len(token_ids))
    runner.layers.begin(
        AttentionMetadata(
            query_starts=(0, len(token_ids)),
            seq_lens=(len(token_ids),),
            block_tables=torch.arange(-(-len(token_ids) // 16))[None],
            slot_mapping=positions,
        )
    )
    return runner._forward(torch.tensor(token_ids), positions, positions).argmax(dim=-1)


@pytest.mark.model
@pytest.mark.parametrize(
    ("dtype", "least"), [("int8", 0.95), ("fp8_e4m3", 0.9), ("int8k_int4v", 0.9)]
)
def test_a_pretrained_models_most_probable_tokens_survive(
    dtype: str, least: float, teacher_forced: Callable[[str], torch.Tensor]
) -> None:
    plain, other = teacher_forced("auto"), teacher_forced(dtype)
    assert len(plain) > 180
    assert (plain == other).double().mean() >= least
