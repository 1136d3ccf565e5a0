"""Kernels on tensors so large that an offset of 32 bits would wrap: `far_addresses FOLDER`.

Files without content stand for memory: what is never written takes neither memory nor disk. Each
check runs in a process of its own, because a wrong address can end it; JSON to stdout tells how.
A stride of 2**31 or more would be passed in 64 bits: these are smaller, and what they are
multiplied with makes the product large.
"""

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from tests.support import triton_interpreter

triton_interpreter.install()

from pagefleet_kernels import KV_MODES, KVLayout, LayerKVShape  # noqa: E402
from pagefleet_kernels.fp8_matmul import fp8_matmul_reference, quantize_fp8_weight  # noqa: E402
from pagefleet_kernels.gpu import attention  # noqa: E402
from pagefleet_kernels.gpu.activation import silu_mul  # noqa: E402
from pagefleet_kernels.gpu.block_copy import copy_blocks  # noqa: E402
from pagefleet_kernels.gpu.constants import shape_of  # noqa: E402
from pagefleet_kernels.gpu.device import traits_of  # noqa: E402
from pagefleet_kernels.gpu.fp8_matmul import fp8_matmul  # noqa: E402
from pagefleet_kernels.gpu.int4_matmul import int4_matmul  # noqa: E402
from pagefleet_kernels.gpu.launch import SplitLaunch, decode_tile  # noqa: E402
from pagefleet_kernels.gpu.norm import add_rms_norm, rms_norm  # noqa: E402
from pagefleet_kernels.gpu.reduce_kernel import reduce_kernel  # noqa: E402
from pagefleet_kernels.gpu.sampling import sample  # noqa: E402
from pagefleet_kernels.gpu.store import rope_store_kv, store_kv  # noqa: E402
from pagefleet_kernels.int4_matmul import int4_matmul_reference, pack_int4  # noqa: E402
from pagefleet_kernels.kv_pool import layer_cache  # noqa: E402
from pagefleet_kernels.metadata import AttentionMetadata  # noqa: E402
from pagefleet_kernels.sampling import SamplingRows  # noqa: E402
from tests.support.attention_problems import lengths, problem  # noqa: E402

BF16 = torch.bfloat16
STRIDE = (1 << 30) + 64  # elements; twice this does not fit 32 bits
CACHE = KVLayout(
    mode="bfloat16",
    block_size=8,
    layers=(LayerKVShape(num_kv_heads=1, head_dim=64, v_head_dim=64),),
)


def room(folder: Path, count: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of zeros that takes no memory until it is written."""
    path = folder / f"room-{os.getpid()}"
    found = torch.from_file(str(path), shared=True, size=count, dtype=dtype)
    path.unlink()
    return found


def apart(folder: Path, rows: torch.Tensor) -> torch.Tensor:
    """The same three rows, STRIDE elements from each other."""
    far = room(folder, 2 * STRIDE + rows[0].numel(), rows.dtype)
    far = far.as_strided(rows.shape, (STRIDE, *rows[0].contiguous().stride()))
    return far.copy_(rows)


def numbers(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def far_pool(mode: str, folder: Path) -> None:
    """The last block lies past 2**31 units of 16 bytes, in which records are counted."""
    layout = replace(CACHE, mode=mode)
    far = (1 << 35) // layout.record_bytes + 5
    records = room(folder, (far + 1) * layout.record_bytes, torch.uint8)
    cache = layer_cache(records.view(far + 1, layout.record_bytes), layout, 0)
    key, value = numbers(2, 5, 1, 64).unbind()
    store_kv(key, value, cache, far * 8 + torch.arange(5), debug=True)
    query = numbers(1, 2, 64)
    for dtype in (torch.int64, torch.int32):
        tables = torch.tensor([[far]], dtype=dtype)
        metadata = AttentionMetadata((0, 1), (5,), tables, torch.tensor([0]))
        found = attention.paged_attention(query, cache, metadata, scale=0.125, debug=True)
        weights = (query[0].float() @ key[:, 0].float().T * 0.125).softmax(-1)
        exact = weights @ value[:, 0].float()
        torch.testing.assert_close(found[0].float(), exact, atol=0.3, rtol=0.3)


def far_rows_of_attention(folder: Path) -> None:
    """Queries, results and block tables whose rows are far apart, split or not."""
    given = problem([(1, 20), (1, 9), (1, 40)])
    for bound in (40, 4096):
        metadata = replace(
            given.metadata, device_lengths=lengths([(1, 20), (1, 9), (1, 40)], bound)
        )
        expected = attention.paged_attention(given.query, given.cache, metadata, **given.options)
        tables = metadata.block_tables.clamp(max=0x7FFFFFFF).int()
        apart_tables = replace(metadata, block_tables=apart(folder, tables))
        out = apart(folder, given.blank())
        query = apart(folder, given.query)
        attention.paged_attention(query, given.cache, apart_tables, out=out, **given.options)
        assert torch.equal(out, expected)


def many_splits(folder: Path) -> None:
    """The partial result of the last head lies past 2**31 elements."""
    given = problem([(1, 40)], heads=(24, 1))
    splits = (1 << 31) // (23 * 64) + 1
    call = attention._Call(
        query=given.query,
        out=given.blank(),
        cache=given.cache,
        metadata=given.metadata,
        lengths=lengths([(1, 40)], 40),
        shape=shape_of(24, BF16, given.cache),
        traits=traits_of(torch.device("cpu")),
        scale=0.125,
        window=None,
        softcap=None,
        sinks=None,
        alibi_slopes=None,
    )
    part = attention._Partial(
        room(folder, 24 * splits * 64, BF16).view(1, 1, 24, splits, 64),
        room(folder, 24 * splits * 2, torch.float32).view(1, 1, 24, splits, 2),
        SplitLaunch(splits=splits, split_tokens=1024),
    )
    tile = decode_tile(call.shape, query_len=1)
    attention._attend(call, (1, 1, 1), tile, bounds=(1, 1), partial=part)
    expected = attention.paged_attention(given.query, given.cache, given.metadata, **given.options)
    assert torch.equal(part.values[0, 0, :, 0], expected[0])


def merged_splits(folder: Path) -> None:
    """The second token's partial results lie past 2**31 numbers, its result past 2**31 as well."""
    heads, splits, width = 1 << 30, 2, 16
    values = room(folder, (heads + 1) * splits * width, BF16)
    stats = room(folder, (heads + 1) * splits * 2, torch.float32)
    values.view(-1, splits, width)[heads] = torch.tensor([[2.0], [4.0]])
    stats.view(-1, splits, 2)[[0, heads]] = torch.tensor([[3.0, 1.0], [3.0, 3.0]])
    out = room(folder, 2 * STRIDE + width, BF16)
    starts = torch.tensor([1, 3], dtype=torch.int32)
    reduce_kernel[(2, 1)](
        out, values, stats, starts, None, 2, splits, STRIDE, width,
        NUM_HEADS=heads, V_WIDTH=width, V_PADDED=width, HEADS=1, SPLITS_PADDED=2, HAS_SINKS=False,
    )  # fmt: skip
    assert (out[STRIDE : STRIDE + width] == 0).all()
    assert (out[2 * STRIDE :] == 3.5).all()


def far_rows_of_the_kv_write(folder: Path) -> None:
    near = numbers(3, 2, 64), numbers(3, 1, 64), numbers(3, 1, 64)
    query, key, value = (apart(folder, each) for each in near)
    expected, found = written(*near), written(query, key, value)
    assert torch.equal(expected, found)


def written(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The turned query and the records, as bytes."""
    records = torch.zeros(2, CACHE.record_bytes, dtype=torch.uint8)
    angles = torch.tensor([[0.1], [0.7], [0.2], [0.9]])
    turned = rope_store_kv(
        query,
        key,
        value,
        layer_cache(records, CACHE, 0),
        torch.tensor([3, 9, 1]),
        positions=torch.tensor([0, 3, 1]),
        cos=angles.cos(),
        sin=angles.sin(),
        debug=True,
    )
    return torch.cat([turned.view(torch.uint8).flatten(), records.flatten()])


def far_blocks_are_copied(folder: Path) -> None:
    """Past 2**31 words of 8 bytes."""
    record = 1 << 14
    records = room(folder, (1 << 34) + 4 * record, torch.uint8).view(-1, record)
    last = records.shape[0] - 1
    records[last] = torch.arange(record).to(torch.uint8)
    copy_blocks(records, torch.tensor([[last, last - 1]]), debug=True)
    assert torch.equal(records[last - 1], records[last])


def far_rows_of_the_small_kernels(folder: Path) -> None:
    x, weight = numbers(3, 64), numbers(64)
    far = apart(folder, x)
    assert torch.equal(rms_norm(far, weight, eps=1e-6), rms_norm(x, weight, eps=1e-6))
    summed = add_rms_norm(far, far, weight, eps=1e-6)
    assert torch.equal(summed.normed, add_rms_norm(x, x, weight, eps=1e-6).normed)
    assert torch.equal(silu_mul(far, far), silu_mul(x, x))
    ones = torch.ones(3)
    rows = SamplingRows(
        temperature=ones,
        top_k=torch.full((3,), 9, dtype=torch.int32),
        top_p=ones * 0.9,
        min_p=ones * 0.01,
        seeds=torch.arange(3),
        positions=torch.arange(3),
    )
    assert torch.equal(sample(far, rows), sample(x, rows))


def far_rows_of_the_products(folder: Path) -> None:
    x = numbers(3, 128)
    far = apart(folder, x)
    int4 = pack_int4(torch.arange(128 * 16).view(128, 16) % 16, numbers(1, 16), None)
    torch.testing.assert_close(int4_matmul(far, int4), int4_matmul_reference(x, int4))
    fp8 = quantize_fp8_weight(numbers(16, 128))
    torch.testing.assert_close(fp8_matmul(far, fp8), fp8_matmul_reference(x, fp8))


CHECKS: dict[str, Callable[[Path], None]] = {
    **{f"pool of {mode}": partial(far_pool, mode) for mode in KV_MODES if mode != "float32"},
    "rows of attention": far_rows_of_attention,
    "partial results": many_splits,
    "merged results": merged_splits,
    "rows of the KV write": far_rows_of_the_kv_write,
    "copied blocks": far_blocks_are_copied,
    "rows of small kernels": far_rows_of_the_small_kernels,
    "rows of products": far_rows_of_the_products,
}


def ends_well(check: Callable[[Path], None], folder: Path) -> bool:
    child = os.fork()
    if child == 0:
        try:
            check(folder)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps({name: ends_well(CHECKS[name], Path(sys.argv[1])) for name in CHECKS}))
