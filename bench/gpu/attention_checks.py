"""Attention and the KV write with all that a model may ask for, and what must change no bit."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from bench.gpu.batches import Heads, make_batch
from bench.gpu.cases import Check, Compared
from pagefleet_kernels.gpu.attention import paged_attention
from pagefleet_kernels.gpu.store import rope_store_kv
from pagefleet_kernels.kv_layout import KVLayout, LayerKVShape
from pagefleet_kernels.kv_pool import KVPool
from pagefleet_kernels.metadata import AttentionMetadata, DeviceLengths
from pagefleet_kernels.reference import paged_attention_reference
from pagefleet_kernels.rope import rope_store_kv_reference
from pagefleet_kernels.store_kv import store_kv as store_kv_reference

SEQUENCES = ((1, 0), (1, 700), (1, 2500), (37, 0), (130, 500), (4, 90))  # decode, chunks, 4 tokens
PLAIN = Heads(num_heads=8, num_kv_heads=2)
FEATURES: dict[str, dict[str, Any]] = {
    "window 100": {"window": 100},
    "softcap 5": {"softcap": 5.0},
    "alibi": {"alibi_slopes": 0.1},
    "sinks": {"sinks": 1.0},
}
EVERY = {name: value for each in FEATURES.values() for name, value in each.items()}
TOLERANCES = {"float32": 2e-6, "float16": 1e-3, "int4": 8e-3}
ROPE_TOLERANCE = 1e-3  # of all bytes: a GPU may add a product without rounding it first
BF16 = torch.bfloat16

Attention = Callable[..., torch.Tensor]
Attend = Callable[[torch.device, Attention], torch.Tensor]


def checks() -> list[Check]:
    made = [_attention(name, options=options) for name, options in FEATURES.items()]
    made += [
        _attention("every feature", mode=mode, options=EVERY)
        for mode in ("fp8_e4m3", "int8", "int8k_int4v", "int4")
    ]
    made += [
        _attention(
            "wide keys", heads=Heads(num_heads=8, num_kv_heads=2, head_dim=192, v_head_dim=128)
        ),
        _attention("96 wide", heads=Heads(num_heads=5, num_kv_heads=1, head_dim=96)),
        _attention("block 8", block_size=8),
        _attention("block 256", mode="int8", block_size=256),
        _attention("fp16", mode="float16", dtype=torch.float16),
        _attention("fp16 query", mode="int8", dtype=torch.float16),
        _attention("fp32", mode="float32", dtype=torch.float32),
        _attention("deterministic", mode="int8", more={"is_deterministic": True}),
    ]
    made += [_other_blocks(mode) for mode in ("bfloat16", "int8", "int4")]
    made += [_batch_mates(mode) for mode in ("bfloat16", "int8")]
    return [*made, *(_rope(mode) for mode in ("bfloat16", "fp8_e4m3", "int8", "int4"))]


def _attention(
    name: str,
    *,
    mode: str = "bfloat16",
    heads: Heads = PLAIN,
    block_size: int = 16,
    dtype: torch.dtype = BF16,
    options: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
) -> Check:
    def attend(attention: Attention, device: torch.device, **extra: Any) -> torch.Tensor:
        batch = make_batch(
            SEQUENCES,
            mode=mode,
            heads=heads,
            device=device,
            block_size=block_size,
            store=store_kv_reference,
            dtype=dtype,
        )
        given = {
            key: torch.linspace(value / 2, value, heads.num_heads, device=device)
            if key in ("sinks", "alibi_slopes")
            else value
            for key, value in (options or {}).items()
        }
        cache = batch.pool.layer(0)
        return attention(batch.query, cache, batch.metadata, scale=batch.scale, **given, **extra)

    exact = partial(attend, paged_attention_reference)
    return Check(
        name=f"attention, {name} {mode}",
        compare=lambda device: Compared(
            attend(paged_attention, device, **(more or {})), exact(device)
        ),
        reference=exact,
        tolerance=TOLERANCES.get(mode, 5e-3),
    )


def _other_blocks(mode: str) -> Check:
    return _bitwise(
        f"attention, other blocks change no bit {mode}",
        partial(_first_result, mode, block_seed=1),
        partial(_first_result, mode, block_seed=2),
    )


def _batch_mates(mode: str) -> Check:
    return _bitwise(
        f"attention, batch mates change no bit {mode}",
        partial(_first_result, mode, is_deterministic=True),
        partial(_first_result, mode, is_deterministic=True, is_alone=True),
    )


def _bitwise(name: str, one: Attend, other: Attend) -> Check:
    """The share of numbers that differ between two ways to the same result."""
    return Check(
        name=name,
        compare=lambda device: Compared(
            one(device, paged_attention), other(device, paged_attention)
        ),
        reference=lambda device: one(device, _plain),
        tolerance=0.0,
        is_share=True,
    )


def _plain(*arguments: Any, is_deterministic: bool = False, **given: Any) -> torch.Tensor:
    return paged_attention_reference(*arguments, **given)


def _first_result(
    mode: str,
    device: torch.device,
    attention: Attention,
    *,
    block_seed: int = 1,
    is_alone: bool = False,
    is_deterministic: bool = False,
) -> torch.Tensor:
    """Of a decoding sequence, whose mates may be left out of the batch but not of the pool."""
    batch = make_batch(
        [(1, 2199), (30, 0), (4, 3000)],
        mode=mode,
        heads=PLAIN,
        device=device,
        store=store_kv_reference,
        block_seed=block_seed,
    )
    query, metadata = batch.query, batch.metadata
    if is_alone:
        query, metadata = query[:1], first_sequence(metadata)
    given = {"scale": batch.scale, "is_deterministic": is_deterministic}
    return attention(query, batch.pool.layer(0), metadata, **given)[:1]


def first_sequence(metadata: AttentionMetadata) -> AttentionMetadata:
    """The batch of the first sequence alone."""
    lengths = metadata.device_lengths
    assert lengths is not None, "bench batches have lengths on the device"
    return AttentionMetadata(
        query_starts=metadata.query_starts[:2],
        seq_lens=metadata.seq_lens[:1],
        block_tables=metadata.block_tables[:1],
        slot_mapping=metadata.slot_mapping[: metadata.query_starts[1]],
        device_lengths=DeviceLengths(
            query_starts=lengths.query_starts[:2],
            seq_lens=lengths.seq_lens[:1],
            max_query_len=metadata.query_starts[1],
            max_seq_len=metadata.seq_lens[0],
        ),
    )


def _rope(mode: str) -> Check:
    """Turned queries and all bytes of the pool: the share that differs, by roundings of sums."""

    def written(device: torch.device, write: Callable[..., torch.Tensor]) -> torch.Tensor:
        generator = torch.Generator(device).manual_seed(0)
        shape = LayerKVShape(num_kv_heads=2, head_dim=128, v_head_dim=128)
        layout = KVLayout(mode=mode, block_size=16, layers=(shape,))
        pool = KVPool(layout, num_blocks=6, device=device)
        count = 16 * 5
        rows = torch.randn(count, 12, 128, generator=generator, device=device, dtype=BF16)
        slots = torch.randperm(96, generator=torch.Generator().manual_seed(0))[:count].to(device)
        slots[::20] = -1
        angles = torch.rand(900, 32, generator=generator, device=device) * 6
        query, key, value = torch.split(rows, [8, 2, 2], dim=1)
        turned = write(
            query,
            key,
            value,
            pool.layer(0),
            slots,
            positions=torch.arange(count, device=device) + 100,
            cos=angles.cos(),
            sin=angles.sin(),
        )
        return torch.cat([turned.flatten().view(torch.uint8), pool.records.flatten()])

    return Check(
        name=f"RoPE and KV write {mode}",
        compare=lambda device: Compared(
            written(device, rope_store_kv), written(device, rope_store_kv_reference)
        ),
        reference=partial(written, write=rope_store_kv_reference),
        tolerance=ROPE_TOLERANCE,
        is_share=True,
    )
