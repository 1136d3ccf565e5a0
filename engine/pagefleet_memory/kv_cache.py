"""KV blocks: their bytes on a rank, and how many a request needs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.model_shape import ModelShape, kv_bytes_per_layer
from pagefleet_memory.parallelism import layers_per_stage, stage_bounds

if TYPE_CHECKING:
    from pagefleet_memory.ledger import Ledger


def kv_block_bytes(shape: ModelShape, limits: EngineLimits, *, stage: int | None = None) -> int:
    """Bytes of one block on one rank of a stage; without a stage, of the largest one.

    The engine keeps every token of every layer, also beyond a sliding window.
    """
    if stage is None:
        stages = range(len(layers_per_stage(shape.num_layers, limits.pipeline_parallel_size)))
        return max(kv_block_bytes(shape, limits, stage=index) for index in stages)
    start, end = stage_bounds(shape.num_layers, limits.pipeline_parallel_size)[stage]
    pattern = shape.layer_pattern[start:end]
    kv_dtype = limits.resolved_kv_dtype
    tp = limits.tensor_parallel_size
    per_token = sum(
        pattern.count(index) * kv_bytes_per_layer(kind, kv_dtype, tensor_parallel_size=tp)
        for index, kind in enumerate(shape.layer_kinds)
    )
    return per_token * limits.block_size


def num_kv_blocks(
    ledgers: "Ledger | Sequence[Ledger]", shape: ModelShape, limits: EngineLimits
) -> int:
    """Blocks that every rank can hold: the minimum over the stages, never below zero."""
    stages = ledgers if isinstance(ledgers, Sequence) else (ledgers,)
    counts = [
        ledger.kv_pool_bytes // kv_block_bytes(shape, limits, stage=ledger.stage)
        for ledger in stages
    ]
    return max(0, min(counts))


def blocks_for_tokens(shape: ModelShape, limits: EngineLimits, num_tokens: int) -> int:
    """Blocks one request of this many tokens needs; sizing and admission both ask here."""
    del shape  # every layer keeps full length, so the shape does not enter yet
    return -(-max(0, num_tokens) // limits.block_size)
