"""Products with narrow weights, beside the library's product with bf16 ones."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F

from bench.gpu.cases import Case
from bench.gpu.floors import HALF, fp8_matmul_bytes, int4_matmul_bytes
from bench.gpu.marks import int4_matmul_mark
from bench.gpu.timing import Call, buffers_for
from pagefleet_kernels.fp8_matmul import quantize_fp8_weight
from pagefleet_kernels.gpu.fp8_matmul import fp8_matmul
from pagefleet_kernels.gpu.int4_matmul import int4_matmul
from pagefleet_kernels.int4_matmul import Int4Weight, pack_int4

ROWS = (1, 8, 16, 64, 256)
SHAPES = ((4096, 4096), (4096, 14336), (14336, 4096))  # in_features, out_features
MOST_WEIGHTS = 16
Make = Callable[[int, int, torch.device], Callable[[torch.Tensor], torch.Tensor]]


def cases() -> list[Case]:
    made = []
    for depth, width in SHAPES:
        for rows in ROWS:
            plain = (depth * width + rows * (depth + width)) * HALF
            made += [
                _case("bfloat16", rows, depth, width, plain, _bf16),
                _case("int4", rows, depth, width, int4_matmul_bytes(rows, depth, width), _int4),
                _case("fp8", rows, depth, width, fp8_matmul_bytes(rows, depth, width), _fp8),
            ]
    return made


def _case(kind: str, rows: int, depth: int, width: int, num_bytes: float, make: Make) -> Case:
    def prepare(device: torch.device) -> list[Call]:
        x = torch.randn(rows, depth, device=device, dtype=torch.bfloat16)
        count = min(MOST_WEIGHTS, buffers_for(num_bytes))
        return [partial(make(depth, width, device), x) for _ in range(count)]

    name = f"{rows} x {depth} x {width}"
    return Case(
        name=f"{name} {kind}",
        prepare=prepare,
        num_bytes=num_bytes,
        mark=int4_matmul_mark(rows) if kind == "int4" else None,
        base=None if kind == "bfloat16" else f"{name} bfloat16",
        kernel=f"{kind} {depth} x {width}",
    )


def _bf16(depth: int, width: int, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    weight = torch.randn(width, depth, device=device, dtype=torch.bfloat16)
    return lambda x: F.linear(x, weight)


def _int4(depth: int, width: int, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    weight = random_int4(depth, width, device)
    return lambda x: int4_matmul(x, weight)


def _fp8(depth: int, width: int, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
    weight = quantize_fp8_weight(torch.randn(width, depth, device=device))
    return lambda x: fp8_matmul(x, weight)


def random_int4(depth: int, width: int, device: torch.device) -> Int4Weight:
    groups = (depth // 128, width)
    codes = torch.randint(0, 16, (depth, width), device=device, dtype=torch.uint8)
    scales = torch.rand(groups, device=device) * 0.01 + 0.001
    zeros = torch.randint(0, 16, groups, device=device)
    return pack_int4(codes, scales.bfloat16(), zeros)
