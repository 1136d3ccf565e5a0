"""Prediction: the figures a vLLM log prints, computed from a model and a run's settings."""

from dataclasses import dataclass

from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.vllm.kv_groups import StageLayout, stage_layout
from pagefleet_memory.vllm.ledger import stage_ledger
from pagefleet_memory.vllm.overhead import context, graphs, warm_up
from pagefleet_memory.vllm.run import Run
from pagefleet_memory.vllm.weights import rank_weights, rope_bytes


@dataclass(frozen=True, slots=True)
class Prediction:
    """Figures of the rank that binds; None where the GPU's memory is not known."""

    kv_bytes_per_token: int
    weights_bytes: int
    kv_cache_bytes: int | None
    kv_tokens: int | None
    max_model_len: int | None  # the longest request that the pool holds
    fits: bool | None


@dataclass(frozen=True, slots=True)
class _Stage:
    layout: StageLayout
    weights: int
    pool: int | None

    def num_blocks(self) -> int:
        return max(0, self.pool or 0) // self.layout.block_bytes


def predict(shape: ModelShape, run: Run) -> Prediction:
    """What the server logs at start-up, and whether it starts."""
    stages = [_stage(shape, run, index) for index in range(run.pipeline_parallel_size)]
    per_token = max(_bytes_per_logged_token(stage, run) for stage in stages)
    weights = max(stage.weights for stage in stages)
    if run.memory_bytes is None:
        return Prediction(per_token, weights, None, None, None, None)
    binding = min(stages, key=lambda stage: stage.num_blocks())
    longest = _longest_request(binding, run)
    fits = longest >= run.max_model_len and _graphs_fit(shape, run)
    return Prediction(per_token, weights, binding.pool, _logged_tokens(binding, run), longest, fits)


def _stage(shape: ModelShape, run: Run, index: int) -> _Stage:
    weights = rank_weights(shape, run, index) + rope_bytes(shape, run)
    known = run.memory_bytes is not None
    pool = stage_ledger(shape, run, index).kv_pool_bytes if known else None
    return _Stage(stage_layout(shape, run, index), weights, pool)


def _bytes_per_logged_token(stage: _Stage, run: Run) -> int:
    return round(stage.layout.blocks_per_logged_token(run) * stage.layout.block_bytes)


def _logged_tokens(stage: _Stage, run: Run) -> int:
    blocks, layout = stage.num_blocks(), stage.layout
    if not run.release.logs_tokens_of_full_requests:
        blocks -= blocks % layout.groups
    return int(blocks / layout.blocks_per_logged_token(run))


def _longest_request(stage: _Stage, run: Run) -> int:
    """The longest request, by halving; a request keeps its blocks on one rank."""
    blocks, layout = stage.num_blocks(), stage.layout
    low, high = 0, max(run.max_model_len, blocks * max(s.block_tokens for s in layout.sets))
    while low < high:
        middle = (low + high + 1) // 2
        if layout.blocks_for(middle, run.max_num_batched_tokens) <= blocks:
            low = middle
        else:
            high = middle - 1
    return low * run.decode_context_parallel_size


def _graphs_fit(shape: ModelShape, run: Run) -> bool:
    """Context and graphs that the budget leaves out still have to find room on the card."""
    assert run.memory_bytes is not None
    budget = int(run.memory_bytes * run.gpu_memory_utilization)
    outside = context(run) + warm_up(shape)
    if not run.release.counts_graphs:
        outside += graphs(shape, run)
    return budget + outside <= run.memory_bytes
