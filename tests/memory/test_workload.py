"""What a workload does to a plan: concurrency, lengths, shared prefixes, and refused figures."""

import re
from dataclasses import replace
from typing import Any

import pytest

from pagefleet_memory import (
    LimitError,
    NodeGroup,
    Pins,
    PlanResult,
    TokenDistribution,
    Workload,
    accelerator_from_labels,
    plan_serving,
)
from pagefleet_memory.batching import context_load
from tests.memory.memory_builders import LLAMA_3_8B, LLAMA_3_70B, gpu, gpus, limits, shape


def _plan(pins: Pins | None = None, per_node: int = 8, **workload: Any) -> PlanResult:
    asked = Workload(**{"max_model_len": 8192, **workload})
    return plan_serving(shape(LLAMA_3_8B), asked, [gpus("L4", per_node)], pins)


def test_the_fewest_gpus_that_hold_the_concurrency_are_chosen() -> None:
    plans = [_plan(concurrency=concurrency).chosen for concurrency in (8, 30, 200)]
    assert [plan.gpus_per_replica for plan in plans if plan] == [1, 2, 4]
    for plan, concurrency in zip(plans, (8, 30, 200), strict=True):
        assert plan is not None and plan.limits.max_num_seqs >= concurrency


def test_what_holds_too_few_is_passed_over_by_name() -> None:
    result = _plan(concurrency=30)
    lacking = [item for item in result.rejected if item.option.endswith("(TP=1, PP=1)")]
    assert len(lacking) == 1 and lacking[0].reason == "NotPreferred"
    assert re.fullmatch(r"fits, but holds 1\d of the 30 concurrent requests", lacking[0].message)


def test_where_none_holds_it_the_fullest_is_planned_and_says_so() -> None:
    chosen = _plan(concurrency=200, per_node=2).chosen
    assert chosen is not None and chosen.gpus_per_replica == 2
    held = chosen.limits.max_num_seqs
    assert 60 < held < 200
    assert f"runs {held} of the 200 concurrent requests" in " ".join(chosen.notes)
    assert chosen.limits.tensor_parallel_size == 2


def test_pinned_slots_bound_what_the_workload_can_want() -> None:
    chosen = _plan(Pins(max_num_seqs=8), concurrency=200).chosen
    assert chosen is not None and chosen.gpus_per_replica == 1


def test_a_concurrency_beyond_any_batch_is_cut_and_said() -> None:
    short = TokenDistribution(10, 10)
    chosen = _plan(concurrency=10**6, input_tokens=short, output_tokens=short).chosen
    assert chosen is not None and chosen.limits.max_num_seqs == 1024
    assert "runs 1024 of the 1000000 concurrent requests" in " ".join(chosen.notes)


def test_slots_are_as_many_as_the_pool_holds_and_not_one_more() -> None:
    """A slot more would need more tokens than the pool it leaves has."""
    chosen = _plan(per_node=1).chosen
    assert chosen is not None
    load = context_load(Workload(max_model_len=8192), 8192)
    seqs = chosen.limits.max_num_seqs
    assert load.tokens_for(seqs, 16) <= chosen.kv_tokens < load.tokens_for(seqs + 1, 16)


def test_sequences_are_the_inverse_of_tokens() -> None:
    load = context_load(Workload(shared_prefix_tokens=500), 8192)
    for sequences in (1, 7, 100):
        tokens = int(load.tokens_for(sequences, 16)) + 1
        assert load.sequences_for(tokens, 16) == sequences


def test_a_shared_prefix_is_held_once() -> None:
    lengths = TokenDistribution(3000, 4000)
    whole = context_load(Workload(input_tokens=lengths), 8192)
    shared = context_load(Workload(input_tokens=lengths, shared_prefix_tokens=2000), 8192)
    saved = whole.tokens_for(10, 16) - shared.tokens_for(10, 16)
    assert saved == pytest.approx(9 * 2000)
    most = context_load(Workload(input_tokens=lengths, shared_prefix_tokens=10**6), 8192)
    assert most.mean >= 1 and most.shared < 8192
    short = context_load(Workload(input_tokens=lengths, shared_prefix_tokens=2000), 2100)
    assert (short.shared, short.mean) == (2000, 100), "no request outgrows the context length"


def test_an_open_length_leaves_room_for_more_than_one_request() -> None:
    chosen = plan_serving(shape(LLAMA_3_8B), Workload(), [gpus("L4", 1)]).chosen
    assert chosen is not None
    assert chosen.limits.max_num_seqs > 8
    assert chosen.limits.max_model_len <= chosen.kv_tokens


def test_a_mig_slice_is_planned_alone_and_never_joined() -> None:
    part = accelerator_from_labels("NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", 40_320)
    group = NodeGroup("slices", part, 16, 4)
    small = plan_serving(shape(LLAMA_3_8B), Workload(max_model_len=8192), [group])
    assert small.chosen is not None and small.chosen.gpus_per_replica == 1
    large = plan_serving(shape(LLAMA_3_70B), Workload(max_model_len=8192), [group])
    assert large.refusal is not None
    assert [item.option for item in large.rejected] == [f"slices: 1x {part.name} (TP=1, PP=1)"]
    pinned = plan_serving(
        shape(LLAMA_3_8B), Workload(), [group], Pins(tensor_parallel_size=2)
    ).refusal
    assert pinned is not None and pinned.reason == "InvalidPin"


def test_every_option_that_was_looked_at_is_in_the_result() -> None:
    result = plan_serving(
        shape(LLAMA_3_70B), Workload(max_model_len=8192), [gpus("L4", 8, 2), gpus("A100-40", 8)]
    )
    options = [item.option for item in result.rejected]
    assert len(options) == len(set(options)) > 10
    assert all(item.message for item in result.rejected)
    short = [item for item in result.rejected if item.reason == "DoesNotFit"]
    assert short and all((item.short_by_bytes or 0) > 0 for item in short)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Workload(max_model_len=-1), "max_model_len"),
        (lambda: Workload(concurrency=0), "concurrency"),
        (lambda: Workload(request_rate=-0.5), "request_rate"),
        (lambda: Workload(shared_prefix_tokens=-1), "shared_prefix_tokens"),
        (lambda: Workload(max_model_len=9, shared_prefix_tokens=9), "shared_prefix_tokens"),
        (lambda: TokenDistribution(0, 10), "p50"),
        (lambda: TokenDistribution(10, 9), "p95"),
        (lambda: Pins(max_num_seqs=-4), "max_num_seqs"),
        (lambda: Pins(gpu_memory_utilization=-0.1), "gpu_memory_utilization"),
        (lambda: Pins(swap_space_bytes=-1), "swap_space_bytes"),
        (lambda: NodeGroup("g", gpu("L4"), 0, 1), "accelerators_per_node"),
        (lambda: NodeGroup("g", gpu("L4"), 8, -2), "nodes"),
        (lambda: replace(limits(), max_num_batched_tokens=-1), "max_num_batched_tokens"),
    ],
)
def test_a_figure_out_of_range_is_refused_by_its_field(make: Any, field: str) -> None:
    with pytest.raises(LimitError) as caught:
        make()
    assert caught.value.field == field
