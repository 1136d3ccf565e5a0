"""Products with int4 and fp8 weights, for every tile that the heuristic can choose."""

from bench.aot_harness.gates import (
    FITS_SHARED,
    NO_INT_TO_FLOAT,
    NO_SPILLS,
    TENSOR_CORES,
    WIDE_LOADS,
    WIDE_STORES,
    resident,
)
from bench.aot_harness.variant import Gate, KernelSource, Variant
from pagefleet_kernels.gpu import fp8_matmul, int4_matmul
from pagefleet_kernels.gpu.split_k import BLOCK_K, LargestTile, MatmulLaunch, matmul_launch

FLOATS = ("bf16", "fp16")
SIZES = {"num_rows": "i32", "width": "i32", "x_stride": "i32"}
TESTED = (90,)  # the bench compiles the others too
GATES = (NO_SPILLS, FITS_SHARED, WIDE_LOADS, TENSOR_CORES)
FP8_ARCHES = (90, 100)  # sm_80 has no fp8


def variants() -> list[Variant]:
    made = [_int4("bf16", _launch(rows, int4_matmul.TILE), parts=1) for rows in (1, 32)]
    made += [_int4(element, _launch(1, int4_matmul.TILE), parts=8) for element in FLOATS]
    made += [_int4("bf16", _launch(32, int4_matmul.TILE), parts=1, group=each) for each in (32, 64)]
    made += [_int4("bf16", _launch(32, int4_matmul.TILE), parts=1, has_zeros=False)]
    made += [_fp8(_launch(rows, fp8_matmul.TILE), parts=1) for rows in (1, 32, 64)]
    made += [_fp8(_launch(1, fp8_matmul.TILE), parts=8)]
    return [*made, *(_dequantize(element) for element in FLOATS), _add_parts()]


def _launch(num_rows: int, tile: LargestTile) -> MatmulLaunch:
    return matmul_launch(
        tile, num_rows=num_rows, in_features=4096, out_features=4096, num_processors=132
    )


def _int4(
    element: str, launch: MatmulLaunch, *, parts: int, group: int = 128, has_zeros: bool = True
) -> Variant:
    zeros = ("zeros",) if has_zeros else ()
    tensors = ("x", "codes", "scales", *zeros, "target")
    source = KernelSource(
        function="pagefleet_kernels.gpu.int4_matmul:int4_matmul_kernel",
        arguments={
            "x": f"*{element}",
            "codes": "*u8",
            "scales": f"*{element}",
            **dict.fromkeys(zeros, "*u8"),
            "target": f"*{element}" if parts == 1 else "*fp32",
            **SIZES,
            "num_groups": "i32",
        },
        constants={
            "HALF": group // 2,
            "PARTS": parts,
            "BLOCK_M": launch.block_m,
            "BLOCK_N": launch.block_n,
            **({} if has_zeros else {"zeros": None}),
        },
        aligned=(*tensors, "width", "x_stride", "num_groups"),
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
        max_registers=launch.max_registers,
    )
    return Variant(
        kernel="int4_matmul",
        variant=f"{_name(element, launch, parts)}{_special(group, has_zeros)}",
        source=source,
        gates=(*_int4_gates(group), NO_INT_TO_FLOAT, resident(2)),
        tested=TESTED,
    )


def _fp8(launch: MatmulLaunch, *, parts: int) -> Variant:
    constants = {
        "PARTS": parts,
        "BLOCK_M": launch.block_m,
        "BLOCK_N": launch.block_n,
        "BLOCK_K": BLOCK_K,
    }
    arguments = {"x": "*bf16", "codes": "*fp8e4nv", **SIZES, "depth": "i32"}
    arguments["target"] = "*bf16" if parts == 1 else "*fp32"
    if parts == 1:
        arguments["scales"] = "*fp32"
    tensors = ("x", "codes", "target", *(("scales",) if parts == 1 else ()))
    source = KernelSource(
        function="pagefleet_kernels.gpu.fp8_matmul:fp8_matmul_kernel",
        arguments=arguments,
        constants={**constants, **({} if parts == 1 else {"scales": None})},
        aligned=(*tensors, "width", "x_stride", "depth"),
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
        max_registers=launch.max_registers,
    )
    return Variant(
        kernel="fp8_matmul",
        variant=_name("bf16", launch, parts),
        source=source,
        gates=(*GATES, resident(2)),
        arches=FP8_ARCHES,
        tested=TESTED,
    )


def _name(element: str, launch: MatmulLaunch, parts: int) -> str:
    return f"{element} {launch.block_m}x{launch.block_n} parts={'1' if parts == 1 else 'n'}"


def _int4_gates(group: int) -> tuple[Gate, ...]:
    """A step of small groups has fewer bytes than its threads can load at their widest."""
    return GATES if group == 128 else tuple(gate for gate in GATES if gate is not WIDE_LOADS)


def _special(group: int, has_zeros: bool) -> str:
    return ("" if group == 128 else f" g{group}") + ("" if has_zeros else " no zeros")


def _dequantize(element: str) -> Variant:
    source = KernelSource(
        function="pagefleet_kernels.gpu.int4_matmul:dequantize_int4_kernel",
        arguments={
            "codes": "*u8",
            "scales": f"*{element}",
            "zeros": "*u8",
            "target": f"*{element}",
            "width": "i32",
            "num_groups": "i32",
        },
        constants={"HALF": 64, "BLOCK": int4_matmul.DEQUANTIZE_ROWS},
        aligned=("codes", "scales", "zeros", "target", "width", "num_groups"),
    )
    return Variant(
        kernel="dequantize_int4",
        variant=element,
        source=source,
        gates=(NO_SPILLS, FITS_SHARED, NO_INT_TO_FLOAT, WIDE_LOADS, WIDE_STORES),
        tested=TESTED,
    )


def _add_parts() -> Variant:
    source = KernelSource(
        function="pagefleet_kernels.gpu.split_k:add_parts_kernel",
        arguments={
            "parts": "*fp32",
            "scales": "*fp32",
            "target": "*bf16",
            "size": "i32",
            "width": "i32",
        },
        constants={"PARTS": 8, "BLOCK": 1024},
        aligned=("parts", "scales", "target", "size", "width"),
    )
    return Variant(
        kernel="add_parts",
        variant="8 parts bf16",
        source=source,
        gates=(NO_SPILLS, FITS_SHARED, WIDE_LOADS),
        tested=TESTED,
    )
