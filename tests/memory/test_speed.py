"""Predicted speed: the worked roofline, and what makes a step longer or shorter."""

from dataclasses import replace

import pytest

from pagefleet_memory import TokenDistribution, Workload, plan_serving
from pagefleet_memory.batching import batched_tokens, sequences_in_flight
from pagefleet_memory.speed import (
    decode_step_seconds,
    model_work,
    predict_speed,
    prefill_seconds,
)
from tests.memory.memory_builders import (
    DEEPSEEK_V3,
    GIB,
    LLAMA_3_8B,
    LLAMA_3_70B,
    cpus,
    gpu,
    gpus,
    limits,
    shape,
)

_WORK_8B = model_work(shape(LLAMA_3_8B))


def _step(name: str = "H100", *, batch: int = 64, context: int = 2048, **changes: object) -> float:
    return decode_step_seconds(
        _WORK_8B, gpu(name), limits(**changes), batch=batch, context_tokens=context
    )


def test_step_of_an_8b_on_an_h100_reads_weights_and_cache() -> None:
    """15.0 GB of layers and head and 64 x 2048 x 131,072 B at 0.8 x 3350 GB/s: 12.0 ms; and 1.2 ms
    to launch twelve kernels in each of 32 layers."""
    read = (2 * (8_030_261_248 - 128256 * 4096) + 64 * 2048 * 131_072) / (0.8 * 3350e9)
    assert _step() == pytest.approx(read + 32 * 12 * 3e-6)
    assert 0.0120 < read < 0.0121


def test_more_requests_more_context_and_slower_cards_take_longer() -> None:
    assert _step(batch=65) > _step()
    assert _step(context=4096) > _step()
    assert _step("L4") > _step("A100-80") > _step()
    assert _step(enforce_eager=True) > _step()


def test_an_8_bit_cache_halves_the_part_of_the_cache() -> None:
    saved = _step() - _step(kv_cache_dtype="int8")
    cache = 64 * 2048 * 131_072 / (0.8 * 3350e9)
    assert saved == pytest.approx(cache * (1 - 132 / 256))


def test_tensor_ranks_share_the_work_and_pay_for_the_link() -> None:
    one, two = _step(), _step(tensor_parallel_size=2)
    assert one / 2 < two < one
    assert _step("L4", tensor_parallel_size=2) > _step("L4") / 2


def test_stages_work_one_after_the_other() -> None:
    assert _step(pipeline_parallel_size=4) == _step()


def test_a_latent_cache_is_read_whole_by_every_rank() -> None:
    def read(context: int) -> float:
        settings = limits(tensor_parallel_size=8)
        return decode_step_seconds(
            model_work(shape(DEEPSEEK_V3)), gpu("H100"), settings, batch=1, context_tokens=context
        )

    assert read(10_000) - read(0) == pytest.approx(10_000 * 70_272 / (0.8 * 3350e9))


def test_few_requests_read_few_experts() -> None:
    model = shape(DEEPSEEK_V3)

    def step(batch: int) -> float:
        return decode_step_seconds(
            model_work(model), gpu("H100"), limits(), batch=batch, context_tokens=0
        )

    assert step(1) < step(64) / 5
    everything = model.weight_bytes("bfloat16") / (0.8 * 3350e9)
    assert step(2000) == pytest.approx(everything, rel=0.02)


def test_a_window_bounds_what_its_layers_read() -> None:
    config = {**LLAMA_3_8B, "model_type": "mistral", "sliding_window": 1024}

    def step(context: int) -> float:
        return decode_step_seconds(
            model_work(shape(config)), gpu("H100"), limits(), batch=8, context_tokens=context
        )

    assert step(1024) == step(100_000) > step(512)


def test_prefill_is_arithmetic_and_grows_with_the_square() -> None:
    def prefill(tokens: int) -> float:
        return prefill_seconds(_WORK_8B, gpu("H100"), limits(), tokens=tokens)

    linear = 2 * (8_030_261_248 - 128256 * 4096) * 2048
    square = 2 * 32 * 32 * 128 * 2048**2
    assert prefill(2048) == pytest.approx((linear + square) / (0.5 * 989e12) + 32 * 12 * 3e-6)
    assert prefill(16384) > 8 * prefill(2048)


def test_an_unknown_card_has_no_prediction() -> None:
    plan = plan_serving(shape(LLAMA_3_8B), Workload(max_model_len=4096), [cpus(64 * GIB)]).chosen
    assert plan is not None and plan.speed is None
    unknown = replace(gpu("H100"), bf16_tflops=None)
    found = predict_speed(_WORK_8B, unknown, limits(), batch=1, context_tokens=1, prompt_tokens=1)
    assert found is None


def test_a_plan_predicts_its_full_batch() -> None:
    plan = plan_serving(shape(LLAMA_3_8B), Workload(max_model_len=4096), [gpus("L4", 1)]).chosen
    assert plan is not None and plan.speed is not None
    expected = plan.limits.max_num_seqs / plan.speed.step_seconds
    assert plan.speed.decode_tokens_per_second == pytest.approx(expected)
    assert 2_000 < plan.speed.prefill_tokens_per_second < 5_000


@pytest.mark.parametrize(
    ("computed", "tokens"),
    [(None, 2048), (0, 512), (700, 512), (1023, 512), (1024, 1024), (5000, 4096), (10**6, 8192)],
)
def test_a_step_is_a_power_of_two_within_bounds(computed: int | None, tokens: int) -> None:
    assert batched_tokens(computed) == tokens


def test_faster_cards_take_larger_steps() -> None:
    def step(name: str, config: dict[str, object]) -> int:
        workload = Workload(max_model_len=4096)
        plan = plan_serving(shape(config), workload, [gpus(name, 8)]).chosen
        assert plan is not None
        return plan.limits.max_num_batched_tokens

    assert [step(name, LLAMA_3_8B) for name in ("L4", "A100-40", "H100")] == [512, 2048, 4096]
    assert step("H100", LLAMA_3_70B) == 1024


def test_littles_law_counts_prefill_and_answer() -> None:
    workload = Workload(output_tokens=TokenDistribution(100, 100))

    def running(rate: float, step: float) -> int:
        return sequences_in_flight(rate, workload, prefill=1.0, step=lambda _: step, most=256)

    assert running(2.0, 0.01) == 5  # 1.2 x 2 x (1 + 100 x 0.01)
    assert running(0.01, 0.01) == 1
    assert running(1000.0, 0.01) == 256
    slower = sequences_in_flight(
        2.0, workload, prefill=1.0, step=lambda batch: 0.01 + 0.0005 * batch, most=256
    )
    assert slower == 6  # what six take to decode is sustained by six
