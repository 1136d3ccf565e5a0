"""The merge of split attention's partial results."""

import torch

from bench.aot_harness.attention import LEAST_RESIDENT, NUM_HEADS, NUM_KV_HEADS
from bench.aot_harness.caches import HEAD_DIMS, one_block
from bench.aot_harness.gates import FITS_SHARED, NO_SPILLS, WIDE_LOADS, resident
from bench.aot_harness.variant import KernelSource, Variant
from pagefleet_kernels.gpu.constants import shape_of
from pagefleet_kernels.gpu.launch import (
    MOST_SPLITS,
    REDUCE_REGISTERS,
    power_of_two,
    reduce_heads,
)

POINTERS = {
    "out_ptr": "*bf16",
    "partial_ptr": "*bf16",
    "stats_ptr": "*fp32",
    "starts_ptr": "*i32",
}
STRIDES = ("out_token_stride", "out_head_stride")
TESTED = (90,)  # the bench compiles the others too


def variants() -> list[Variant]:
    gates = (NO_SPILLS, FITS_SHARED, WIDE_LOADS, resident(LEAST_RESIDENT))
    return [
        Variant(
            kernel="split_reduction",
            variant=f"d{width}",
            source=_source(width),
            gates=gates,
            tested=TESTED,
        )
        for width in HEAD_DIMS
    ]


def _source(width: int) -> KernelSource:
    cache = one_block("bfloat16", (width, width), NUM_KV_HEADS)
    shape = shape_of(NUM_HEADS, torch.bfloat16, cache)
    return KernelSource(
        function="pagefleet_kernels.gpu.reduce_kernel:reduce_kernel",
        arguments={**POINTERS, **dict.fromkeys(("most_query", "splits", *STRIDES), "i32")},
        constants={
            "sinks_ptr": None,
            "NUM_HEADS": NUM_HEADS,
            "V_WIDTH": width,
            "V_PADDED": power_of_two(width),
            "HEADS": reduce_heads(shape),
            "SPLITS_PADDED": MOST_SPLITS,
            "HAS_SINKS": False,
        },
        aligned=(*POINTERS, *STRIDES),
        max_registers=REDUCE_REGISTERS,
    )
