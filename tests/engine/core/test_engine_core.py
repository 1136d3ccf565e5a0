"""The engine core around the scheduler: statistics, failures, and invariants under random use."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagefleet_engine.executor import ModelRunnerOutput, SampledToken
from pagefleet_engine.request import EngineOutput, FinishReason


def test_a_failed_step_fails_its_requests_and_not_the_engine(make_engine: Any) -> None:
    engine = make_engine(max_num_seqs=1)
    engine.add("a", [10] * 8)
    engine.add("b", [10] * 8)
    engine.executor.fail_with = RuntimeError("out of memory")
    (output,) = engine.core.step()
    assert (output.request_id, output.finish_reason) == ("a", FinishReason.ERROR)
    assert "out of memory" in (output.error or "")
    engine.executor.fail_with = None
    outputs = engine.run()["b"]
    assert outputs[-1].finish_reason is FinishReason.LENGTH
    assert outputs[0].num_cached_tokens == 0, "the content of a failed step must not be reused"


def test_a_device_that_keeps_failing_ends_the_engine(make_engine: Any) -> None:
    engine = make_engine(max_num_seqs=1)
    for name in "abc":
        engine.add(name)
    engine.executor.fail_with = RuntimeError("device lost")
    engine.core.step()
    engine.core.step()
    with pytest.raises(RuntimeError, match="device lost"):
        engine.core.step()


def test_a_row_that_cannot_be_sampled_fails_alone_and_leaves_nothing_behind(
    make_engine: Any,
) -> None:
    engine = make_engine()
    engine.add("bad", [10] * 9)
    engine.add("good", [500] * 9)
    execute = engine.executor.execute

    def spoil(output: Any) -> ModelRunnerOutput:
        sampled = dict(execute(output).sampled)
        if "bad" in sampled:
            sampled["bad"] = SampledToken(0, error="not finite")
        return ModelRunnerOutput(sampled)

    engine.executor.execute = spoil
    outputs = engine.run()
    assert outputs["bad"][-1].error == "not finite"
    assert outputs["good"][-1].finish_reason is FinishReason.LENGTH
    engine.add("again", [10] * 9)
    engine.executor.execute = execute
    assert engine.run()["again"][0].num_cached_tokens == 0


def test_token_seconds_are_the_integral_of_the_blocks_held(make_engine: Any) -> None:
    engine = make_engine(block_size=4)
    engine.add("a", 7, max_tokens=2)
    engine.core.step()  # 1 s with 2 blocks of 4 tokens
    engine.clock.now += 10  # idle between steps, the blocks are still held
    engine.core.step()  # 1 s
    engine.clock.now += 50  # nothing held
    assert engine.core.stats().kv_cache_token_seconds == pytest.approx(12 * 8)


def test_stats_after_a_mass_abort_read_zero(make_engine: Any) -> None:
    engine = make_engine(max_num_seqs=4)
    for index in range(12):
        engine.add(f"r{index}")
    engine.core.step()
    busy = engine.core.stats()
    assert (busy.num_running, busy.num_waiting) == (4, 8)
    assert busy.waiting_prompt_tokens == 64
    engine.core.abort([f"r{index}" for index in range(12)])
    idle = engine.core.stats()
    assert (idle.num_running, idle.num_waiting, idle.waiting_prompt_tokens) == (0, 0, 0)
    assert (idle.kv_used_tokens, idle.kv_cache_usage_ratio) == (0, 0.0)
    assert idle.oldest_waiting_age_seconds == 0.0


def test_usage_counts_referenced_blocks_and_not_cached_ones(make_engine: Any) -> None:
    engine = make_engine(num_blocks=16, block_size=4)
    engine.add("a", 12, max_tokens=1)
    engine.run()
    stats = engine.core.stats()
    assert (stats.blocks_used, stats.blocks_cached, stats.blocks_free) == (0, 3, 13)
    assert stats.kv_capacity_tokens == 64


def test_the_age_of_the_oldest_waiting_request_grows_with_time(make_engine: Any) -> None:
    engine = make_engine(max_num_seqs=1)
    engine.add("a")
    engine.add("b")
    engine.core.step()
    engine.clock.now += 5
    assert engine.core.stats().oldest_waiting_age_seconds == 6.0
    outputs = engine.run()
    assert outputs["b"][0].queue_seconds >= 6.0


def test_counters_reconcile_with_what_was_asked(make_engine: Any) -> None:
    engine = make_engine()
    for index in range(5):
        engine.add(f"r{index}", 8, max_tokens=3)
    engine.run()
    stats = engine.core.stats()
    assert stats.prompt_tokens == 40
    assert stats.prompt_tokens_computed == 40
    assert stats.generation_tokens == 15
    assert stats.finished[FinishReason.LENGTH] == 5
    assert sum(stats.finished.values()) == 5
    assert stats.last_step_timestamp == engine.clock.now


def test_saturated_steps_move_the_measured_prefill_rate(make_engine: Any) -> None:
    engine = make_engine(max_num_batched_tokens=8)
    engine.add("a", 8, max_tokens=1)
    engine.core.step()
    assert engine.core.stats().prefill_capacity_tokens_per_second == pytest.approx(
        1000 + 0.2 * (8 - 1000)
    )


def test_the_ledger_carries_the_peak_of_the_moment(make_engine: Any) -> None:
    engine = make_engine()
    assert engine.core.ledger() == replace(engine.core.ledger(), peak_bytes=7)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), by_priority=st.booleans(), caching=st.booleans())
def test_random_load_with_aborts_never_leaks_and_always_ends(
    make_engine: Any, seed: int, by_priority: bool, caching: bool
) -> None:
    rng = random.Random(seed)
    engine = make_engine(
        num_blocks=rng.randint(6, 40),
        block_size=rng.choice([1, 3, 4]),
        max_num_seqs=rng.randint(1, 6),
        max_num_batched_tokens=rng.randint(1, 24),
        by_priority=by_priority,
        enable_prefix_caching=caching,
    )
    longest = min(20, engine.manager.capacity_tokens - 1)
    names: list[str] = []
    finished: dict[str, FinishReason] = {}

    def note(outputs: list[EngineOutput]) -> None:
        for output in outputs:
            assert output.request_id not in finished, "an output after the last one"
            if output.finish_reason is not None:
                finished[output.request_id] = output.finish_reason

    for number in range(rng.randint(1, 25)):
        start = rng.choice([10, 20])
        names.append(f"r{number}")
        prompt = [start + index for index in range(rng.randint(1, longest))]
        engine.add(names[-1], prompt, priority=rng.randint(0, 3), max_tokens=rng.randint(1, 30))
        for _ in range(rng.randint(0, 3)):
            note(engine.core.step())
            engine.core.check_integrity()
        if rng.random() < 0.3:
            note(engine.core.abort(rng.sample(names, min(3, len(names)))))
            engine.core.check_integrity()
    for name, outputs in engine.run(max_steps=20_000).items():
        finished[name] = outputs[-1].finish_reason
    assert set(finished) == set(names)
    counts = engine.manager.pool.counts()
    assert counts.used == 0
    assert counts.cached + counts.free == engine.manager.pool.num_blocks
    assert sum(engine.core.stats().finished.values()) == len(names)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_a_request_gets_does_not_depend_on_room_budget_or_neighbours(
    make_engine: Any, seed: int
) -> None:
    rng = random.Random(seed)
    prompts = {f"r{i}": [rng.choice([10, 11]) for _ in range(rng.randint(1, 16))] for i in range(6)}

    def answers(**limits: int) -> dict[str, list[int]]:
        engine = make_engine(block_size=4, **limits)
        for name, prompt in prompts.items():
            engine.add(name, prompt, max_tokens=10)
        return {
            name: [token for output in outputs for token in output.new_token_ids]
            for name, outputs in engine.run().items()
        }

    alone = answers(max_num_seqs=1)
    assert answers(num_blocks=8, max_num_batched_tokens=rng.randint(1, 9)) == alone
