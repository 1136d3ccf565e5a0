"""Decoding by replay: size choice, padding, and the tokens of an engine that runs without it.

A capture is stood in for (tests/support/graph_replay.py). Left out: real captures, which need a
CUDA device, and several ranks (tests/engine/parallel/test_parallel_graphs.py).
"""

from array import array
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.decode_graphs import (
    DecodeBuffers,
    DecodeGraphs,
    Run,
    WholeForward,
    capture_decoding,
    capture_sizes,
)
from pagefleet_engine.engine_core import EngineCore
from pagefleet_engine.executor import StepInputs
from pagefleet_engine.llm import LLM
from pagefleet_engine.model_runner import ModelRunner
from pagefleet_engine.models.attention import PagedLayers, attach
from pagefleet_engine.request import SamplingParams
from pagefleet_engine.startup import build_engine_core
from pagefleet_engine.step_tensors import StepTensors
from pagefleet_memory import EngineLimits
from pagefleet_memory.overhead import num_capture_sizes
from tests.support.graph_replay import LIKE_A_GPU, FakeCapture
from tests.support.kv_pools import poisoned_pool
from tests.support.tiny_model import save_tiny_model

CPU = torch.device("cpu")
BLOCK_SIZE, MAX_MODEL_LEN = 8, 64
PROMPTS = [[5 + i % 60 for i in range(length)] for length in (1, 19, 30, 7, 12)]


def step_of(lengths: list[int], *, num_tokens: list[int] | None = None) -> StepTensors:
    """Sequences of these lengths after the step; each computes its last token."""
    counts = num_tokens or [1] * len(lengths)
    inputs = StepInputs(
        token_ids=list(range(10, 10 + sum(counts))),
        num_computed=[length - count for length, count in zip(lengths, counts, strict=True)],
        num_tokens=counts,
        block_tables=[array("q", range(3 * i, 3 * i + 3)) for i in range(len(lengths))],
        rows=list(range(sum(counts))),
    )
    return StepTensors.of(inputs, block_size=BLOCK_SIZE)


def echo(ids: torch.Tensor, positions: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Logits that say which token stood where."""
    return torch.stack([ids[rows], positions[rows]], dim=1).float()


def make_graphs(sizes: tuple[int, ...]) -> tuple[DecodeGraphs, DecodeBuffers, FakeCapture]:
    buffers = DecodeBuffers(
        most=max(sizes), max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE, device=CPU
    )
    layers = PagedLayers(poisoned_pool("float32"), LIKE_A_GPU)
    graphs, capture = DecodeGraphs(WholeForward(echo), layers, buffers), FakeCapture()
    graphs.capture(sizes, capture)
    return graphs, buffers, capture


@pytest.mark.parametrize("most", [1, 2, 3, 7, 8, 64, 250, 256, 512, 1000])
def test_as_many_sizes_are_captured_as_the_memory_model_counts(most: int) -> None:
    sizes = capture_sizes(most)
    assert len(sizes) == num_capture_sizes(most)
    assert max(sizes) <= most and sorted(set(sizes)) == list(sizes)


@pytest.mark.parametrize(("count", "size"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (8, 8)])
def test_a_step_takes_the_smallest_size_that_holds_it(count: int, size: int) -> None:
    graphs, _, _ = make_graphs(capture_sizes(8))
    assert graphs.size_for(step_of([5] * count)) == size


def test_prompts_and_larger_batches_run_without_a_graph() -> None:
    graphs, _, _ = make_graphs(capture_sizes(4))
    assert graphs.size_for(step_of([5] * 5)) is None
    assert graphs.size_for(step_of([9, 9], num_tokens=[1, 3])) is None


def test_padded_rows_have_no_slot_and_no_length() -> None:
    graphs, buffers, _ = make_graphs((4,))
    graphs.replay(step_of([17, 2, 9, 23]), 4)
    graphs.replay(step_of([6, 11]), 4)  # fewer than before
    metadata = buffers.metadata(4)
    assert metadata.slot_mapping.tolist() == [0 * 8 + 5, 4 * 8 + 2, -1, -1]
    assert metadata.device_lengths is not None
    assert metadata.device_lengths.seq_lens.tolist() == [6, 11, 0, 0]
    assert metadata.device_lengths.query_starts.tolist() == [0, 1, 2, 3, 4]
    assert metadata.device_lengths.max_query_len == 1
    assert metadata.device_lengths.max_seq_len == MAX_MODEL_LEN
    assert metadata.block_tables[:2, :3].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert buffers.token_ids.tolist() == [10, 11, 0, 0]
    assert buffers.positions.tolist() == [5, 10, 0, 0]


def test_buffers_never_move() -> None:
    graphs, buffers, _ = make_graphs((1, 2, 4))
    tensors = (buffers.token_ids, buffers.slots, buffers.seq_lens, buffers.block_tables)
    before = [each.data_ptr() for each in (*tensors, buffers.output)]  # type: ignore[union-attr]
    graphs.replay(step_of([3] * 4), 4)
    graphs.replay(step_of([20]), 1)
    after = [each.data_ptr() for each in (*tensors, buffers.output)]  # type: ignore[union-attr]
    assert before == after


def test_logits_come_back_for_the_sampled_rows_alone() -> None:
    graphs, _, _ = make_graphs((4,))
    step = step_of([6, 11, 20])
    assert graphs.replay(step, 4).tolist() == [[10, 5], [11, 10], [12, 19]]
    some = StepTensors(step.token_ids, step.positions, torch.tensor([2, 0]), step.metadata)
    assert graphs.replay(some, 4).tolist() == [[12, 19], [10, 5]]


def served(**settings: Any) -> EngineLimits:
    given = {"max_model_len": MAX_MODEL_LEN, "max_num_seqs": 9, "max_num_batched_tokens": 64}
    return EngineLimits(dtype="float32", block_size=BLOCK_SIZE, **(given | settings))


def captured(limits: EngineLimits, **options: Any) -> DecodeGraphs | None:
    layers = PagedLayers(poisoned_pool("float32"), LIKE_A_GPU)
    options = {"capture": FakeCapture()} | options
    return capture_decoding(lambda _: WholeForward(echo), layers, limits, device=CPU, **options)


def test_limits_say_what_is_captured() -> None:
    graphs = captured(served())
    assert graphs is not None
    assert [graphs.size_for(step_of([5] * count)) for count in (1, 5, 8, 9)] == [1, 8, 8, None]
    assert captured(served(enforce_eager=True)) is None


def test_a_model_that_cannot_be_captured_runs_without(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(run: Run) -> Run:
        raise RuntimeError("operation not permitted when stream is capturing")

    assert captured(served(), capture=refuse) is None
    assert "without CUDA graphs" in caplog.text and "not permitted" in caplog.text


def test_no_rank_replays_if_another_cannot() -> None:
    asked: list[bool] = []

    def disagree(can: bool) -> bool:
        asked.append(can)
        return len(asked) < 3  # the third size is too much for the other rank

    assert captured(served(), agree=disagree) is None
    assert asked == [True, True, True]


def make_core(folder: Path) -> EngineCore:
    return build_engine_core(
        EngineConfig(
            model=str(folder),
            device="cpu",
            dtype="float32",
            block_size=BLOCK_SIZE,
            max_model_len=MAX_MODEL_LEN,
            device_memory_bytes=4 << 30,
            num_gpu_blocks_override=40,
        )
    )


def replaying(core: EngineCore, sizes: tuple[int, ...]) -> FakeCapture:
    """Make an engine decode by replay, as the worker does on a GPU."""
    runner, capture = core._executor, FakeCapture()
    assert isinstance(runner, ModelRunner) and isinstance(runner._forward, partial)
    layers = PagedLayers(runner.layers.pool, LIKE_A_GPU)
    attach(runner._forward.args[0], layers)
    runner.layers = layers
    buffers = DecodeBuffers(
        most=max(sizes), max_model_len=MAX_MODEL_LEN, block_size=BLOCK_SIZE, device=CPU
    )
    graphs = DecodeGraphs(WholeForward(runner._forward), layers, buffers)
    graphs.capture(sizes, capture)
    runner.use_graphs(graphs)
    return capture


@pytest.mark.parametrize("sizes", [(1, 2, 4, 8), (8,), (2,)])
def test_an_engine_that_replays_gives_the_same_tokens(
    sizes: tuple[int, ...], tmp_path: Path
) -> None:
    save_tiny_model(tmp_path)
    sampling = [
        SamplingParams(temperature=0, max_tokens=most, ignore_eos=True) for most in range(4, 9)
    ]
    expected = LLM(make_core(tmp_path)).generate(PROMPTS, sampling)
    core = make_core(tmp_path)
    capture = replaying(core, sizes)
    found = LLM(core).generate(PROMPTS, sampling)
    core.check_integrity()
    assert [each.token_ids for each in found] == [each.token_ids for each in expected]
    assert capture.replays >= (7 if max(sizes) == 8 else 1)
