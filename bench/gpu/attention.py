"""Decoding and prefill at the shapes of served models."""

import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from bench.gpu.batches import LLAMA_8B, Heads, make_batch
from bench.gpu.cases import Case
from bench.gpu.floors import decode_bytes, kv_token_bytes, prefill_flops
from bench.gpu.marks import decode_mark, most_ratio, prefill_mark
from bench.gpu.timing import Call, buffers_for
from pagefleet_kernels.gpu.attention import paged_attention

MODES = ("bfloat16", "fp8_e4m3", "int8", "int8k_int4v", "int4")
BATCHES = (
    (1, 4096), (1, 32768), (1, 131072), (8, 8192), (32, 2048), (64, 4096), (128, 1024), (128, 4096),
    (256, 512),
)  # fmt: skip
OTHER_HEADS = (
    Heads(num_heads=28, num_kv_heads=4),
    Heads(num_heads=64, num_kv_heads=8),
    Heads(num_heads=16, num_kv_heads=16, head_dim=64),
    Heads(num_heads=32, num_kv_heads=32, head_dim=80),
    Heads(num_heads=8, num_kv_heads=1, head_dim=256),
    Heads(num_heads=48, num_kv_heads=8, head_dim=96),
)
PREFILLS = {
    "512": [(512, 0)],
    "2048": [(2048, 0)],
    "8192": [(8192, 0)],
    "512 after 7680": [(512, 7680)],
    "16 of 32 to 512": [(query, 0) for query in random.Random(0).choices(range(32, 513), k=16)],
    "4 prefill, 60 decode": [(512, 0)] * 4 + [(1, 4095)] * 60,
}
Sequences = Sequence[tuple[int, int]]


def decode_cases() -> list[Case]:
    cases = [_decode(mode, batch, length) for batch, length in BATCHES for mode in MODES]
    cases += [
        _decode(mode, 64, 4096, heads=heads)
        for heads in OTHER_HEADS
        for mode in ("bfloat16", "int8")
    ]
    cases += [
        _decode(mode, 64, 4096, block_size=size)
        for size in (32, 64)
        for mode in ("bfloat16", "int4")
    ]
    features: dict[str, dict[str, Any]] = {
        "window 1024": {"window": 1024},
        "window 4096": {"window": 4096},
        "softcap 50": {"softcap": 50.0},
        "alibi": {"alibi_slopes": 0.1},
        "sinks": {"sinks": 0.5},
    }
    cases += [_decode("bfloat16", 64, 4096, features=item) for item in features.items()]
    return [*cases, *(_ragged(mode) for mode in MODES)]


def prefill_cases() -> list[Case]:
    return [
        _prefill(name, sequences, mode)
        for name, sequences in PREFILLS.items()
        for mode in ("bfloat16", "fp8_e4m3", "int8")
    ]


def _decode(
    mode: str,
    batch: int,
    length: int,
    *,
    heads: Heads = LLAMA_8B,
    block_size: int = 16,
    features: tuple[str, Mapping[str, Any]] = ("", {}),
) -> Case:
    is_plain = heads == LLAMA_8B and block_size == 16 and not features[0]
    name = f"B={batch} L={length}"
    if not is_plain:
        name += f" {heads} block={block_size} {features[0]}".rstrip()
    seen = min(length, features[1].get("window", length))
    return _decode_case(
        name,
        [(1, length - 1)] * batch,
        mode,
        num_bytes=_bytes(mode, [seen] * batch, heads),
        bf16_bytes=_bytes("bfloat16", [seen] * batch, heads),
        mark=decode_mark(mode, batch=batch, length=length) if is_plain else None,
        heads=heads,
        block_size=block_size,
        options=features[1],
    )


def _ragged(mode: str) -> Case:
    """Lengths from 16 to 16384, as many between 16 and 32 as between 8192 and 16384."""
    draw = random.Random(0)
    lengths = [int(math.exp(draw.uniform(math.log(16), math.log(16384)))) for _ in range(64)]
    return _decode_case(
        "B=64 ragged 16 to 16384",
        [(1, length - 1) for length in lengths],
        mode,
        num_bytes=_bytes(mode, lengths, LLAMA_8B),
        bf16_bytes=_bytes("bfloat16", lengths, LLAMA_8B),
    )


def _bytes(mode: str, lengths: Sequence[int], heads: Heads) -> int:
    return decode_bytes(
        mode,
        lengths,
        num_heads=heads.num_heads,
        num_kv_heads=heads.num_kv_heads,
        head_dim=heads.head_dim,
    )


def _decode_case(
    name: str,
    sequences: Sequences,
    mode: str,
    *,
    num_bytes: float,
    bf16_bytes: float,
    mark: float | None = None,
    heads: Heads = LLAMA_8B,
    block_size: int = 16,
    options: Mapping[str, Any] | None = None,
) -> Case:
    prepare = partial(
        _calls,
        sequences,
        mode=mode,
        heads=heads,
        block_size=block_size,
        num_layers=buffers_for(num_bytes),
        options=options or {},
    )
    return Case(
        name=f"{name} {mode}",
        prepare=prepare,
        num_bytes=num_bytes,
        mark=mark,
        base=f"{name} bfloat16" if mode != "bfloat16" else None,
        most_ratio=most_ratio(mode, bf16_bytes=bf16_bytes),
        kernel=f"decode {heads} {block_size} {' '.join(options or {})} {mode}",
    )


def _prefill(name: str, sequences: Sequences, mode: str) -> Case:
    each = {"num_kv_heads": LLAMA_8B.num_kv_heads, "head_dim": LLAMA_8B.head_dim}
    stored = sum(query + cached for query, cached in sequences) * kv_token_bytes(mode, **each)
    flops = prefill_flops(sequences, num_heads=LLAMA_8B.num_heads, head_dim=LLAMA_8B.head_dim)
    query_len, cached = sequences[0]
    return Case(
        name=f"{name} {mode}",
        prepare=partial(
            _calls, sequences, mode=mode, heads=LLAMA_8B, num_layers=min(8, buffers_for(stored))
        ),
        flops=flops,
        mark=prefill_mark(mode, query_len=query_len, cached=cached),
        base=f"{name} bfloat16" if mode != "bfloat16" else None,
        kernel=f"prefill {mode}",
    )


def _calls(
    sequences: Sequences,
    device: torch.device,
    *,
    mode: str,
    heads: Heads,
    num_layers: int,
    block_size: int = 16,
    options: Mapping[str, Any] | None = None,
) -> list[Call]:
    """One call a layer: layers are the data that is rotated among."""
    batch = make_batch(
        sequences,
        mode=mode,
        heads=heads,
        device=device,
        block_size=block_size,
        num_layers=num_layers,
    )
    extra: dict[str, Any] = {
        name: torch.full((heads.num_heads,), value, device=device)
        if name in ("sinks", "alibi_slopes")
        else value
        for name, value in (options or {}).items()
    }
    return [
        partial(
            paged_attention,
            batch.query,
            batch.pool.layer(index),
            batch.metadata,
            scale=batch.scale,
            out=torch.empty_like(batch.query),
            **extra,
        )
        for index in range(num_layers)
    ]
