"""Writing keys and values in the interpreter: every byte against the torch reference.

Covered: every mode over widths, heads and block sizes, padding, strided rows, wider records, RoPE
of both layouts and of part of a row, tables as models make them, norms of heads; rows of zeros, of
outliers, of equal values, broken rows.
Left out: fused multiply-add, by which a GPU may differ in the last bit of a turned value.
"""

from typing import Any

import pytest
import torch

from pagefleet_kernels import KV_MODES, KVPool
from pagefleet_kernels import store_kv as store_kv_reference
from pagefleet_kernels.gpu.store import rope_store_kv, store_kv
from pagefleet_kernels.kv_pool import layer_cache
from pagefleet_kernels.norm import HeadNorms
from pagefleet_kernels.reference import read_sequence
from pagefleet_kernels.rope import rope_store_kv_reference
from tests.support.kv_pools import poisoned_pool

SHAPES = [  # widths, key heads, query heads, block size
    ((64, 128), 3, 6, 8),
    ((80, 96), 2, 2, 16),
    ((192, 128), 1, 5, 24),
    ((256, 64), 9, 9, 8),
]
SLOTS = torch.tensor([3, 47, -1, 8, 0, 20, 21, -7])
QUANTIZED = ["fp8_e4m3", "int8", "int8k_int4v", "int4"]


def rows(
    widths: tuple[int, int], num_kv_heads: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values, the awkward ones among them."""
    generator = torch.Generator().manual_seed(sum(widths))
    key, value = (
        torch.randn(len(SLOTS), num_kv_heads, width, generator=generator) for width in widths
    )
    key[0] = 0.0
    key[1, :, 5] = 300.0
    value[3] = 1.5
    value[4] = torch.arange(widths[1]) * 0.5 - 20.0  # halves: codes that lie between two
    value[5] *= 1e-6
    return key.to(dtype), value.to(dtype)


def pools(mode: str, shape: tuple[tuple[int, int], int, int, int]) -> list[KVPool]:
    widths, num_kv_heads, _, block_size = shape
    return [
        poisoned_pool(
            mode,
            block_size=block_size,
            num_blocks=7,
            num_kv_heads=num_kv_heads,
            widths=widths,
            num_layers=2,
        )
        for _ in range(2)
    ]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mode", KV_MODES)
def test_every_byte_is_the_reference_s(
    mode: str, shape: tuple[tuple[int, int], int, int, int]
) -> None:
    widths, num_kv_heads, _, _ = shape
    found, expected = pools(mode, shape)
    dtype = getattr(torch, mode) if mode in ("float16", "float32") else torch.bfloat16
    key, value = rows(widths, num_kv_heads, dtype)
    store_kv(key, value, found.layer(1), SLOTS)
    store_kv_reference(key, value, expected.layer(1), SLOTS)
    assert torch.equal(found.records, expected.records)
    assert (found.records != 0xFF).any()


@pytest.mark.parametrize("is_interleaved", [False, True])
@pytest.mark.parametrize(
    ("mode", "shape", "rotary_dim"),
    [
        ("bfloat16", SHAPES[0], 64),
        ("float32", SHAPES[1], 40),
        ("fp8_e4m3", SHAPES[2], 64),
        ("int8", SHAPES[3], 256),
        ("int8k_int4v", SHAPES[1], 80),
        ("int4", SHAPES[1], 20),
        ("int4", SHAPES[0], 32),
    ],
)
def test_turned_rows_are_the_reference_s(
    mode: str,
    shape: tuple[tuple[int, int], int, int, int],
    rotary_dim: int,
    is_interleaved: bool,
) -> None:
    widths, num_kv_heads, num_heads, _ = shape
    dtype = torch.float32 if mode == "float32" else torch.bfloat16
    found, expected = pools(mode, shape)
    key, value = rows(widths, num_kv_heads, dtype)
    query = torch.randn(len(SLOTS), num_heads, widths[0]).to(dtype)
    angles = torch.rand(40, rotary_dim // 2) * 6.0
    options: dict[str, Any] = {
        "positions": torch.tensor([5, 39, 0, 7, 0, 1, 2, 3]),
        "cos": angles.cos(),
        "sin": angles.sin(),
    }
    turned = rope_store_kv(
        query, key, value, found.layer(0), SLOTS, is_interleaved=is_interleaved, **options
    )
    reference = rope_store_kv_reference(
        query, key, value, expected.layer(0), SLOTS, is_interleaved=is_interleaved, **options
    )
    assert torch.equal(turned, reference)
    assert torch.equal(found.records, expected.records)
    assert not torch.equal(turned, query), "no row was turned"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("has_norms", [False, True])
def test_rows_of_one_product_are_turned_by_a_models_own_tables(
    dtype: torch.dtype, has_norms: bool
) -> None:
    """Heads side by side in one tensor; a cos and sin per token, twice in a row."""
    mode = str(dtype).removeprefix("torch.")
    found, expected = pools(mode, SHAPES[1])
    product = torch.cat([each.flatten(1) for each in rows((80, 96), 2, dtype)], dim=1)
    product = torch.cat([torch.randn(len(SLOTS), 2 * 80).to(dtype), product], dim=1)
    query, key, value = product.split([160, 160, 192], dim=1)
    angles = (torch.rand(len(SLOTS), 20) * 6.0).repeat(1, 2)
    weights = (1 + torch.randn(2, 80)).to(dtype)
    arguments = (
        query.unflatten(1, (2, 80)),
        key.unflatten(1, (2, 80)),
        value.unflatten(1, (2, 96)),
    )
    options: dict[str, Any] = {
        "cos": angles.cos().to(dtype)[:, :20],
        "sin": angles.sin().to(dtype)[:, :20],
        "norms": HeadNorms(query=weights[0], key=weights[1], eps=1e-6) if has_norms else None,
    }
    turned = rope_store_kv(*arguments, found.layer(0), SLOTS, **options)
    reference = rope_store_kv_reference(*arguments, expected.layer(0), SLOTS, **options)
    atol, rtol = (1e-5, 1e-5) if dtype is torch.float32 else (0.0, 0.01)
    torch.testing.assert_close(turned, reference, atol=atol, rtol=rtol)
    for part in ("keys", "values"):
        one, other = (getattr(each.layer(0), part).codes for each in (found, expected))
        torch.testing.assert_close(one, other, atol=atol, rtol=rtol, equal_nan=True)


@pytest.mark.parametrize("mode", ["bfloat16", "int8", "int4"])
def test_rows_and_records_may_be_strided(mode: str) -> None:
    narrow, expected = pools(mode, SHAPES[0])
    wide = torch.full((7, narrow.layout.record_bytes + 48), 0xFF, dtype=torch.uint8)
    cache = layer_cache(wide[:, : narrow.layout.record_bytes], narrow.layout, 1)
    key, value = rows((64, 128), 3, torch.bfloat16)
    fused = torch.zeros(len(SLOTS), 3, 250, dtype=torch.bfloat16)
    fused[..., 40:104], fused[..., 110:238] = key, value
    store_kv(fused[..., 40:104], fused[..., 110:238], cache, SLOTS)
    store_kv_reference(key, value, expected.layer(1), SLOTS)
    assert torch.equal(wide[:, : narrow.layout.record_bytes], expected.records)
    assert (wide[:, narrow.layout.record_bytes :] == 0xFF).all()


@pytest.mark.filterwarnings("ignore:All-NaN slice")
@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("mode", QUANTIZED)
def test_a_broken_row_stays_broken_and_alone(mode: str, broken: float) -> None:
    found, clean = pools(mode, SHAPES[0])
    key, value = rows((64, 128), 3, torch.bfloat16)
    store_kv(key, value, clean.layer(0), SLOTS)
    key[4, 1, 9], value[4, 1, 100] = broken, broken
    store_kv(key, value, found.layer(0), SLOTS)
    block = torch.tensor([SLOTS[4] // 8])
    for part, intact in zip(
        read_sequence(found.layer(0), block, 8),
        read_sequence(clean.layer(0), block, 8),
        strict=True,
    ):
        assert not part[1, 0].isfinite().all()
        assert torch.equal(part[0, 0], intact[0, 0]) and part[0, 0].isfinite().all()


def test_nothing_to_write() -> None:
    pool, untouched = pools("int8", SHAPES[0])
    key, value = rows((64, 128), 3, torch.bfloat16)
    store_kv(key[:0], value[:0], pool.layer(0), SLOTS[:0])
    assert torch.equal(pool.records, untouched.records)
