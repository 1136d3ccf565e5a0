"""The copy of block records."""

from bench.aot_harness.gates import FITS_SHARED, NO_SPILLS, WIDE_LOADS, WIDE_STORES, resident
from bench.aot_harness.variant import KernelSource, Variant


def variants() -> list[Variant]:
    source = KernelSource(
        function="pagefleet_kernels.gpu.block_copy:copy_blocks_kernel",
        arguments={
            "records": "*i64",
            "pairs": "*i64",
            "stride_units": "i32",
            "record_units": "i32",
        },
        constants={"CHUNK": 1024},
        aligned=("records", "pairs"),
        num_warps=8,
    )
    gates = (NO_SPILLS, FITS_SHARED, WIDE_LOADS, WIDE_STORES, resident(4))
    return [Variant(kernel="block_copy", variant="records", source=source, gates=gates)]
