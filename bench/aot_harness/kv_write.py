"""Writing keys and values of every KV mode and head dim, turned by RoPE, normalized or not."""

from bench.aot_harness.caches import HEAD_DIMS, MODES, arches_of, one_block, pointers
from bench.aot_harness.gates import FITS_SHARED, NO_SPILLS, resident
from bench.aot_harness.variant import Constant, KernelSource, Variant
from pagefleet_kernels.gpu.constants import scales_of, store_constants
from pagefleet_kernels.gpu.store import NUM_WARPS

NUM_HEADS, NUM_KV_HEADS = 32, 8
GATES = (NO_SPILLS, FITS_SHARED, resident(4))
NORMED_WIDTH = 128  # of Qwen3's heads
NORMS = ("query_norm_ptr", "key_norm_ptr")
ABSENT = ("k_scale_ptr", "v_scale_ptr", "positions_ptr", *NORMS)  # where nothing needs them
STRIDES = (
    *(f"{rows}_{each}_stride" for rows in ("query", "key", "value") for each in ("token", "head")),
    "table_stride",
)


def variants() -> list[Variant]:
    turned = [_variant(mode, width) for mode in MODES for width in HEAD_DIMS]
    return [*turned, *(_variant(mode, NORMED_WIDTH, has_norms=True) for mode in MODES)]


def _variant(mode: str, width: int, *, has_norms: bool = False) -> Variant:
    return Variant(
        kernel="kv_write",
        variant=f"{mode}-d{width}{'-norm' if has_norms else ''}",
        source=_source(mode, width, has_norms=has_norms),
        gates=GATES,
        arches=arches_of(mode),
        tested=(90,) if width == 128 else (),
    )


def _source(mode: str, width: int, *, has_norms: bool) -> KernelSource:
    cache = one_block(mode, (width, width), NUM_KV_HEADS)
    rows = ("query_ptr", "query_out_ptr", "key_ptr", "value_ptr", "cos_ptr", "sin_ptr")
    there = {
        **dict.fromkeys((*rows, *(NORMS if has_norms else ())), "*bf16"),
        "slots_ptr": "*i64",
        **pointers(
            k_ptr=cache.k_codes,
            v_ptr=cache.v_codes,
            k_scale_ptr=scales_of(cache.keys).tensor,
            v_scale_ptr=scales_of(cache.values).tensor,
        ),
    }
    constants: dict[str, Constant] = {
        **{name: None for name in ABSENT if name not in there},
        **store_constants(cache, num_heads=NUM_HEADS, rotary_dim=width, is_interleaved=False),
    }
    return KernelSource(
        function="pagefleet_kernels.gpu.store_kernel:store_kernel",
        arguments={**there, "eps": "fp32", **dict.fromkeys((*STRIDES, "record_stride"), "i32")},
        constants=constants,
        aligned=(*there, *STRIDES),
        num_warps=NUM_WARPS,
    )
