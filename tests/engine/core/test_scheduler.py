"""Scheduling by example: admission, chunked prefill, sharing, preemption, priority, abort."""

from typing import Any

import pytest

from pagefleet_engine.errors import CapacityError, ContextLengthError, ParameterError
from pagefleet_engine.request import FinishReason, SamplingParams


def test_a_prompt_is_computed_in_chunks_and_its_first_token_follows_the_last(
    make_engine: Any,
) -> None:
    engine = make_engine(max_num_batched_tokens=4)
    engine.add("a", 10)
    assert engine.core.step() == []
    assert engine.core.step() == []
    (output,) = engine.core.step()
    assert [step.num_tokens for step in engine.executor.steps] == [4, 4, 2]
    assert len(output.new_token_ids) == 1


def test_decodes_share_a_step_with_a_prompt(make_engine: Any) -> None:
    engine = make_engine(max_num_batched_tokens=8)
    engine.add("a", 4)
    engine.core.step()
    engine.add("b", 20)
    engine.core.step()
    assert engine.last_step() == {"a": 1, "b": 7}


def test_a_long_prompt_in_front_never_starves_the_decodes_behind_it(make_engine: Any) -> None:
    engine = make_engine(max_num_batched_tokens=8)
    engine.add("long", 40)
    engine.add("short", 4)
    engine.core.step()
    while "short" not in engine.running:
        engine.core.step()
    engine.scheduler._preempt(engine.scheduler.running[0])  # the long one starts over, in front
    engine.manager.pool.check_integrity()
    engine.core.step()
    engine.core.step()
    assert engine.last_step().get("short") == 1


def test_seats_are_limited(make_engine: Any) -> None:
    engine = make_engine(max_num_seqs=2)
    for name in "abc":
        engine.add(name, 4)
    engine.core.step()
    assert (engine.running, engine.waiting) == (["a", "b"], ["c"])


def test_a_prompt_starts_only_when_all_of_it_fits_and_nobody_overtakes_it(make_engine: Any) -> None:
    engine = make_engine(num_blocks=8, block_size=4, max_num_batched_tokens=8)
    engine.add("a", 16, max_tokens=4)
    engine.add("big", 20)
    engine.add("small", 4)
    engine.core.step()
    engine.core.step()
    assert (engine.running, engine.waiting) == (["a"], ["big", "small"])
    outputs = engine.run()
    assert {name: outs[-1].finish_reason for name, outs in outputs.items()} == {
        "a": FinishReason.LENGTH,
        "big": FinishReason.LENGTH,
        "small": FinishReason.LENGTH,
    }


def test_a_request_that_can_never_be_served_is_refused_with_numbers(make_engine: Any) -> None:
    engine = make_engine(num_blocks=8, block_size=4, max_model_len=64)
    with pytest.raises(CapacityError, match="40 tokens.*holds 32 tokens"):
        engine.add("a", 40)
    with pytest.raises(ContextLengthError, match="64 tokens.*prompt has 60 and 8"):
        engine.add("b", 60, max_tokens=8)
    with pytest.raises(ParameterError, match="at least one token"):
        engine.add("c", [])
    with pytest.raises(ParameterError, match="between 0 and 999"):
        engine.add(
            "d",
            sampling=SamplingParams(logit_bias={1000: 1.0}),
        )
    assert not engine.core.has_work


def test_output_beyond_the_whole_cache_ends_as_length(make_engine: Any) -> None:
    engine = make_engine(num_blocks=4, block_size=4, max_model_len=64)
    engine.add("a", 10, max_tokens=50)
    outputs = engine.run()["a"]
    assert outputs[-1].finish_reason is FinishReason.LENGTH
    assert sum(len(each.new_token_ids) for each in outputs) == 16 + 1 - 10


def test_a_name_in_use_is_refused_and_free_again_afterwards(make_engine: Any) -> None:
    engine = make_engine()
    engine.add("a")
    with pytest.raises(ParameterError, match="already"):
        engine.add("a")
    engine.run()
    engine.add("a")
    engine.run()


def test_the_second_of_two_equal_prompts_reuses_all_but_the_last_block(make_engine: Any) -> None:
    engine = make_engine(block_size=4)
    prompt = list(range(10, 22))
    engine.add("a", prompt)
    first = engine.run()["a"]
    engine.add("b", prompt)
    second = engine.run()["b"]
    assert first[0].num_cached_tokens == 0
    assert second[0].num_cached_tokens == 8, "the last token's block is computed again"
    assert [each.new_token_ids for each in first] == [each.new_token_ids for each in second]


def test_requests_of_one_step_share_the_prefix_being_computed(make_engine: Any) -> None:
    engine = make_engine(block_size=4)
    prefix = list(range(10, 26))
    engine.add("a", [*prefix, 100])
    engine.add("b", [*prefix, 200])
    engine.core.step()
    assert engine.last_step() == {"a": 17, "b": 1}
    tables = [each.block_table for each in engine.scheduler.running]
    assert tables[0][:4] == tables[1][:4]
    assert engine.core.stats().blocks_used == 6


def test_salted_requests_share_with_their_own_tenant_only(make_engine: Any) -> None:
    engine = make_engine(block_size=4)
    prompt = list(range(10, 22))
    for name, salt in (("a", "one"), ("b", "one"), ("c", "two"), ("d", "")):
        engine.add(name, prompt, salt=salt)
    outputs = engine.run()
    assert {name: outs[0].num_cached_tokens for name, outs in outputs.items()} == {
        "a": 0,
        "b": 8,
        "c": 0,
        "d": 0,
    }


def test_without_prefix_caching_nothing_is_shared(make_engine: Any) -> None:
    engine = make_engine(enable_prefix_caching=False)
    for name in "ab":
        engine.add(name, list(range(10, 22)))
    outputs = engine.run()
    assert outputs["b"][0].num_cached_tokens == 0
    stats = engine.core.stats()
    assert (stats.prefix_cache_queries, stats.blocks_cached) == (0, 0)


def test_the_newest_gives_way_and_resumes_with_the_same_output(make_engine: Any) -> None:
    roomy = make_engine(num_blocks=64)
    tight = make_engine(num_blocks=10, block_size=4)
    for engine in (roomy, tight):
        engine.add("a", 14, max_tokens=16)
        engine.add("b", 14, max_tokens=16)
    expected, actual = roomy.run(), tight.run()
    stats = tight.core.stats()
    assert stats.preemptions_recompute > 0
    for name in "ab":
        assert [each.new_token_ids for each in actual[name]] == [
            each.new_token_ids for each in expected[name]
        ]
    assert stats.generation_tokens == 32


def test_the_oldest_running_is_never_preempted(make_engine: Any) -> None:
    engine = make_engine(num_blocks=12, block_size=4)
    for name in "abcd":
        engine.add(name, 10, max_tokens=24)
    victims: set[str] = set()
    while engine.core.has_work:
        oldest = engine.running[0] if engine.running else None
        engine.core.step()
        victims.update(each.request_id for each in engine.scheduler.waiting if each.num_preemptions)
        assert oldest not in engine.waiting
    assert victims
    assert "a" not in victims


def test_a_preempted_sequence_finds_its_blocks_again(make_engine: Any) -> None:
    engine = make_engine(num_blocks=10, block_size=4)
    engine.add("a", 14, max_tokens=16)
    engine.add("b", 14, max_tokens=16)
    engine.run()
    assert engine.core.stats().prefix_cache_hits > 0


def test_priority_decides_who_is_admitted_first(make_engine: Any) -> None:
    engine = make_engine(max_num_seqs=1, by_priority=True)
    engine.add("later", priority=5)
    engine.add("sooner", priority=1)
    engine.core.step()
    assert engine.running == ["sooner"]


def test_an_urgent_request_takes_a_seat_from_a_lower_priority(make_engine: Any) -> None:
    engine = make_engine(max_num_seqs=2, by_priority=True)
    engine.add("a", priority=5)
    engine.add("b", priority=5)
    engine.core.step()
    engine.add("urgent", priority=1)
    engine.core.step()
    assert (engine.running, engine.waiting) == (["urgent", "a"], ["b"])
    outputs = engine.run()
    assert outputs["b"][-1].finish_reason is FinishReason.LENGTH


def test_equal_priority_never_preempts_for_a_seat(make_engine: Any) -> None:
    engine = make_engine(max_num_seqs=1, by_priority=True)
    engine.add("a", priority=1)
    engine.core.step()
    engine.add("b", priority=1)
    engine.run()
    assert engine.core.stats().preemptions_recompute == 0


def test_an_urgent_request_takes_blocks_from_a_lower_priority(make_engine: Any) -> None:
    engine = make_engine(num_blocks=8, block_size=4, by_priority=True)
    engine.add("a", 24, priority=5, max_tokens=4)
    engine.core.step()
    engine.add("urgent", 16, priority=1)
    engine.core.step()
    assert engine.running == ["urgent"]
    engine.run()


def test_under_fcfs_priorities_are_ignored(make_engine: Any) -> None:
    engine = make_engine(max_num_seqs=1)
    engine.add("a", priority=5)
    engine.add("b", priority=1)
    engine.core.step()
    assert engine.running == ["a"]


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_abort_at_any_state_returns_all_blocks(make_engine: Any, steps: int) -> None:
    engine = make_engine(max_num_seqs=1, max_num_batched_tokens=4)
    engine.add("a", 10)
    engine.add("b", 10)
    for _ in range(steps):
        engine.core.step()
    outputs = engine.core.abort(["a", "b", "a", "unknown"])
    assert [each.finish_reason for each in outputs] == [FinishReason.ABORT] * 2
    assert engine.core.abort(["a"]) == []
    engine.core.check_integrity()
    stats = engine.core.stats()
    assert (stats.num_running, stats.num_waiting, stats.blocks_used) == (0, 0, 0)
    assert stats.finished[FinishReason.ABORT] == 2
    assert engine.executor.forgotten == ["a", "b"]


def test_stop_tokens_end_a_request_only_after_min_tokens(make_engine: Any) -> None:
    engine = make_engine()
    engine.executor.token = lambda token_ids: 2 if len(token_ids) % 2 else 77
    engine.add("eos", 8)
    engine.add("ignored", 8, sampling=SamplingParams(temperature=0, max_tokens=4, ignore_eos=True))
    engine.add("later", 8, sampling=SamplingParams(temperature=0, max_tokens=9, min_tokens=3))
    engine.add("own", 8, sampling=SamplingParams(temperature=0, max_tokens=9, stop_token_ids=(77,)))
    ends = engine.run()
    assert [len(ends[name]) for name in ("eos", "ignored", "later", "own")] == [2, 4, 4, 1]
    assert ends["eos"][-1].stop_token_id == 2
    assert ends["ignored"][-1].finish_reason is FinishReason.LENGTH
    assert ends["own"][-1].stop_token_id == 77
