"""Decoding by replay: size choice, padding, and the tokens of an engine that runs without it.

A capture is stood in for by a function that runs its work again, on buffers that the work reads
where they are, and attention reads lengths from the tensors that a GPU kernel would read. Left out:
real captures, which need a CUDA device.
"""

from array import array
from dataclasses import replace
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
from pagefleet_kernels import AttentionMetadata, LayerCache, store_kv
from pagefleet_kernels.backend import torch_backend
from pagefleet_kernels.reference import paged_attention_reference
from pagefleet_memory import EngineLimits
from pagefleet_memory.overhead import num_capture_sizes
from tests.support.kv_pools import poisoned_pool
from tests.support.tiny_model import save_tiny_model

CPU = torch.device("cpu")
BLOCK_SIZE, MAX_MODEL_LEN = 8, 64
PROMPTS = [[5 + i % 60 for i in range(length)] for length in (1, 19, 30, 7, 12)]


def attend_by_tensors(
    query: torch.Tensor, cache: LayerCache, metadata: AttentionMetadata, **options: Any
) -> torch.Tensor:
    """As a kernel does: lengths come from tensors, at the time when it runs."""
    if (lengths := metadata.device_lengths) is not None:
        metadata = AttentionMetadata(
            query_starts=tuple(lengths.query_starts.tolist()),
            seq_lens=tuple(lengths.seq_lens.tolist()),
            block_tables=metadata.block_tables,
            slot_mapping=metadata.slot_mapping,
        )
    return paged_attention_reference(query, cache, metadata, **options)


LIKE_A_GPU = replace(
    torch_backend(),
    name="reference",
    store_kv=store_kv,
    paged_attention=attend_by_tensors,
    gathers=False,
)


class FakeCapture:
    """Runs what is captured once, as a real one must, and again when it is replayed."""

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self, run: Run) -> Run:
        run()

        def replay() -> None:
            self.replays += 1
            run()

        return replay


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
    graphs, capture = DecodeGraphs(echo, layers, buffers), FakeCapture()
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
    before = [each.data_ptr() for each in (*tensors, buffers.logits)]  # type: ignore[union-attr]
    graphs.replay(step_of([3] * 4), 4)
    graphs.replay(step_of([20]), 1)
    after = [each.data_ptr() for each in (*tensors, buffers.logits)]  # type: ignore[union-attr]
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


def test_limits_say_what_is_captured() -> None:
    layers = PagedLayers(poisoned_pool("float32"), LIKE_A_GPU)
    graphs = capture_decoding(echo, layers, served(), device=CPU, capture=FakeCapture())
    assert graphs is not None
    assert [graphs.size_for(step_of([5] * count)) for count in (1, 5, 8, 9)] == [1, 8, 8, None]
    for settings in ({"enforce_eager": True}, {"tensor_parallel_size": 2}):
        eager = served(**settings)
        found = capture_decoding(echo, layers, eager, device=CPU, capture=FakeCapture())
        assert found is None


def test_a_model_that_cannot_be_captured_runs_without(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(run: Run) -> Run:
        raise RuntimeError("operation not permitted when stream is capturing")

    layers = PagedLayers(poisoned_pool("float32"), LIKE_A_GPU)
    assert capture_decoding(echo, layers, served(), device=CPU, capture=refuse) is None
    assert "without CUDA graphs" in caplog.text and "not permitted" in caplog.text


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
    graphs = DecodeGraphs(runner._forward, layers, buffers)
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
