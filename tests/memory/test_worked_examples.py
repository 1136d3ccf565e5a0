"""Sizing examples that are often told wrong, with the right answers."""

import pytest

from pagefleet_memory import (
    Pins,
    TokenDistribution,
    Workload,
    blocks_for_tokens,
    build_ledger,
    kv_block_bytes,
    num_kv_blocks,
    plan_serving,
)
from tests.memory.memory_builders import (
    DEEPSEEK_V3,
    GIB,
    LLAMA_2_70B,
    LLAMA_3_8B,
    LLAMA_3_70B,
    LLAMA_13B,
    gpu,
    gpus,
    limits,
    shape,
)


def test_llama_2_70b_takes_ten_gib_for_32768_tokens() -> None:
    assert 32768 * shape(LLAMA_2_70B).kv_bytes_per_token("auto") == 10_737_418_240


def test_the_multi_head_variant_takes_eight_times_that() -> None:
    multi_head = shape(LLAMA_2_70B, num_key_value_heads=64)
    assert 32768 * multi_head.kv_bytes_per_token("auto") == 8 * 10_737_418_240


def test_llama_3_70b_at_4096_tokens_takes_one_and_a_quarter_gib() -> None:
    tokens = 4096 * shape(LLAMA_3_70B).kv_bytes_per_token("bfloat16")
    assert tokens / GIB == 1.25


def test_llama_13b_at_2048_tokens_takes_1_6_gib() -> None:
    assert 2048 * shape(LLAMA_13B).kv_bytes_per_token("auto") / GIB == 1.5625


def test_int8_cache_costs_a_scale_per_row() -> None:
    bf16 = shape(LLAMA_3_8B).kv_bytes_per_token("bfloat16")
    assert shape(LLAMA_3_8B).kv_bytes_per_token("int8") * 256 == bf16 * 132
    assert shape(LLAMA_3_8B).kv_bytes_per_token("fp8_e4m3") * 256 == bf16 * 132


def test_two_a100_with_a_bf16_70b_hold_about_one_int8_request_of_32k() -> None:
    settings = limits(
        max_model_len=32768,
        max_num_seqs=1,
        kv_cache_dtype="int8",
        tensor_parallel_size=2,
        gpu_memory_utilization=0.90,
    )
    model = shape(LLAMA_3_70B)
    ledger = build_ledger(model, gpu("A100-80"), settings)
    tokens = num_kv_blocks(ledger, model, settings) * settings.block_size
    assert 0.5 < tokens / 32768 < 1.5


def test_what_holds_a_dozen_such_requests_on_the_same_pair_is_8_bit_weights() -> None:
    """67.7 GiB of weights leave 69 GiB: 13.8 full requests of int8 KV by the note's budget of
    0.90 of the memory; the derived share holds a little more."""
    quantized = shape(
        LLAMA_3_70B,
        quantization_config={
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}}},
        },
    )
    workload = Workload(max_model_len=32768)
    pair = [gpus("A100-80", 2)]
    pins = Pins(kv_cache_dtype="int8", tensor_parallel_size=2)
    chosen = plan_serving(quantized, workload, pair, pins).chosen
    assert chosen is not None and chosen.gpus_per_replica == 2
    assert 12 < chosen.max_full_length_sequences < 17
    refused = plan_serving(shape(LLAMA_3_70B), Workload(max_model_len=131072), pair).refusal
    assert refused is not None and refused.reason == "DoesNotFit"


def test_no_pair_holds_256_requests_of_32k_and_the_plan_says_how_many_it_does() -> None:
    workload = Workload(
        max_model_len=32768,
        concurrency=256,
        input_tokens=TokenDistribution(32000, 32000),
        output_tokens=TokenDistribution(700, 700),
    )
    pins = Pins(kv_cache_dtype="int8", gpu_memory_utilization=0.90)
    pair = plan_serving(shape(LLAMA_3_70B), workload, [gpus("A100-80", 2)], pins).chosen
    assert pair is not None and pair.limits.max_num_seqs == 1
    assert any("runs 1 of the 256 concurrent requests" in note for note in pair.notes)
    # 1,320 GiB of cache with scales: 18 of 80 GB beside the weights, so 24 in whole nodes.
    nodes = plan_serving(shape(LLAMA_3_70B), workload, [gpus("A100-80", 8, 4)], pins).chosen
    assert nodes is not None and nodes.gpus_per_replica == 24
    assert nodes.limits.max_num_seqs >= 256


def test_256_such_requests_need_more_than_a_tebibyte() -> None:
    per_token = shape(LLAMA_3_70B).kv_bytes_per_token("int8")
    assert 1280 * GIB < 256 * 32768 * per_token < 1330 * GIB


def test_256_requests_fit_the_quantized_pair_at_about_1700_tokens_each() -> None:
    per_token = shape(LLAMA_3_70B).kv_bytes_per_token("int8")
    tokens = 69 * GIB // per_token
    assert 420_000 < tokens < 460_000
    assert 1_600 < tokens / 256 < 1_800


def test_eight_a100_hold_dozens_of_full_bf16_requests() -> None:
    result = plan_serving(
        shape(LLAMA_3_70B),
        Workload(max_model_len=32768),
        [gpus("A100-80", 8)],
        Pins(tensor_parallel_size=8),
    )
    assert result.chosen is not None
    assert 35 < result.chosen.max_full_length_sequences < 50


@pytest.mark.parametrize(
    ("config", "expected"),
    [(LLAMA_3_8B, 131_072), (LLAMA_2_70B, 327_680), (DEEPSEEK_V3, 70_272)],
)
def test_bytes_per_token_of_known_models(config: dict[str, object], expected: int) -> None:
    assert shape(config).kv_bytes_per_token("bfloat16") == expected


def test_latent_cache_is_whole_on_every_tensor_parallel_rank() -> None:
    model = shape(DEEPSEEK_V3)
    blocks = {tp: kv_block_bytes(model, limits(tensor_parallel_size=tp)) for tp in (1, 2, 8)}
    assert set(blocks.values()) == {70_272 * 16}


def test_fewer_kv_heads_than_ranks_are_copied() -> None:
    model = shape(LLAMA_3_8B, num_key_value_heads=2)
    two = kv_block_bytes(model, limits(tensor_parallel_size=2))
    assert kv_block_bytes(model, limits(tensor_parallel_size=8)) == two


def test_blocks_round_up_to_whole_blocks() -> None:
    model, settings = shape(LLAMA_3_8B), limits()
    assert [blocks_for_tokens(model, settings, n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]
