"""What moves bytes and little else: KV write, block copy, RMSNorm, SiLU-mul, sampling."""

from functools import partial

import torch

from bench.gpu.batches import LLAMA_8B
from bench.gpu.cases import Case
from bench.gpu.floors import (
    add_norm_bytes,
    block_copy_bytes,
    rope_store_bytes,
    sampling_bytes,
    silu_mul_bytes,
    store_bytes,
)
from bench.gpu.marks import elementwise_mark, store_mark
from bench.gpu.timing import Call, buffers_for
from pagefleet_kernels.gpu.activation import silu_mul
from pagefleet_kernels.gpu.block_copy import copy_blocks
from pagefleet_kernels.gpu.norm import add_rms_norm
from pagefleet_kernels.gpu.sampling import sample
from pagefleet_kernels.gpu.store import rope_store_kv, store_kv
from pagefleet_kernels.kv_layout import KVLayout, LayerKVShape
from pagefleet_kernels.kv_pool import KVPool
from pagefleet_kernels.sampling import SamplingRows

MODES = ("bfloat16", "fp8_e4m3", "int8", "int8k_int4v", "int4")
TOKENS = (1, 64, 2048, 16384)
WIDTHS = (2048, 4096, 8192)
INTERMEDIATE = 14336
RECORD_BYTES = 2 << 20  # of a block of 16 tokens in bf16, Llama-3-8B
PAIRS = (1, 16, 256)
SAMPLED_ROWS = (1, 32, 128, 512)
VOCABULARIES = (32000, 128256, 151936)


def cases() -> list[Case]:
    made = [_store(mode, tokens) for mode in MODES for tokens in (64, 4096, 16384)]
    made += [_rope_store(mode, tokens) for mode in MODES for tokens in (64, 4096, 16384)]
    made += [_copy(pairs) for pairs in PAIRS]
    made += [_norm(tokens, width) for tokens in TOKENS for width in WIDTHS]
    return [*made, *(_silu_mul(tokens) for tokens in TOKENS)]


def sampling_cases() -> list[Case]:
    return [
        _sample(rows, vocab_size, filters)
        for rows in SAMPLED_ROWS
        for vocab_size in VOCABULARIES
        for filters in (("none", 0, 1.0), ("top_p 0.9", 0, 0.9), ("top_k 50", 50, 1.0))
    ]


def _store(mode: str, num_tokens: int) -> Case:
    shape = {"num_kv_heads": LLAMA_8B.num_kv_heads, "head_dim": LLAMA_8B.head_dim}
    num_bytes = store_bytes(mode, num_tokens, **shape)

    def prepare(device: torch.device) -> list[Call]:
        layer = LayerKVShape(**shape, v_head_dim=LLAMA_8B.head_dim)
        count = buffers_for(num_bytes)
        layout = KVLayout(mode=mode, block_size=16, layers=(layer,) * count)
        pool = KVPool(layout, num_blocks=-(-num_tokens // 16) + 8, device=device)
        slots = torch.randperm(pool.num_blocks * 16, device=device)[:num_tokens]
        rows = (count, num_tokens, LLAMA_8B.num_kv_heads, LLAMA_8B.head_dim)
        keys, values = (torch.randn(rows, device=device, dtype=torch.bfloat16) for _ in range(2))
        return [
            partial(store_kv, keys[index], values[index], pool.layer(index), slots)
            for index in range(count)
        ]

    return Case(
        name=f"KV write {mode}, {num_tokens} tokens",
        prepare=prepare,
        num_bytes=num_bytes,
        mark=store_mark(num_tokens),
        kernel=f"KV write {mode}",
    )


def _rope_store(mode: str, num_tokens: int) -> Case:
    shape = {"num_kv_heads": LLAMA_8B.num_kv_heads, "head_dim": LLAMA_8B.head_dim}
    num_bytes = rope_store_bytes(mode, num_tokens, num_heads=LLAMA_8B.num_heads, **shape)

    def prepare(device: torch.device) -> list[Call]:
        heads = LLAMA_8B.num_heads + 2 * LLAMA_8B.num_kv_heads
        count = buffers_for(num_bytes)
        layer = LayerKVShape(**shape, v_head_dim=LLAMA_8B.head_dim)
        layout = KVLayout(mode=mode, block_size=16, layers=(layer,) * count)
        pool = KVPool(layout, num_blocks=-(-num_tokens // 16) + 8, device=device)
        slots = torch.randperm(pool.num_blocks * 16, device=device)[:num_tokens]
        positions = torch.randint(0, 8192, (num_tokens,), device=device)
        angles = torch.rand(8192, LLAMA_8B.head_dim // 2, device=device)
        size = (count, num_tokens, heads, LLAMA_8B.head_dim)
        fused = torch.randn(size, device=device, dtype=torch.bfloat16)
        parts = [LLAMA_8B.num_heads, LLAMA_8B.num_kv_heads, LLAMA_8B.num_kv_heads]
        write = partial(rope_store_kv, positions=positions, cos=angles.cos(), sin=angles.sin())
        calls: list[Call] = []
        for index, rows in enumerate(fused):
            query, key, value = torch.split(rows, parts, dim=1)
            calls.append(partial(write, query, key, value, pool.layer(index), slots))
        return calls

    return Case(
        name=f"RoPE and KV write {mode}, {num_tokens} tokens",
        prepare=prepare,
        num_bytes=num_bytes,
        mark=store_mark(num_tokens),
        kernel=f"RoPE and KV write {mode}",
    )


def _copy(num_pairs: int) -> Case:
    num_bytes = block_copy_bytes(num_pairs, RECORD_BYTES)

    def prepare(device: torch.device) -> list[Call]:
        count = buffers_for(num_bytes)
        blocks = torch.randperm(2 * num_pairs * count, device=device).view(count, num_pairs, 2)
        size = (2 * num_pairs * count, RECORD_BYTES)
        records = torch.randint(0, 256, size, device=device, dtype=torch.uint8)
        return [partial(copy_blocks, records, pairs) for pairs in blocks]

    mark = elementwise_mark(num_bytes)
    return Case(
        name=f"block copy, {num_pairs} of 2 MiB",
        prepare=prepare,
        num_bytes=num_bytes,
        mark=mark,
        kernel="block copy",
    )


def _norm(num_tokens: int, width: int) -> Case:
    num_bytes = add_norm_bytes(num_tokens, width)

    def prepare(device: torch.device) -> list[Call]:
        size = (buffers_for(num_bytes), 2, num_tokens, width)
        pairs = torch.randn(size, device=device, dtype=torch.bfloat16)
        weight = torch.randn(width, device=device, dtype=torch.bfloat16)
        return [partial(add_rms_norm, x, residual, weight, eps=1e-5) for x, residual in pairs]

    mark = elementwise_mark(num_bytes)
    return Case(
        name=f"add + RMSNorm {num_tokens} x {width}",
        prepare=prepare,
        num_bytes=num_bytes,
        mark=mark,
        kernel=f"add + RMSNorm {width}",
    )


def _silu_mul(num_tokens: int) -> Case:
    num_bytes = silu_mul_bytes(num_tokens, INTERMEDIATE)

    def prepare(device: torch.device) -> list[Call]:
        size = (buffers_for(num_bytes), num_tokens, 2 * INTERMEDIATE)
        gates = torch.randn(size, device=device, dtype=torch.bfloat16)
        return [partial(silu_mul, *gate_up.chunk(2, dim=1)) for gate_up in gates]

    mark = elementwise_mark(num_bytes)
    return Case(
        name=f"SiLU-mul {num_tokens} x {INTERMEDIATE}",
        prepare=prepare,
        num_bytes=num_bytes,
        mark=mark,
        kernel="SiLU-mul",
    )


def _sample(num_rows: int, vocab_size: int, filters: tuple[str, int, float]) -> Case:
    name, top_k, top_p = filters
    num_bytes = sampling_bytes(num_rows, vocab_size, 4)

    def prepare(device: torch.device) -> list[Call]:
        count = min(8, buffers_for(num_bytes))
        logits = torch.randn(count, num_rows, vocab_size, device=device) * 3
        rows = sampling_rows(num_rows, device, top_k=top_k, top_p=top_p)
        return [partial(sample, each, rows, any_filter=name != "none") for each in logits]

    return Case(
        name=f"sampling {num_rows} x {vocab_size}, {name}",
        prepare=prepare,
        num_bytes=num_bytes,
        kernel="sampling",
    )


def sampling_rows(
    num_rows: int, device: torch.device, *, temperature: float = 1.0, top_k: int, top_p: float
) -> SamplingRows:
    return SamplingRows(
        temperature=torch.full((num_rows,), temperature, device=device),
        top_k=torch.full((num_rows,), top_k, dtype=torch.int32, device=device),
        top_p=torch.full((num_rows,), top_p, device=device),
        min_p=torch.zeros(num_rows, device=device),
        seeds=torch.arange(num_rows, device=device),
        positions=torch.arange(num_rows, device=device),
    )
