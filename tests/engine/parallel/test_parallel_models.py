"""Models in several ranks against the same model in one: the same tokens come out.

Collectives are gloo's, on CPU, in processes of their own as in a pod. Left out: NCCL, which needs
as many GPUs as ranks.
"""

from pathlib import Path
from typing import Any

import pytest

from pagefleet_engine.errors import ConfigError, ModelLoadError, RankError
from tests.support.parallel_engine import PROMPTS, assert_same, generate, open_llm, save_model
from tests.support.quantized_checkpoint import save_quantized
from tests.support.quantized_forms import FORMS, SIZES

QWEN2_MOE: dict[str, Any] = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
    "vocab_size": 192,  # needs no padding, so that bytes can be compared
}

CASES: list[tuple[str, dict[str, Any], int, int]] = [
    ("llama", {"tie_word_embeddings": True}, 2, 1),
    ("llama", {"num_key_value_heads": 1}, 2, 2),
    ("llama", {"num_key_value_heads": 2}, 4, 1),
    ("llama", {"tie_word_embeddings": True}, 1, 2),
    ("qwen2", {}, 2, 1),  # biases of the projections
    ("qwen3", {}, 2, 1),  # norms of queries and keys
    ("mistral", {"sliding_window": 8}, 1, 3),
    ("gemma2", {"sliding_window": 8, "query_pre_attn_scalar": 8}, 1, 2),  # a scaled embedding
    ("mixtral", {"num_local_experts": 4}, 2, 1),
]


@pytest.mark.parametrize(("family", "extra", "tensor", "stages"), CASES)
def test_ranks_together_give_the_tokens_of_one(
    family: str, extra: dict[str, Any], tensor: int, stages: int, tmp_path: Path
) -> None:
    save_model(tmp_path, family, **extra)
    with open_llm(tmp_path) as one:
        expected = generate(one)
    with open_llm(tmp_path, tensor=tensor, stages=stages) as several:
        assert_same(generate(several), expected)


def test_a_shared_expert_is_split_where_the_models_plan_leaves_it_whole(tmp_path: Path) -> None:
    save_model(tmp_path, "qwen2_moe", **QWEN2_MOE)
    with open_llm(tmp_path) as one:
        expected = generate(one)
    with open_llm(tmp_path, tensor=2) as several:
        assert_same(generate(several), expected)
        weights = next(each for each in several.core.ledger().terms if each.name == "weights")
    # Packed layers do not count their biases.
    assert weights.measured_bytes == pytest.approx(weights.predicted_bytes, rel=1e-2)


@pytest.mark.parametrize(("name", "tensor", "stages"), [("awq-32", 2, 1), ("fp8-block", 2, 2)])
def test_quantized_models_too(name: str, tensor: int, stages: int, tmp_path: Path) -> None:
    """With a vocabulary that needs no padding, the ranks hold what is predicted."""
    floats = save_model(tmp_path / "floats", "qwen2", **{**SIZES, "vocab_size": 192})
    packed = save_quantized(floats, tmp_path, FORMS[name]) / "packed"
    with open_llm(packed) as one:
        expected = generate(one)
    with open_llm(packed, tensor=tensor, stages=stages) as several:
        assert_same(generate(several), expected)
        weights = next(each for each in several.core.ledger().terms if each.name == "weights")
    assert weights.measured_bytes == pytest.approx(weights.predicted_bytes, rel=1e-3)


def test_chunks_the_prefix_cache_and_preemption_work_in_several_ranks(tmp_path: Path) -> None:
    save_model(tmp_path, "llama")
    tight: dict[str, Any] = {"num_gpu_blocks_override": 8, "max_num_batched_tokens": 5}
    with open_llm(tmp_path) as one:
        expected = generate(one, tokens=20)
    with open_llm(tmp_path, tensor=2, **tight) as several:
        assert_same(generate(several, tokens=20), expected)
        assert several.core.stats().preemptions_recompute > 0
        again = generate(several, PROMPTS[-1:], tokens=20)
        assert_same(again, expected[-1:])
        assert again[0].num_cached_tokens > 0
        several.core.check_integrity()


def test_every_rank_holds_its_share_and_the_smallest_pool_decides(tmp_path: Path) -> None:
    """4 layers in 3 stages: the stage of two layers has the largest blocks and the fewest."""
    save_model(tmp_path, "llama", num_hidden_layers=4)
    settings: dict[str, Any] = {"num_gpu_blocks_override": None, "max_num_seqs": 4}
    settings |= {"device_memory_bytes": 9 << 30, "block_size": 64}
    with open_llm(tmp_path, stages=3, **settings) as several:
        ledger = several.core.ledger()
        weights = next(term for term in ledger.terms if term.name == "weights")
        pool = next(term for term in ledger.terms if term.name == "kv_pool")
        assert weights.measured_bytes == weights.predicted_bytes
        assert pool.predicted_bytes is not None
        two_layers = 2 * 2 * (8 + 8) * 64 * 4  # layers, heads, widths, block size, fp32
        assert abs(ledger.num_blocks - pool.predicted_bytes // two_layers) < ledger.num_blocks / 10


@pytest.mark.parametrize(
    ("family", "extra", "tensor", "stages", "hint"),
    [
        (
            "llama",
            {},
            3,
            1,
            "tensor_parallel_size=3: 4 attention heads do not divide by 3; 1, 2, 4",
        ),
        ("llama", {}, 1, 5, "pipeline_parallel_size=5"),
    ],
)
def test_a_split_that_the_model_does_not_allow_is_refused_before_anything_is_loaded(
    family: str, extra: dict[str, Any], tensor: int, stages: int, hint: str, tmp_path: Path
) -> None:
    save_model(tmp_path, family, **extra)
    with pytest.raises(ConfigError, match=hint), open_llm(tmp_path, tensor=tensor, stages=stages):
        pass


def test_a_model_whose_plan_cannot_be_followed_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path, "phi3")
    with (
        pytest.raises(ConfigError, match="cannot split the matrices of phi3"),
        open_llm(tmp_path, tensor=2),
    ):
        pass


def test_weights_that_are_missing_are_named(tmp_path: Path) -> None:
    save_model(tmp_path, "llama", num_hidden_layers=2)
    config = tmp_path / "config.json"
    config.write_text(
        config.read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3')
    )
    with pytest.raises((ModelLoadError, RankError), match="model.layers.2"):
        with open_llm(tmp_path, tensor=2):
            pass


def test_a_rank_that_is_killed_ends_the_engine_with_an_error(tmp_path: Path) -> None:
    save_model(tmp_path, "llama")
    with open_llm(tmp_path, tensor=2) as several:
        generate(several, tokens=2)
        executor: Any = several.core._executor
        executor._children[0].kill()
        with pytest.raises(RankError, match="rank 1 has ended without a word"):
            generate(several, tokens=50)
