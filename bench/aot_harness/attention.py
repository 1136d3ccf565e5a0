"""Paged attention: decoding and prefill of every KV mode and head dim, as they are launched."""

from collections.abc import Iterator

import torch

from bench.aot_harness.caches import (
    HEAD_DIMS,
    MODES,
    arches_of,
    one_block,
    pointer,
    pointers,
)
from bench.aot_harness.gates import (
    FITS_SHARED,
    NO_INT_TO_FLOAT,
    NO_SPILLS,
    TENSOR_CORES,
    WGMMA,
    WIDE_LOADS,
    resident,
)
from bench.aot_harness.variant import Constant, Gate, KernelSource, Variant
from pagefleet_kernels.gpu.constants import (
    attention_constants,
    read_views,
    scales_of,
    shape_of,
)
from pagefleet_kernels.gpu.launch import AttentionShape, TileLaunch, decode_tile, prefill_tile
from pagefleet_kernels.kv_pool import LayerCache

NUM_HEADS, NUM_KV_HEADS = 32, 8
LEAST_RESIDENT = 2  # programs that wait for memory in turn
SPECULATIVE_QUERY = 8  # tokens
ALWAYS = (NO_SPILLS, FITS_SHARED, WIDE_LOADS, TENSOR_CORES)
FEATURES = ("WINDOW", "SOFTCAP", "SINKS", "SLOPES")
STRIDES = ("query_token_stride", "query_head_stride", "out_token_stride", "out_head_stride")
INTEGERS = (
    "window",
    "num_seqs",
    "least_query",
    "most_query",
    "splits",
    "split_shift",
    "split_tokens",
    "table_stride",
    "record_stride",
    *STRIDES,
)


def variants() -> list[Variant]:
    return [*_decode(), *_prefill()]


def _decode() -> Iterator[Variant]:
    for mode, width, v_width in _layers():
        yield _decode_variant(mode, (width, v_width))
    for mode in MODES:  # the largest row tile
        for width in (128, 256):
            yield _decode_variant(mode, (width, width), query_len=SPECULATIVE_QUERY)
    yield _decode_variant("bfloat16", (128, 128), features=FEATURES)
    yield _decode_variant("int8", (128, 128), features=FEATURES)
    yield _decode_variant("float16", (128, 128), dtype="float16")
    yield _decode_variant("int8", (128, 128), dtype="float16")


def _prefill() -> Iterator[Variant]:
    for mode, width, v_width in _layers():
        yield from _prefill_variants(mode, (width, v_width))
    yield from _prefill_variants("bfloat16", (128, 128), features=FEATURES)
    yield from _prefill_variants("float16", (128, 128), dtype="float16")


def _layers() -> list[tuple[str, int, int]]:
    each = [(mode, width, width) for mode in MODES for width in HEAD_DIMS]
    return [*each, ("bfloat16", 192, 128), ("int8", 192, 128)]


def _decode_variant(
    mode: str,
    widths: tuple[int, int],
    *,
    dtype: str = "bfloat16",
    query_len: int = 1,
    features: tuple[str, ...] = (),
) -> Variant:
    cache = one_block(mode, widths, NUM_KV_HEADS)
    shape = shape_of(NUM_HEADS, getattr(torch, dtype), cache)
    tile = decode_tile(shape, query_len=query_len)
    source = _source(cache, shape, tile, is_prefill=False, features=features)
    name = _name(mode, widths, dtype, features) + (f"-q{query_len}" if query_len > 1 else "")
    gates = (*_gates(mode, features), *(() if query_len > 1 else (resident(LEAST_RESIDENT),)))
    return Variant(
        kernel="decode",
        variant=name,
        source=source,
        gates=gates,
        arches=arches_of(mode),
        tested=_tested(name, arches_of(mode)),
    )


def _prefill_variants(
    mode: str,
    widths: tuple[int, int],
    *,
    dtype: str = "bfloat16",
    features: tuple[str, ...] = (),
) -> Iterator[Variant]:
    """One for each tile, with the architectures that take it."""
    cache = one_block(mode, widths, NUM_KV_HEADS)
    shape = shape_of(NUM_HEADS, getattr(torch, dtype), cache)
    tiles: dict[TileLaunch, list[int]] = {}
    for arch in arches_of(mode):
        tiles.setdefault(prefill_tile(shape, capability=arch), []).append(arch)
    for tile, arches in tiles.items():
        source = _source(cache, shape, tile, is_prefill=True, features=features)
        size = f"m{tile.block_m}x{tile.tile}w{tile.num_warps}"
        name = f"{_name(mode, widths, dtype, features)}-{size}"
        gates = (*_gates(mode, features), WGMMA)
        yield Variant(
            kernel="prefill",
            variant=name,
            source=source,
            gates=gates,
            arches=tuple(arches),
            tested=_tested(name, tuple(arches)),
        )


def _tested(name: str, arches: tuple[int, ...]) -> tuple[int, ...]:
    """Width 128 of every mode for Hopper, of two modes for the others."""
    if "-d128" not in name or "-q" in name or "-float16" in name:
        return ()
    every = name.startswith(("bfloat16", "int8-")) and "features" not in name
    return tuple(arch for arch in arches if every or arch == 90)


def _gates(mode: str, features: tuple[str, ...]) -> tuple[Gate, ...]:
    """Slopes turn positions into numbers; otherwise codes would be all that is converted."""
    is_converting = mode in ("bfloat16", "float16") or "SLOPES" in features
    return ALWAYS if is_converting else (*ALWAYS, NO_INT_TO_FLOAT)


def _name(mode: str, widths: tuple[int, int], dtype: str, features: tuple[str, ...]) -> str:
    width = str(widths[0]) if widths[0] == widths[1] else f"{widths[0]}x{widths[1]}"
    computed = "" if dtype in ("bfloat16", mode) else f"-{dtype}"
    return f"{mode}{computed}-d{width}" + ("-features" if features else "")


def _source(
    cache: LayerCache,
    shape: AttentionShape,
    tile: TileLaunch,
    *,
    is_prefill: bool,
    features: tuple[str, ...],
) -> KernelSource:
    views, dtype = read_views(cache), shape.dtype
    per_head = {
        "sinks_ptr": pointer(dtype) if "SINKS" in features else None,
        "slopes_ptr": pointer("float32") if "SLOPES" in features else None,
        "stats_ptr": None if is_prefill else pointer("float32"),
    }
    there = {
        **dict.fromkeys(("query_ptr", "out_ptr"), pointer(dtype)),
        **dict.fromkeys(("starts_ptr", "lengths_ptr"), pointer("int32")),
        "tables_ptr": pointer("int64"),
        **pointers(
            k_ptr=views.keys,
            v_ptr=views.values,
            k_scale_ptr=scales_of(cache.keys).tensor,
            v_scale_ptr=scales_of(cache.values).tensor,
        ),
        **{name: kind for name, kind in per_head.items() if kind},
    }
    optional = (*per_head, "k_scale_ptr", "v_scale_ptr")
    constants: dict[str, Constant] = {
        **{name: None for name in optional if name not in there},
        **attention_constants(cache, shape),
        **{f"HAS_{name}": name in features for name in FEATURES},
        "BLOCK_M": tile.block_m,
        "TILE": tile.tile,
        "SEARCH": is_prefill,
        "SPLIT": not is_prefill,
    }
    return KernelSource(
        function="pagefleet_kernels.gpu.attention_kernel:attention_kernel",
        arguments={**there, **dict.fromkeys(INTEGERS, "i32"), "scale": "fp32", "softcap": "fp32"},
        constants=constants,
        aligned=(*there, *STRIDES),
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        max_registers=tile.max_registers,
    )
