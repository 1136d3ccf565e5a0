"""Attention over random keys of which some channels stand out, with each KV mode.

Keys of real models have channels with a large fixed offset, which takes up the steps of whoever
shares a scale with them. Six channels of a head get an offset of `magnitude` standard deviations
before the rotary embedding; the rest is normally distributed.
"""

import math
from dataclasses import dataclass

import torch

from pagefleet_kernels import (
    KV_MODES,
    AttentionMetadata,
    KVLayout,
    KVPool,
    LayerKVShape,
    PagedAttention,
    store_kv,
)
from pagefleet_kernels.reference import read_sequence

NUM_OUTLIERS = 6
NUM_HEADS = 8
WIDTH = 128
BLOCK_SIZE = 16
SCALE = 1 / math.sqrt(WIDTH)
MAGNITUDES = (0, 8, 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierRow:
    """One mode, magnitude for magnitude."""

    mode: str
    error: tuple[float, ...]  # of attention's output, relative to its norm
    kl: tuple[float, ...]  # nats per query, of the attention weights from the exact ones


@dataclass(frozen=True, slots=True)
class _Case:
    query: torch.Tensor  # [num_tokens, NUM_HEADS, WIDTH], the last positions
    key: torch.Tensor  # [context, NUM_HEADS, WIDTH]
    value: torch.Tensor


def measure_outliers(
    *, context: int = 2048, num_queries: int = 64, modes: tuple[str, ...] = KV_MODES
) -> list[OutlierRow]:
    cases = [_make_case(magnitude, context, num_queries) for magnitude in MAGNITUDES]
    results = {mode: [_measure(mode, case) for case in cases] for mode in modes}
    return [
        OutlierRow(
            mode=mode,
            error=tuple(error for error, _ in measured),
            kl=tuple(kl for _, kl in measured),
        )
        for mode, measured in results.items()
    ]


def _make_case(magnitude: int, context: int, num_queries: int) -> _Case:
    random = torch.Generator().manual_seed(magnitude)
    key, value = torch.randn(2, context, NUM_HEADS, WIDTH, generator=random)
    for head in range(NUM_HEADS):
        channels = torch.randperm(WIDTH, generator=random)[:NUM_OUTLIERS]
        signs = torch.randint(0, 2, (NUM_OUTLIERS,), generator=random) * 2 - 1
        key[:, head, channels] += magnitude * signs
    query = torch.randn(num_queries, NUM_HEADS, WIDTH, generator=random)
    return _Case(_embed(query, context - num_queries), _embed(key, 0), value)


def _embed(rows: torch.Tensor, first: int) -> torch.Tensor:
    """Rotary position embedding of rows [num_tokens, num_heads, WIDTH]."""
    frequencies = torch.pow(10000.0, -torch.arange(0, WIDTH, 2) / WIDTH)
    angles = torch.arange(first, first + rows.shape[0])[:, None, None] * frequencies
    low, high = rows.chunk(2, dim=-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


def _measure(mode: str, case: _Case) -> tuple[float, float]:
    """Error of the output, and KL of the weights."""
    context, num_queries = case.key.shape[0], case.query.shape[0]
    shape = LayerKVShape(num_kv_heads=NUM_HEADS, head_dim=WIDTH, v_head_dim=WIDTH)
    layout = KVLayout(mode=mode, block_size=BLOCK_SIZE, layers=(shape,))
    pool = KVPool(layout, num_blocks=context // BLOCK_SIZE, device=case.key.device)
    metadata = AttentionMetadata(
        query_starts=(0, num_queries),
        seq_lens=(context,),
        block_tables=torch.arange(pool.num_blocks)[None],
        slot_mapping=torch.arange(context),
    )
    store_kv(case.key, case.value, pool.layer(0), metadata.slot_mapping)
    output = PagedAttention()(case.query, pool.layer(0), metadata, scale=SCALE)
    stored, _ = read_sequence(pool.layer(0), metadata.block_tables[0], context)
    exact = _weights(case.query, case.key.transpose(0, 1)).exp()
    truth = (exact @ case.value.transpose(0, 1).double()).transpose(0, 1)
    kl = (exact * (exact.log() - _weights(case.query, stored))).nan_to_num().sum(-1).mean()
    return float((output - truth).norm() / truth.norm()), max(0.0, float(kl))


def _weights(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Logarithms of the attention weights: [NUM_HEADS, num_queries, context] float64."""
    num_queries, context = query.shape[0], key.shape[1]
    scores = query.transpose(0, 1).double() @ key.double().transpose(1, 2) * SCALE
    later = torch.ones(num_queries, context).triu(context - num_queries + 1).bool()
    return scores.masked_fill(later, float("-inf")).log_softmax(-1)
