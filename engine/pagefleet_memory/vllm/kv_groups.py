"""How vLLM lays KV blocks over layers: groups of equal size, and what a request needs of them."""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from pagefleet_memory.dtypes import dtype_bytes
from pagefleet_memory.errors import LimitError
from pagefleet_memory.layers import AttentionShape, StateShape
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.parallelism import stage_bounds
from pagefleet_memory.vllm.kv_rows import concrete_kv_dtype, row_bytes
from pagefleet_memory.vllm.run import Run

_BLOCK = 16
_ROW_ALIGNMENT = 256  # bytes of a padded latent row
_SPARSE_LATENT_ROW = 656  # 512 fp8 codes, 16 bytes of scales, 64 rotary elements in bf16
_INDEX_SCALE = 4


@dataclass(frozen=True, slots=True)
class GroupSet:
    """Groups of one type of layer: they all need the same number of blocks for a request."""

    groups: int
    block_tokens: int
    window: int | None = None
    state_blocks: int = 0  # a state needs a fixed number, whatever the length

    def blocks(self, tokens: int, chunk: int) -> int:
        """Blocks that one request of this length needs over the set's groups."""
        if self.state_blocks:
            return self.groups * self.state_blocks
        if self.window is None:
            return self.groups * -(-tokens // self.block_tokens)
        held = min(self.window - 1 + chunk, tokens)
        return self.groups * (-(-held // self.block_tokens) + 1)


@dataclass(frozen=True, slots=True)
class StageLayout:
    """Blocks of one rank of one stage."""

    block_bytes: int  # one block id, over the layers of a group
    sets: tuple[GroupSet, ...]

    @property
    def groups(self) -> int:
        """Groups that share the pool."""
        return sum(each.groups for each in self.sets)

    @property
    def is_uniform(self) -> bool:
        """True where every layer keeps every token in one group."""
        return len(self.sets) == 1 and self.sets[0].window is None

    @property
    def block_tokens(self) -> int:
        """Tokens of the shortest block of any group."""
        return min(each.block_tokens for each in self.sets)

    def blocks_for(self, tokens: int, chunk: int) -> int:
        """Blocks that one request of this length needs."""
        return sum(each.blocks(tokens, chunk) for each in self.sets)

    def blocks_per_logged_token(self, run: Run) -> Fraction:
        """What a log counts as a token: a share of a block of every group, or, since it logs
        concurrency times the longest request, that request's blocks over its length."""
        spread = run.decode_context_parallel_size
        if self.is_uniform or not run.release.logs_tokens_of_full_requests:
            return Fraction(self.groups, self.block_tokens * spread)
        need = self.blocks_for(run.max_model_len, run.max_num_batched_tokens)
        return Fraction(need, run.max_model_len * spread)


def stage_layout(shape: ModelShape, run: Run, stage: int) -> StageLayout:
    """The layout of one pipeline stage."""
    start, end = stage_bounds(shape.num_layers, run.pipeline_parallel_size)[stage]
    layers = shape.layers[start:end]
    states = [layer.state for layer in layers if layer.state]
    attention = [layer.attention for layer in layers if layer.state is None]
    if not attention:
        raise LimitError(
            f"stage {stage} has no layer that caches keys and values",
            field="pipeline_parallel_size",
            value=run.pipeline_parallel_size,
            hint="use fewer stages",
        )
    if states:
        return _stateful(attention, states, run)
    windows = {each.window for each in attention}
    if len(windows) == 1 or not run.release.groups_windows:
        per_token = sum(_layer_row(each, run) for each in attention)
        size = run.block_size
        return StageLayout(per_token * size, (GroupSet(1, size),))
    return _windowed(attention, run)


def _layer_row(attention: AttentionShape, run: Run) -> int:
    """Bytes one token takes in one layer on one rank."""
    kv_dtype = concrete_kv_dtype(run.kv_cache_dtype, run.dtype)
    if attention.replicated:
        return _latent_row(attention, run, kv_dtype)
    row = row_bytes(attention.k_width, kv_dtype) + row_bytes(attention.v_width, kv_dtype)
    return attention.local_kv_heads(run.tensor_parallel_size) * row


def _latent_row(attention: AttentionShape, run: Run, kv_dtype: str) -> int:
    index = attention.index_width + _INDEX_SCALE if attention.index_width else 0
    if index and kv_dtype == "fp8":
        return _SPARSE_LATENT_ROW + index
    row = row_bytes(attention.k_width + attention.v_width, kv_dtype)
    if run.release.pads_latent_rows:
        row = -(-row // _ROW_ALIGNMENT) * _ROW_ALIGNMENT
    return row + index


def _windowed(attention: list[AttentionShape], run: Run) -> StageLayout:
    """Full and sliding layers in groups of as many layers as the rarer type has.

    Where their rows differ, the type of smaller rows gets longer blocks, so that all are equal.
    """
    types = Counter((each.window, _layer_row(each, run)) for each in attention)
    fewest, most = min(types.values()), max(types.values())
    size = most if most < fewest * 1.25 else fewest
    widest = max(row for _, row in types)
    sets = tuple(
        GroupSet(-(-count // size), run.block_size * (widest // row), window)
        for (window, row), count in types.items()
    )
    return StageLayout(size * widest * run.block_size, sets)


def _stateful(attention: list[AttentionShape], states: list[StateShape], run: Run) -> StageLayout:
    """Linear-attention layers: a block of the attention layers is as large as one state."""
    row = max(_layer_row(each, run) for each in attention)
    state = states[0].bytes_per_sequence(
        dtype_bytes(run.dtype),
        tensor_parallel_size=run.tensor_parallel_size,
        extra_steps=run.draft_tokens,
    )
    tokens = _BLOCK * -(-state // (row * _BLOCK))
    layers = len(attention) + bool(run.draft_tokens)
    held = 2 + run.draft_tokens if run.release.logs_tokens_of_full_requests else 1
    sets = (
        GroupSet(1, tokens),
        GroupSet(-(-len(states) // layers), tokens, state_blocks=held),
    )
    return StageLayout(layers * tokens * row, sets)
