"""Every kernel against its reference on this GPU, at the tolerances of the interpreted tests."""

from collections.abc import Callable
from functools import partial

import torch

from bench.gpu import attention_checks
from bench.gpu.attention import MODES
from bench.gpu.attention_checks import SEQUENCES
from bench.gpu.batches import Batch, Heads, Store, make_batch
from bench.gpu.cases import Check, Compared
from bench.gpu.matmuls import random_int4
from bench.gpu.memory_bound import sampling_rows
from pagefleet_kernels.activation import silu_mul_reference
from pagefleet_kernels.block_copy import copy_blocks_reference
from pagefleet_kernels.fp8_matmul import Fp8Weight, fp8_matmul_reference, quantize_fp8_weight
from pagefleet_kernels.gpu.activation import silu_mul
from pagefleet_kernels.gpu.attention import paged_attention
from pagefleet_kernels.gpu.block_copy import copy_blocks
from pagefleet_kernels.gpu.fp8_matmul import fp8_matmul
from pagefleet_kernels.gpu.int4_matmul import int4_matmul
from pagefleet_kernels.gpu.norm import add_rms_norm
from pagefleet_kernels.gpu.sampling import sample
from pagefleet_kernels.gpu.store import rope_store_kv, store_kv
from pagefleet_kernels.int4_matmul import Int4Weight, int4_matmul_reference
from pagefleet_kernels.kv_layout import KVLayout, LayerKVShape
from pagefleet_kernels.kv_pool import KVPool
from pagefleet_kernels.norm import CASTINGS, Casting, HeadNorms, add_rms_norm_reference
from pagefleet_kernels.reference import paged_attention_reference
from pagefleet_kernels.rope import rope_store_kv_reference
from pagefleet_kernels.sampling import sample_reference
from pagefleet_kernels.store_kv import store_kv as store_kv_reference

HEADS = (
    Heads(num_heads=8, num_kv_heads=2, head_dim=64),
    Heads(num_heads=6, num_kv_heads=2, head_dim=80),
    Heads(num_heads=8, num_kv_heads=2, head_dim=128),
    Heads(num_heads=4, num_kv_heads=1, head_dim=256),
)
ATTENTION_TOLERANCES = {"int4": 8e-3}
WRITE_TOLERANCE = 1e-4  # of all bytes
MATMUL_ROWS = (1, 17, 64, 300)
SAMPLED = ((0.0, 0, 1.0), (1.0, 0, 1.0), (0.8, 50, 1.0), (1.0, 0, 0.9))  # temperature, top_k, top_p

Make = Callable[[torch.device], torch.Tensor]


def checks() -> list[Check]:
    made = [_attention(mode, heads) for mode in MODES for heads in HEADS]
    made += attention_checks.checks()
    made += [_write(mode) for mode in MODES]
    made += [_turned(has_norms) for has_norms in (False, True)]
    made += [_norm(casting) for casting in CASTINGS]
    made += [_silu_mul(), _copy()]
    made += [_sample(*wish) for wish in SAMPLED]
    return [*made, *(_matmul(kind, rows) for kind in ("int4", "fp8") for rows in MATMUL_ROWS)]


def _check(
    name: str, found: Make, exact: Make, *, tolerance: float, is_share: bool = False
) -> Check:
    return Check(
        name=name,
        compare=lambda device: Compared(found(device), exact(device)),
        reference=exact,
        tolerance=tolerance,
        is_share=is_share,
    )


def _attention(mode: str, heads: Heads) -> Check:
    def attend(attention: Callable[..., torch.Tensor], device: torch.device) -> torch.Tensor:
        batch = _batch(mode, heads, device)
        return attention(batch.query, batch.pool.layer(1), batch.metadata, scale=batch.scale)

    return _check(
        f"attention {heads} {mode}",
        partial(attend, paged_attention),
        partial(attend, paged_attention_reference),
        tolerance=ATTENTION_TOLERANCES.get(mode, 5e-3),
    )


def _batch(
    mode: str, heads: Heads, device: torch.device, store: Store = store_kv_reference
) -> Batch:
    return make_batch(SEQUENCES, mode=mode, heads=heads, device=device, num_layers=2, store=store)


def _write(mode: str) -> Check:
    def records(store: Store, device: torch.device) -> torch.Tensor:
        return _batch(mode, HEADS[2], device, store).pool.records

    return _check(
        f"KV write {mode}",
        partial(records, store_kv),
        partial(records, store_kv_reference),
        tolerance=WRITE_TOLERANCE,
        is_share=True,
    )


def _turned(has_norms: bool) -> Check:
    """Queries and keys as a fused layer hands them over: a row of the tables for each token."""
    heads, tokens = HEADS[2], 33

    def ready(write: Callable[..., torch.Tensor], device: torch.device) -> torch.Tensor:
        shape = LayerKVShape(
            num_kv_heads=heads.num_kv_heads, head_dim=heads.head_dim, v_head_dim=heads.head_dim
        )
        layout = KVLayout(mode="bfloat16", block_size=16, layers=(shape,))
        pool = KVPool(layout, num_blocks=3, device=device)
        pool.records.zero_()
        key, value = _random(device, 2, tokens, heads.num_kv_heads, heads.head_dim)
        angles = _random(device, tokens, heads.head_dim // 2).float() * 9
        weight = _random(device, heads.head_dim)
        turned = write(
            _random(device, tokens, heads.num_heads, heads.head_dim),
            key,
            value,
            pool.layer(0),
            torch.arange(tokens, device=device),
            cos=angles.cos().bfloat16(),
            sin=angles.sin().bfloat16(),
            norms=HeadNorms(query=weight, key=weight, eps=1e-6) if has_norms else None,
        )
        return torch.cat([turned.flatten(), pool.layer(0).k_codes.flatten()])

    return _check(
        f"KV write turned{', normalized' if has_norms else ''}",
        partial(ready, rope_store_kv),
        partial(ready, rope_store_kv_reference),
        tolerance=4e-3,
    )


def _random(device: torch.device, *size: int) -> torch.Tensor:
    generator = torch.Generator(device).manual_seed(size[-1])
    return torch.randn(size, generator=generator, device=device, dtype=torch.bfloat16)


def _norm(casting: Casting) -> Check:
    def inputs(device: torch.device) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, residual = _random(device, 2, 33, 4096)
        return x, residual, _random(device, 4096)

    return _check(
        f"add + RMSNorm {casting}",
        lambda device: add_rms_norm(*inputs(device), eps=1e-6, casting=casting).normed,
        lambda device: add_rms_norm_reference(*inputs(device), eps=1e-6, casting=casting).normed,
        tolerance=4e-3,
    )


def _silu_mul() -> Check:
    return _check(
        "SiLU-mul",
        lambda device: silu_mul(*_random(device, 33, 2 * 14336).chunk(2, dim=1)),
        lambda device: silu_mul_reference(*_random(device, 33, 2 * 14336).chunk(2, dim=1)),
        tolerance=4e-3,
    )


def _copy() -> Check:
    def copied(
        copy: Callable[[torch.Tensor, torch.Tensor], None], device: torch.device
    ) -> torch.Tensor:
        generator = torch.Generator(device).manual_seed(0)
        size = (64, 40_000)
        records = torch.randint(0, 256, size, generator=generator, device=device, dtype=torch.uint8)
        pairs = torch.tensor([[63, 0], [5, 9], [-1, 7], [5, 11], [40, 62]], device=device)
        copy(records, pairs)
        return records

    return _check(
        "block copy",
        partial(copied, copy_blocks),
        partial(copied, copy_blocks_reference),
        tolerance=0.0,
        is_share=True,
    )


def _sample(temperature: float, top_k: int, top_p: float) -> Check:
    def draw(drawn: Callable[..., torch.Tensor], device: torch.device) -> torch.Tensor:
        logits = _random(device, 256, 32000).float() * 3
        rows = sampling_rows(256, device, temperature=temperature, top_k=top_k, top_p=top_p)
        return drawn(logits, rows)

    return _check(
        f"sampling temperature={temperature} top_k={top_k} top_p={top_p}",
        partial(draw, sample),
        partial(draw, sample_reference),
        tolerance=0.0 if temperature == 0 else 0.01,  # logarithms differ in the last bit
        is_share=True,
    )


def _matmul(kind: str, rows: int) -> Check:
    found, exact = (_int4_products if kind == "int4" else _fp8_products)(rows)
    return _check(f"{kind} matmul, {rows} rows", found, exact, tolerance=6e-3)


def _int4_products(rows: int) -> tuple[Make, Make]:
    def weight(device: torch.device) -> Int4Weight:
        torch.manual_seed(0)
        return random_int4(1024, 520, device)

    return (
        lambda device: int4_matmul(_random(device, rows, 1024), weight(device)),
        lambda device: int4_matmul_reference(_random(device, rows, 1024), weight(device)),
    )


def _fp8_products(rows: int) -> tuple[Make, Make]:
    def weight(device: torch.device) -> Fp8Weight:
        return quantize_fp8_weight(_random(device, 520, 1024))

    return (
        lambda device: fp8_matmul(_random(device, rows, 1024), weight(device)),
        lambda device: fp8_matmul_reference(_random(device, rows, 1024), weight(device)),
    )
