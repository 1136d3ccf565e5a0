"""An 8-bit KV cache is proposed where it saves GPUs, with its cost, and never taken by itself."""

from pagefleet_memory import Pins, PlanResult, Rejection, Workload, plan_serving
from tests.memory.memory_builders import LLAMA_3_8B, LLAMA_3_70B, gpus, shape


def _plan(tokens: int, pins: Pins | None = None, concurrency: int | None = None) -> PlanResult:
    asked = Workload(max_model_len=tokens, concurrency=concurrency)
    return plan_serving(shape(LLAMA_3_70B), asked, [gpus("H100", 8)], pins)


def _proposals(result: PlanResult) -> list[Rejection]:
    return [item for item in result.rejected if "kvCache.dtype int8" in item.option]


def test_a_cache_that_saves_gpus_is_proposed_first_and_not_taken() -> None:
    result = _plan(65536)
    assert result.chosen is not None and result.chosen.gpus_per_replica == 4
    assert result.chosen.limits.kv_cache_dtype == "auto"
    (proposal,) = _proposals(result)
    assert proposal is result.rejected[0]
    assert proposal.option.startswith("h100: 2x") and "(TP=2, PP=1)" in proposal.option
    assert "2 GPUs instead of 4" in proposal.message and "perplexity" in proposal.message


def test_taking_the_proposal_gives_what_it_says() -> None:
    taken = _plan(65536, Pins(kv_cache_dtype="int8"))
    assert taken.chosen is not None and taken.chosen.gpus_per_replica == 2
    (proposal,) = _proposals(_plan(65536))
    assert f"hold {taken.chosen.kv_tokens} KV tokens" in proposal.message


def test_concurrency_is_part_of_what_a_cache_must_hold() -> None:
    """51,000 tokens of bf16 hold 20 of the default requests, int8 more than 40."""
    assert _proposals(_plan(32768, concurrency=30))
    assert not _proposals(_plan(32768, concurrency=10))


def test_nothing_is_proposed_where_it_saves_nothing_or_is_pinned() -> None:
    assert not _proposals(_plan(8192))
    assert not _proposals(_plan(65536, Pins(kv_cache_dtype="bfloat16")))
    assert _proposals(_plan(65536, Pins(kv_cache_dtype="auto")))


def test_where_nothing_fits_the_refusal_names_it() -> None:
    workload = Workload(max_model_len=65536)
    refusal = plan_serving(shape(LLAMA_3_8B), workload, [gpus("L4", 1)]).refusal
    assert refusal is not None
    assert any(change.startswith("kvCache.dtype int8 fits") for change in refusal.nearest)
