"""RMSNorm and SiLU-mul at the widths of served models."""

from bench.aot_harness.gates import FITS_SHARED, NO_SPILLS, WIDE_LOADS, WIDE_STORES, resident
from bench.aot_harness.variant import KernelSource, Variant
from pagefleet_kernels.gpu.activation import BLOCK
from pagefleet_kernels.gpu.norm import norm_launch

WIDTHS = (576, 4096, 8192, 16384)
TESTED = (90,)  # the bench compiles the others too
GATES = (NO_SPILLS, FITS_SHARED, WIDE_LOADS, WIDE_STORES, resident(1))


def variants() -> list[Variant]:
    norms = [_norm(width, "bf16", casting="llama", has_residual=True) for width in WIDTHS]
    norms += [
        _norm(4096, "bf16", casting="gemma", has_residual=True),
        _norm(4096, "bf16", casting="llama", has_residual=False),
        _norm(4096, "fp16", casting="llama", has_residual=True),
    ]
    return [*norms, *(_silu_mul(element) for element in ("bf16", "fp16"))]


def _norm(width: int, element: str, *, casting: str, has_residual: bool) -> Variant:
    launch = norm_launch(width)
    tensors = ("x", "residual", "weight", "normed", "summed")
    source = KernelSource(
        function="pagefleet_kernels.gpu.norm:rms_norm_kernel",
        arguments={
            **dict.fromkeys(tensors, f"*{element}"),
            "num_rows": "i32",
            "width": "i32",
            "x_stride": "i32",
            "residual_stride": "i32",
            "eps": "fp32",
        },
        constants={
            "HAS_RESIDUAL": has_residual,
            "GEMMA": casting == "gemma",
            "ROWS": launch.rows,
            "BLOCK": launch.block,
        },
        aligned=(*tensors, "width", "x_stride", "residual_stride"),
        num_warps=launch.num_warps,
    )
    name = f"{width} {element} {casting}{' +residual' if has_residual else ''}"
    return Variant(kernel="rms_norm", variant=name, source=source, gates=GATES, tested=TESTED)


def _silu_mul(element: str) -> Variant:
    tensors, sizes = ("gate", "up", "target"), ("width", "gate_stride", "up_stride")
    source = KernelSource(
        function="pagefleet_kernels.gpu.activation:silu_mul_kernel",
        arguments={
            **dict.fromkeys(tensors, f"*{element}"),
            **dict.fromkeys(sizes, "i32"),
        },
        constants={"BLOCK": BLOCK},
        aligned=(*tensors, *sizes),
        num_warps=8,
    )
    return Variant(kernel="silu_mul", variant=element, source=source, gates=GATES, tested=TESTED)
