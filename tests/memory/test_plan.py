"""The plan search: what is chosen, why others are not, what a refusal says."""

import itertools
from unittest import mock

import pytest

from pagefleet_memory import (
    NodeGroup,
    Pins,
    PlanResult,
    TokenDistribution,
    Workload,
    accelerator_from_labels,
    blocks_for_tokens,
    kv_block_bytes,
    plan_serving,
)
from pagefleet_memory.ledger import fixed_terms
from tests.memory.memory_builders import (
    GIB,
    LLAMA_3_8B,
    LLAMA_3_70B,
    MIB,
    SMOLLM2_135M,
    cpus,
    gpu,
    gpus,
    shape,
)

EVERYTHING = [gpus("L4", 1, 4), gpus("A100-40", 8, 2), gpus("H100", 8, 2)]


def test_the_fewest_gpus_that_fit_are_chosen() -> None:
    result = plan_serving(shape(LLAMA_3_70B), Workload(max_model_len=8192), EVERYTHING)
    assert result.chosen is not None
    assert (result.chosen.group, result.chosen.gpus_per_replica) == ("h100", 2)
    assert result.chosen.limits.tensor_parallel_size == 2
    assert result.chosen.pods_per_replica == 1


def test_equal_counts_go_to_more_kv_tokens() -> None:
    result = plan_serving(shape(LLAMA_3_8B), Workload(max_model_len=8192), EVERYTHING)
    assert result.chosen is not None
    assert (result.chosen.group, result.chosen.gpus_per_replica) == ("h100", 1)


def test_what_was_not_chosen_is_explained_with_its_shortfall() -> None:
    result = plan_serving(shape(LLAMA_3_70B), Workload(max_model_len=8192), EVERYTHING)
    reasons = {rejection.reason for rejection in result.rejected}
    assert reasons == {"DoesNotFit", "NotPreferred"}
    one_h100 = next(r for r in result.rejected if r.option.startswith("h100: 1x"))
    assert one_h100.short_by_bytes is not None
    assert 50 * GIB < one_h100.short_by_bytes < 70 * GIB
    assert "short by" in one_h100.message
    assert len(result.rejected) <= 16


def test_a_replica_spans_nodes_by_pipeline_stages() -> None:
    result = plan_serving(shape(LLAMA_3_70B), Workload(max_model_len=8192), [gpus("A100-40", 2, 4)])
    assert result.chosen is not None
    limits = result.chosen.limits
    assert (limits.tensor_parallel_size, limits.pipeline_parallel_size) == (2, 2)
    assert result.chosen.pods_per_replica == 2
    assert len(result.chosen.stages) == 2


def test_a_plan_never_exceeds_its_own_budget() -> None:
    for tokens, group in itertools.product((2048, 8192, 32768), EVERYTHING):
        chosen = plan_serving(shape(LLAMA_3_70B), Workload(max_model_len=tokens), [group]).chosen
        if chosen is None:
            continue
        for ledger in chosen.stages:
            block = kv_block_bytes(shape(LLAMA_3_70B), chosen.limits, stage=ledger.stage)
            assert chosen.num_kv_blocks * block <= ledger.kv_pool_bytes
            assert sum(term.bytes for term in ledger.terms) == ledger.budget_bytes
            assert ledger.budget_bytes <= chosen.accelerator.memory_bytes


def test_one_block_decides_between_a_plan_and_a_refusal() -> None:
    model = shape(LLAMA_3_8B)
    pins = Pins(gpu_memory_utilization=0.9, max_num_seqs=8, enforce_eager=True)
    longest = _longest_that_fits(model_len_pins=pins)
    fits = plan_serving(model, Workload(max_model_len=longest), [gpus("L4", 1)], pins)
    assert fits.chosen is not None
    assert fits.chosen.num_kv_blocks >= blocks_for_tokens(model, fits.chosen.limits, longest)
    over = plan_serving(model, Workload(max_model_len=longest + 16), [gpus("L4", 1)], pins)
    assert over.chosen is None
    assert over.refusal is not None
    assert over.refusal.reason == "DoesNotFit"
    assert over.rejected[0].short_by_bytes is not None
    longer = kv_block_bytes(model, fits.chosen.limits) + 16 * 300  # a block, and its rotary rows
    assert 0 < over.rejected[0].short_by_bytes <= longer
    assert f"maxModelLen {longest} fits" in over.refusal.nearest


def _longest_that_fits(*, model_len_pins: Pins) -> int:
    low, high = 1, 131072 // 16
    while low < high:
        middle = (low + high + 1) // 2
        workload = Workload(max_model_len=16 * middle)
        found = plan_serving(shape(LLAMA_3_8B), workload, [gpus("L4", 1)], model_len_pins)
        low, high = (middle, high) if found.chosen else (low, middle - 1)
    return 16 * low


def test_a_refusal_names_numbers_and_what_would_fit() -> None:
    result = plan_serving(shape(LLAMA_3_70B), Workload(max_model_len=8192), [gpus("L4", 1, 2)])
    assert result.refusal is not None
    assert "weights" in result.refusal.message and "GiB usable" in result.refusal.message
    assert "8x NVIDIA-L4 (TP=8, PP=1) fits" in result.refusal.nearest
    assert "1x NVIDIA-H200 (TP=1, PP=1) fits" in result.refusal.nearest


def test_an_empty_inventory_is_refused() -> None:
    refusal = plan_serving(shape(LLAMA_3_8B), Workload(), []).refusal
    assert refusal is not None and refusal.reason == "NoAccelerator"


def test_products_restrict_the_search() -> None:
    pins = Pins(products=("L4",))
    result = plan_serving(shape(LLAMA_3_8B), Workload(), EVERYTHING, pins)
    assert result.chosen is not None and result.chosen.group == "l4"
    missing = plan_serving(shape(LLAMA_3_8B), Workload(), EVERYTHING, Pins(products=("B200",)))
    assert missing.refusal is not None and missing.refusal.reason == "NoAccelerator"
    assert "NVIDIA-L4" in missing.refusal.message
    assert (
        "products left out: 1x NVIDIA-A100-SXM4-40GB (TP=1, PP=1) fits" in missing.refusal.nearest
    )


@pytest.mark.parametrize(
    ("pins", "named"),
    [
        (Pins(tensor_parallel_size=3), "32 attention heads"),
        (Pins(pipeline_parallel_size=33), "32 layers"),
        (Pins(max_model_len=200_000), "131072 positions"),
        (Pins(max_num_seqs=512, max_num_batched_tokens=256), "max_num_seqs"),
        (Pins(tensor_parallel_size=16), "no node group"),
        (Pins(max_gpus=1, tensor_parallel_size=2), "no node group"),
    ],
)
def test_an_impossible_pin_is_refused(pins: Pins, named: str) -> None:
    refusal = plan_serving(shape(LLAMA_3_8B), Workload(), EVERYTHING, pins).refusal
    assert refusal is not None
    assert refusal.reason == "InvalidPin"
    assert named in refusal.message


def test_pinned_values_are_kept() -> None:
    pins = Pins(
        dtype="float16",
        kv_cache_dtype="int8",
        block_size=32,
        max_num_seqs=7,
        max_num_batched_tokens=1024,
        tensor_parallel_size=4,
        gpu_memory_utilization=0.8,
        swap_space_bytes=GIB,
        enforce_eager=True,
    )
    chosen = plan_serving(shape(LLAMA_3_8B), Workload(max_model_len=4096), EVERYTHING, pins).chosen
    assert chosen is not None
    for name in ("dtype", "kv_cache_dtype", "block_size", "max_num_seqs", "enforce_eager"):
        assert getattr(chosen.limits, name) == getattr(pins, name)
    assert chosen.limits.max_num_batched_tokens == 1024
    assert chosen.limits.tensor_parallel_size == 4
    assert chosen.limits.gpu_memory_utilization == 0.8
    assert chosen.stages[0].term("graphs").bytes == 0
    assert chosen.limits.swap_space_bytes == GIB


def test_bfloat16_pinned_on_a_card_without_it_is_rejected() -> None:
    result = plan_serving(
        shape(LLAMA_3_8B, num_hidden_layers=8), Workload(), [gpus("T4", 1)], Pins(dtype="bfloat16")
    )
    assert result.rejected[0].reason == "InvalidPin"
    assert result.refusal is not None and "float16" in result.refusal.message


def test_fp8_cache_pinned_on_a_card_without_it_is_rejected_and_another_card_taken() -> None:
    model, workload = shape(LLAMA_3_8B), Workload(max_model_len=4096)
    pins = Pins(kv_cache_dtype="fp8_e4m3")
    alone = plan_serving(model, workload, [gpus("A100-80", 1)], pins)
    assert alone.refusal is not None and alone.refusal.reason == "InvalidPin"
    assert "use int8 or auto" in alone.refusal.message
    both = plan_serving(model, workload, [gpus("A100-80", 1), gpus("L4", 1)], pins)
    assert both.chosen is not None and both.chosen.accelerator.name.endswith("L4")
    short = plan_serving(shape(LLAMA_3_70B), workload, [gpus("A100-80", 1), gpus("L4", 1)], pins)
    assert short.refusal is not None and short.refusal.reason == "DoesNotFit"


def test_a_tail_of_long_contexts_lowers_max_num_seqs() -> None:
    def slots(p95: int) -> int:
        workload = Workload(max_model_len=16384, input_tokens=TokenDistribution(1000, p95))
        chosen = plan_serving(shape(LLAMA_3_8B), workload, [gpus("L4", 1)]).chosen
        assert chosen is not None
        return chosen.limits.max_num_seqs

    assert slots(1000) > slots(4000) > slots(12000) >= 1


def test_stated_concurrency_bounds_max_num_seqs() -> None:
    workload = Workload(max_model_len=4096, concurrency=10)
    chosen = plan_serving(shape(LLAMA_3_8B), workload, [gpus("H100", 1)]).chosen
    assert chosen is not None and chosen.limits.max_num_seqs == 12


def test_a_low_request_rate_needs_few_slots() -> None:
    def slots(rate: float) -> int:
        workload = Workload(max_model_len=4096, request_rate=rate)
        chosen = plan_serving(shape(LLAMA_3_8B), workload, [gpus("H100", 1)]).chosen
        assert chosen is not None
        return chosen.limits.max_num_seqs

    assert 1 <= slots(0.5) < slots(5) < slots(500) == 256


def test_min_kv_tokens_is_a_hard_floor() -> None:
    workload = Workload(max_model_len=4096)
    fits = plan_serving(shape(LLAMA_3_8B), workload, [gpus("L4", 1)], Pins(min_kv_tokens=30_000))
    assert fits.chosen is not None and fits.chosen.kv_tokens >= 30_000
    over = plan_serving(shape(LLAMA_3_8B), workload, [gpus("L4", 1)], Pins(min_kv_tokens=60_000))
    assert over.refusal is not None and "60000 tokens" in over.refusal.message


@pytest.mark.parametrize(
    ("section", "note"),
    [
        ({"quant_method": "awq", "group_size": 128}, None),
        ({"quant_method": "bitsandbytes"}, "does not read bitsandbytes weights"),
        ({"quant_method": "gptq", "desc_act": True}, "does not read gptq desc_act true weights"),
    ],
)
def test_a_plan_says_which_weights_the_engine_does_not_read(
    section: dict[str, object], note: str | None
) -> None:
    model = shape(LLAMA_3_70B, quantization_config=section)
    chosen = plan_serving(model, Workload(max_model_len=4096), [gpus("L4", 8)]).chosen
    assert chosen is not None and chosen.gpus_per_replica > 1
    notes = [each for each in chosen.notes if "weights" in each]
    assert notes == ([f"this version of the engine {note}"] if note else [])


def test_an_unstated_length_is_the_models_own_or_what_fits() -> None:
    on_h100 = plan_serving(shape(LLAMA_3_8B), Workload(), [gpus("H100", 1)]).chosen
    on_l4 = plan_serving(shape(LLAMA_3_8B), Workload(), [gpus("L4", 1)]).chosen
    assert on_h100 is not None and on_h100.limits.max_model_len == 131072
    assert on_l4 is not None and 4096 < on_l4.limits.max_model_len < 131072
    assert on_l4.limits.max_model_len <= on_l4.kv_tokens
    assert any("maxModelLen" in note for note in on_l4.notes)


def test_cpu_takes_the_smallest_memory_limit_that_serves_the_workload() -> None:
    few = _cpu_plan(Workload(max_model_len=2048, concurrency=1))
    many = _cpu_plan(Workload(max_model_len=2048, concurrency=16))
    assert few.chosen is not None and many.chosen is not None
    assert few.chosen.device_memory_bytes < many.chosen.device_memory_bytes < 8 * GIB
    assert few.chosen.device_memory_bytes % (64 * MIB) == 0
    assert few.chosen.host_memory_bytes == few.chosen.device_memory_bytes
    assert few.chosen.limits.dtype == "float32"
    assert few.chosen.limits.enforce_eager
    assert few.chosen.gpus_per_replica == 0


def test_a_stated_cpu_memory_limit_is_used_whole_or_refused_with_what_fits() -> None:
    roomy = _cpu_plan(Workload(max_model_len=2048), Pins(device_memory_bytes=3 * GIB))
    assert roomy.chosen is not None and roomy.chosen.device_memory_bytes == 3 * GIB
    tight = _cpu_plan(Workload(max_model_len=8192), Pins(device_memory_bytes=GIB))
    assert tight.refusal is not None
    assert any(change.startswith("memory ") for change in tight.refusal.nearest)
    beyond = _cpu_plan(Workload(), Pins(device_memory_bytes=9 * GIB))
    assert beyond.refusal is not None and beyond.refusal.reason == "InvalidPin"


def _cpu_plan(workload: Workload, pins: Pins | None = None) -> PlanResult:
    return plan_serving(shape(SMOLLM2_135M), workload, [cpus(8 * GIB)], pins)


def test_objectives_change_the_choice() -> None:
    model, workload = shape(LLAMA_3_8B), Workload(max_model_len=8192)
    fewest = plan_serving(model, workload, EVERYTHING).chosen
    fastest = plan_serving(model, workload, EVERYTHING, objective="Latency").chosen
    cheapest = plan_serving(model, workload, EVERYTHING, objective="Throughput").chosen
    assert fewest is not None and fastest is not None and cheapest is not None
    assert fewest.gpus_per_replica == 1
    assert (fastest.group, fastest.limits.tensor_parallel_size) == ("h100", 8)
    assert cheapest.group == "h100"


def test_the_order_of_groups_does_not_matter() -> None:
    results = [
        plan_serving(shape(LLAMA_3_70B), Workload(max_model_len=8192), list(order))
        for order in itertools.permutations(EVERYTHING)
    ]
    assert all(result == results[0] for result in results)


def test_a_search_over_many_groups_computes_each_size_once() -> None:
    """Fifty products of different memory share the sizes of their options."""
    groups = [
        NodeGroup(f"g{i}", accelerator_from_labels(f"NVIDIA-X{i}", 40960 + i), 8, 4, True)
        for i in range(50)
    ]
    with mock.patch("pagefleet_memory.demand.fixed_terms", wraps=fixed_terms) as counted:
        assert plan_serving(shape(LLAMA_3_70B), Workload(max_model_len=4096), groups).chosen
    assert counted.call_count < 60


def test_host_needs_of_a_gpu_pod() -> None:
    chosen = plan_serving(shape(LLAMA_3_70B), Workload(max_model_len=8192), EVERYTHING).chosen
    assert chosen is not None
    assert chosen.shm_bytes > GIB
    assert chosen.host_memory_bytes > 8 * GIB
    assert 120 < chosen.startup_seconds < 3600
    assert chosen.device_memory_bytes == gpu("H100").memory_bytes
