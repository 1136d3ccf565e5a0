"""What the Triton kernels demand of their arguments; ArgumentError names the one that is wrong."""

import torch

from pagefleet_kernels.attention_checks import check_batch
from pagefleet_kernels.checks import check, check_tensor
from pagefleet_kernels.errors import ArgumentError
from pagefleet_kernels.gpu.device import traits_of
from pagefleet_kernels.kv_layout import BLOCK_SIZE_UNIT
from pagefleet_kernels.kv_pool import LayerCache
from pagefleet_kernels.metadata import AttentionMetadata
from pagefleet_kernels.norm import HeadNorms

HEAD_DIMS = (64, 80, 96, 128, 192, 256)
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
RECORD_UNIT_BYTES = 16
FP8_CAPABILITY = 89  # the first with conversions from e4m3


def check_attention(
    query: torch.Tensor,
    cache: LayerCache,
    metadata: AttentionMetadata,
    *,
    per_head: dict[str, torch.Tensor | None],
    out: torch.Tensor | None,
) -> None:
    check_cache(cache, query.device)
    check_rows("query", query, None, cache.head_dim, cache.k_codes.device)
    _check_metadata(metadata, query, block_size=cache.block_size)
    num_heads = query.shape[1]
    if num_heads == 0 or num_heads % cache.num_kv_heads:
        hint = f"the number of heads must be a multiple of the cache's {cache.num_kv_heads}"
        raise ArgumentError("query.shape[1]", num_heads, hint)
    for name, tensor in per_head.items():
        if tensor is not None:
            _check_device(name, tensor, query.device)
            _check_contiguous(name, tensor)
            if tensor.shape != (num_heads,):
                raise ArgumentError(
                    f"{name}.shape", tuple(tensor.shape), f"one a head: {num_heads}"
                )
    if out is not None:
        expected = (*query.shape[:2], cache.v_head_dim)
        if out.shape != expected or out.dtype != query.dtype:
            found = (tuple(out.shape), out.dtype)
            raise ArgumentError("out", found, f"must be {expected} of {query.dtype}")
        _check_device("out", out, query.device)
        _check_row_contiguous("out", out)


def _check_metadata(metadata: AttentionMetadata, query: torch.Tensor, *, block_size: int) -> None:
    device, tables, lengths = query.device, metadata.block_tables, metadata.device_lengths
    wide = (torch.int32, torch.int64)
    check_tensor("block_tables", tables, shape=(None, None), dtypes=wide, device=device)
    if lengths is None or metadata.query_starts:
        check_batch(query.shape[0], metadata, block_size=block_size)
    if lengths is None:
        return
    some = metadata.num_seqs > 0 or query.shape[0] == 0
    check(some, "block_tables.shape[0]", metadata.num_seqs, "the sequences of the query's tokens")
    for name, numbers, size in (
        ("query_starts", lengths.query_starts, metadata.num_seqs + 1),
        ("seq_lens", lengths.seq_lens, metadata.num_seqs),
    ):
        name = f"device_lengths.{name}"
        check_tensor(name, numbers, shape=(size,), dtypes=(torch.int32,), device=device)


def check_rows(
    name: str, rows: torch.Tensor, num_heads: int | None, width: int, device: torch.device
) -> None:
    """Rows [num_tokens, num_heads, width], each contiguous."""
    _check_device(name, rows, device)
    if rows.dtype not in DTYPES:
        raise ArgumentError(f"{name}.dtype", rows.dtype, "use bfloat16, float16 or float32")
    wrong_heads = num_heads is not None and rows.ndim == 3 and rows.shape[1] != num_heads
    if rows.ndim != 3 or rows.shape[2] != width or wrong_heads:
        heads = "num_heads" if num_heads is None else num_heads
        hint = f"the cache takes [num_tokens, {heads}, {width}]"
        raise ArgumentError(f"{name}.shape", tuple(rows.shape), hint)
    _check_row_contiguous(name, rows)


def check_store(
    key: torch.Tensor, value: torch.Tensor, cache: LayerCache, slots: torch.Tensor
) -> None:
    check_cache(cache, key.device)
    check_rows("key", key, cache.num_kv_heads, cache.head_dim, cache.k_codes.device)
    check_rows("value", value, cache.num_kv_heads, cache.v_head_dim, cache.k_codes.device)
    if value.shape[0] != key.shape[0]:
        raise ArgumentError("value.shape[0]", value.shape[0], f"key has {key.shape[0]} tokens")
    check_per_token("slots", slots, key)


def check_rope(
    query: torch.Tensor,
    key: torch.Tensor,
    *,
    positions: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> None:
    check_rows("query", query, None, key.shape[2], key.device)
    if query.shape[0] != key.shape[0]:
        raise ArgumentError("query.shape[0]", query.shape[0], f"key has {key.shape[0]} tokens")
    rows = "num_positions"
    if positions is None:
        rows = str(key.shape[0])
    else:
        check_per_token("positions", positions, key)
    for name, table in (("cos", cos), ("sin", sin)):
        _check_device(name, table, key.device)
        if table.dtype not in DTYPES or table.dtype != cos.dtype:
            raise ArgumentError(f"{name}.dtype", table.dtype, "use one of the rows' dtypes in both")
        is_short = positions is None and table.shape[:1] != key.shape[:1]
        if table.ndim != 2 or table.shape != cos.shape or is_short or not _fits(table, key):
            hint = f"cos and sin are [{rows}, 1 to {key.shape[2] // 2}]"
            raise ArgumentError(f"{name}.shape", tuple(table.shape), hint)
        _check_row_contiguous(name, table)
        if table.stride(0) != cos.stride(0):
            raise ArgumentError(f"{name}.stride(0)", table.stride(0), f"cos has {cos.stride(0)}")


def _fits(table: torch.Tensor, rows: torch.Tensor) -> bool:
    return 2 <= 2 * table.shape[1] <= rows.shape[2]


def check_head_norms(query: torch.Tensor, norms: HeadNorms) -> None:
    """Weights of the width and dtype of a head."""
    for name, weight in (("norms.query", norms.query), ("norms.key", norms.key)):
        check_tensor(
            name,
            weight,
            shape=(query.shape[2],),
            dtypes=(query.dtype,),
            device=query.device,
        )
    check(norms.eps > 0, "norms.eps", norms.eps, "above 0")


def check_per_token(name: str, numbers: torch.Tensor, rows: torch.Tensor) -> None:
    """One int64 a row."""
    _check_device(name, numbers, rows.device)
    if numbers.dtype != torch.int64:
        raise ArgumentError(f"{name}.dtype", numbers.dtype, "use int64")
    if numbers.shape != rows.shape[:1]:
        raise ArgumentError(f"{name}.shape", tuple(numbers.shape), f"one a token: {rows.shape[0]}")
    _check_contiguous(name, numbers)


def check_cache(cache: LayerCache, device: torch.device) -> None:
    """A cache that these kernels can read on this device."""
    for field, width in (("head_dim", cache.head_dim), ("v_head_dim", cache.v_head_dim)):
        if width not in HEAD_DIMS:
            raise ArgumentError(field, width, f"the kernels are built for {HEAD_DIMS}")
    if cache.block_size < BLOCK_SIZE_UNIT or cache.block_size % BLOCK_SIZE_UNIT:
        hint = f"must be a multiple of {BLOCK_SIZE_UNIT}, such as 16"
        raise ArgumentError("block_size", cache.block_size, hint)
    if cache.mode == "fp8_e4m3" and device.type == "cuda":
        check_fp8(traits_of(device).capability)
    record = cache.k_codes.stride(0) * cache.k_codes.element_size()
    for name, part in parts_of(cache).items():
        _check_device(name, part, device)
        bytes_each = part.stride(0) * part.element_size()
        if bytes_each != record or record % RECORD_UNIT_BYTES:
            hint = (
                f"all parts of a block lie in one record, a multiple of {RECORD_UNIT_BYTES} bytes"
            )
            raise ArgumentError(f"{name}.stride(0)", part.stride(0), hint)
        if part.shape[-1] > 1 and part.stride(-1) != 1:
            raise ArgumentError(f"{name}.stride(-1)", part.stride(-1), "rows must be contiguous")


def check_fp8(capability: int) -> None:
    """Refuse an e4m3 cache where no instruction reads it, such as on an A100."""
    if capability < FP8_CAPABILITY:
        hint = (
            f"the GPU has compute capability {capability / 10}, e4m3 needs "
            f"{FP8_CAPABILITY / 10}; use int8, which takes as many bytes and is more exact"
        )
        raise ArgumentError("kv_cache_dtype", "fp8_e4m3", hint)


def check_block_ids(metadata: AttentionMetadata, cache: LayerCache) -> None:
    """Refuse lengths that do not belong together, and ids past the pool in the used part of the
    tables; waits for the device."""
    starts, seq_lens = list(metadata.query_starts), list(metadata.seq_lens)
    if metadata.device_lengths is not None:
        starts = metadata.device_lengths.query_starts.tolist()
        seq_lens = metadata.device_lengths.seq_lens.tolist()
    for index, (row, seq_len) in enumerate(zip(metadata.block_tables, seq_lens, strict=True)):
        query_len = starts[index + 1] - starts[index]
        fits = 0 <= query_len and (seq_len == 0 or seq_len >= query_len)
        fits = fits and seq_len <= row.numel() * cache.block_size
        wanted = f"0, or {query_len} to {row.numel() * cache.block_size} tokens for its query"
        check(fits, f"seq_lens[{index}]", seq_len, wanted)
        used = row[: -(-seq_len // cache.block_size)]
        if used.numel() and not 0 <= int(used.min()) <= int(used.max()) < cache.num_blocks:
            hint = f"the pool has blocks 0 to {cache.num_blocks - 1}"
            raise ArgumentError("block_tables", used.tolist(), hint)


def check_slots(slots: torch.Tensor, cache: LayerCache) -> None:
    """Refuse slots past the pool; waits for the device."""
    last = cache.num_blocks * cache.block_size - 1
    if slots.numel() and int(slots.max()) > last:
        raise ArgumentError("slots", int(slots.max()), f"the pool's last slot is {last}")


def check_positions(positions: torch.Tensor, cos: torch.Tensor) -> None:
    """Refuse positions past the tables; waits for the device."""
    last = cos.shape[0] - 1
    if positions.numel() and not 0 <= int(positions.min()) <= int(positions.max()) <= last:
        found = positions.min().item(), positions.max().item()
        raise ArgumentError("positions", found, f"cos and sin hold positions 0 to {last}")


def parts_of(cache: LayerCache) -> dict[str, torch.Tensor]:
    """The cache's tensors by name; absent scales left out."""
    parts = {
        "k_codes": cache.k_codes,
        "v_codes": cache.v_codes,
        "k_scales": cache.k_scales,
        "v_scales": cache.v_scales,
    }
    return {name: part for name, part in parts.items() if part is not None}


def _check_device(name: str, tensor: torch.Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise ArgumentError(f"{name}.device", str(tensor.device), f"the others are on {device}")


def _check_contiguous(name: str, tensor: torch.Tensor) -> None:
    if not tensor.is_contiguous():
        raise ArgumentError(f"{name}.stride()", tensor.stride(), "must be contiguous")


def _check_row_contiguous(name: str, rows: torch.Tensor) -> None:
    if rows.shape[-1] > 1 and rows.stride(-1) != 1:
        raise ArgumentError(f"{name}.stride(-1)", rows.stride(-1), "rows must be contiguous")
