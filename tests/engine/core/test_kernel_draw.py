"""The sampler's way on a GPU, with the kernels' reference in their place.

Covered: seeds, places and what follows from them, launches and transfers, ties, warm-up, the
workspace. Left out: what each parameter does to a row (test_sampler.py).
"""

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from pagefleet_engine.executor import ModelRunnerOutput, SchedulerOutput
from pagefleet_engine.generation import _fork
from pagefleet_engine.request import EngineRequest, SamplingParams
from pagefleet_engine.sampler import CHUNK_ROWS, Sampler
from pagefleet_engine.sampling.kernel_draw import KernelDraw
from pagefleet_engine.sampling.torch_draw import TorchDraw
from pagefleet_engine.sequence import Sequence
from pagefleet_kernels.sampling import SamplingRows, sample_reference
from pagefleet_memory.constants import constant
from tests.support.live_memory import live_memory
from tests.support.sampled_rows import DRAWS, sample_one, sampler_of, sequence

REFERENCE = DRAWS["reference"]
FLAT = [0.0] * 500


class Recorder:
    """Stands in for the kernels and draws greedily."""

    def __init__(self) -> None:
        self.calls: list[tuple[torch.Tensor, SamplingRows, bool]] = []

    def __call__(
        self, logits: torch.Tensor, rows: SamplingRows, *, any_filter: bool
    ) -> torch.Tensor:
        self.calls.append((logits, rows, any_filter))
        return logits.argmax(dim=1)

    def sizes(self) -> list[int]:
        return [logits.shape[0] for logits, _, _ in self.calls]


def record(logits: torch.Tensor, rows: list[Sequence]) -> Recorder:
    recorder = Recorder()
    Sampler(KernelDraw(recorder, seed=0), eos_token_ids=frozenset()).sample(logits, rows)
    return recorder


def ask(count: int, **given: Any) -> list[Sequence]:
    return [sequence(SamplingParams(**given), name=str(index)) for index in range(count)]


def test_requests_without_a_seed_differ_and_keep_theirs() -> None:
    sampler, rows = sampler_of(REFERENCE), ask(8)
    logits = torch.zeros(8, 500)
    first = sampler.sample(logits, rows)
    assert len({each.token_id for each in first.values()}) > 4
    assert sampler.sample(logits, rows) == first, "the same place of the same request"
    assert sampler_of(REFERENCE).sample(logits, rows) == first, "the engine's seed decides"
    assert sampler_of(REFERENCE, seed=1).sample(logits, rows) != first
    sampler.forget("0")
    assert sampler.sample(logits, rows)["0"] != first["0"]


def test_every_place_of_a_sequence_has_its_own_draw() -> None:
    sampler, row = sampler_of(REFERENCE), sequence(SamplingParams(seed=3))
    for _ in range(8):
        row.token_ids.append(sampler.sample(torch.zeros(1, 500), [row])["a"].token_id)
    assert len(set(row.output_token_ids)) > 4


def test_an_answer_sent_back_as_prompt_goes_on_as_it_would_have() -> None:
    asked = SamplingParams(seed=3)
    begun = sequence(asked, output="12")
    again = sequence(asked, name="b", prompt=tuple(begun.token_ids))
    drawn = [
        sampler_of(REFERENCE).sample(torch.tensor([FLAT]), [row])[row.request_id].token_id
        for row in (begun, again)
    ]
    assert drawn[0] == drawn[1]


def test_all_seeds_that_a_request_may_have_work_and_differ() -> None:
    seeds = (-(2**63), -1, 0, 1, 2**32, 2**63 - 1)
    tokens = [sample_one(REFERENCE, FLAT, SamplingParams(seed=each)).token_id for each in seeds]
    assert len(set(tokens)) == len(seeds)


def test_the_choices_behind_the_largest_seed_have_seeds_of_their_own() -> None:
    sampling = SamplingParams(n=3, seed=2**63 - 2)
    request = EngineRequest(
        request_id="a", prompt_token_ids=(1,), sampling=sampling, arrival_time=0.0
    )
    found = [each.sampling.seed for each in _fork(request)]
    assert found == [2**63 - 2, 2**63 - 1, -(2**63)]


def test_what_a_request_asks_for_reaches_the_kernels() -> None:
    rows = [
        *ask(1, temperature=0.5, top_k=2**40, top_p=0.25, min_p=0.125, seed=-9),
        *ask(1, temperature=1e-6, top_k=-1, seed=2**62),
        *ask(3, seed=1),
    ]
    ((_, found, any_filter),) = record(torch.zeros(5, 8), rows).calls
    assert any_filter
    assert found.temperature[:2].tolist() == [0.5, 0.0]
    assert found.top_k[:2].tolist() == [2**31 - 1, 0]
    assert found.top_p[:2].tolist() == [0.25, 1.0]
    assert found.min_p[:2].tolist() == [0.125, 0.0]
    assert found.seeds.tolist() == [-9, 2**62, 1, 1, 1]
    assert found.positions.tolist() == [1] * 5
    for name in ("temperature", "top_k", "top_p", "min_p", "seeds", "positions"):
        tensor: torch.Tensor = getattr(found, name)
        first = found.seeds.data_ptr()
        assert tensor.shape == (5,)
        assert (tensor.data_ptr() - first) % 16 == 0, "another alignment is compiled anew"


def test_filters_are_searched_only_if_a_row_that_draws_asks() -> None:
    plain, greedy = ask(2), ask(1, temperature=0, top_k=5)
    assert [call[2] for call in record(torch.zeros(3, 8), [*plain, *greedy]).calls] == [False]
    filtered = ask(1, min_p=0.1)
    assert [call[2] for call in record(torch.zeros(3, 8), [*plain, *filtered]).calls] == [True]


def test_rows_that_are_not_copied_are_drawn_together_from_the_models_own_logits() -> None:
    count = 4 * CHUNK_ROWS + 7
    logits = torch.zeros(count, 8, dtype=torch.bfloat16)
    rows = ask(count)
    recorder = record(logits, rows)
    assert recorder.sizes() == [count]
    assert recorder.calls[0][0].data_ptr() == logits.data_ptr()
    rows[2 * CHUNK_ROWS + 1 : 2 * CHUNK_ROWS + 2] = ask(1, logit_bias={1: 5.0})
    recorder = record(logits, rows)
    assert recorder.sizes() == [2 * CHUNK_ROWS, CHUNK_ROWS, CHUNK_ROWS + 7]
    assert [each[0].dtype for each in recorder.calls] == [
        torch.bfloat16,
        torch.float32,
        torch.bfloat16,
    ]


class Readings(TorchFunctionMode):
    """Names of calls that would wait for a GPU, since the host reads numbers."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("tolist", "item", "nonzero", "__bool__", "__int__", "__float__", "__index__"):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def test_a_step_of_any_mix_reads_numbers_once() -> None:
    rows = [
        *ask(50, top_p=0.5, logprobs=2),
        *ask(50, temperature=0, repetition_penalty=1.2, min_tokens=3),
        *ask(50, logit_bias={1: 5.0}, frequency_penalty=0.5, logprobs=0),
    ]
    for index, row in enumerate(rows):
        row.request = EngineRequest(
            request_id=str(index), prompt_token_ids=(0,), sampling=row.sampling, arrival_time=0.0
        )
        row.token_ids += [index % 8, 1]
    with Readings() as readings:
        recorder = record(torch.zeros(150, 8), rows)
    assert recorder.sizes() == [64, 64, 22]
    assert readings.names == ["tolist"]


def test_the_lowest_id_wins_a_greedy_tie_as_on_a_cpu() -> None:
    logits = torch.randint(0, 3, (40, 30), generator=torch.Generator().manual_seed(0)).bfloat16()
    rows = ask(40, temperature=0)
    drawn = [
        each.draw(logits, rows)
        for each in (TorchDraw(seed=0), KernelDraw(sample_reference, seed=0))
    ]
    assert torch.equal(*drawn)


def test_a_cpu_keeps_as_many_tied_tokens_as_asked_and_the_kernels_all() -> None:
    logits = torch.tensor([[1.0, 1.0, 1.0, 0.0]]).expand(60, -1)
    rows = [sequence(SamplingParams(top_k=1, seed=each), name=str(each)) for each in range(60)]
    kept = {name: set(draw(0).draw(logits, rows).tolist()) for name, draw in DRAWS.items()}
    assert kept["reference"] == {0, 1, 2}
    assert len(kept["torch"]) == 1


def test_warm_up_runs_both_ways_on_the_models_type_and_on_copies() -> None:
    recorder = Recorder()
    sampler = Sampler(KernelDraw(recorder, seed=0), eos_token_ids=frozenset())
    assert sampler.warm_up(torch.zeros(1, 50, dtype=torch.bfloat16)) == 4
    ran = {(logits.dtype, logits.shape[1], any_filter) for logits, _, any_filter in recorder.calls}
    dtypes = (torch.bfloat16, torch.float32)
    assert ran == {(dtype, 50, any_filter) for dtype in dtypes for any_filter in (True, False)}
    assert sampler.warm_up(torch.zeros(1, 50)) == 2
    assert sampler_of(DRAWS["torch"]).warm_up(torch.zeros(1, 50)) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_workspace_of_a_step_is_within_the_ledgers_term(dtype: torch.dtype) -> None:
    count, vocab_size = CHUNK_ROWS + 1, 20_000
    asked = SamplingParams(
        logprobs=20, repetition_penalty=1.1, presence_penalty=0.5, logit_bias={1: 1.0}
    )
    rows = [sequence(asked, name=str(index)) for index in range(count)]
    for row in rows:
        row.token_ids += range(4000)
    logits = torch.zeros(count, vocab_size, dtype=dtype)
    draw = KernelDraw(lambda logits, rows, *, any_filter: logits.argmax(dim=1), seed=0)
    with live_memory(logits) as memory:
        Sampler(draw, eos_token_ids=frozenset()).sample(logits, rows)
    assert constant("sampler_rows").value == CHUNK_ROWS
    per_logit = memory.peak_bytes / (CHUNK_ROWS * vocab_size)
    assert 6 < per_logit < constant("sampler_bytes_per_logit").value


def test_a_preempted_request_gets_the_tokens_that_it_would_have_got(make_engine: Any) -> None:
    def answers(num_blocks: int) -> tuple[dict[str, list[int]], int]:
        engine, sampler = make_engine(num_blocks=num_blocks), sampler_of(REFERENCE)

        def execute(output: SchedulerOutput) -> ModelRunnerOutput:
            engine.executor.steps.append(output)
            rows = [each.sequence for each in output.scheduled if each.needs_token]
            logits = [[(token * sum(row.token_ids)) % 7 for token in range(900)] for row in rows]
            return ModelRunnerOutput(sampler.sample(torch.tensor(logits).float(), rows))

        engine.executor.execute = execute
        for number, name in enumerate("abcd"):
            asked = SamplingParams(seed=number, top_p=0.9, max_tokens=12, ignore_eos=True)
            engine.add(name, sampling=asked)
        found = engine.run()
        tokens = {name: [t for each in found[name] for t in each.new_token_ids] for name in found}
        return tokens, engine.core.stats().preemptions_recompute

    roomy, tight = answers(64), answers(8)
    assert (roomy[1] == 0, tight[1] > 0) == (True, True)
    assert tight[0] == roomy[0]
    assert [len(set(each)) > 4 for each in roomy[0].values()] == [True] * 4
