"""How many bytes a weight matrix takes in a quantized form, scales and zero points included."""

import re
from functools import lru_cache

from pagefleet_memory.errors import ShapeError

# A packing is named by a short code:
#   fp8            one byte, an fp32 scale per output row
#   fp8-block      one byte, an fp32 scale per 128 x 128 block
#   int4, int8-g32, int4-g128, int4-g128-zp
#                  integers, an fp16 scale per output row or group, with packed zero points
#   nf4, nf4-dq    4-bit normal floats, an fp32 scale per 64 (double quantized: 8 bits, and an
#                  fp32 one per 256 of those)
#   mxfp4, nvfp4   4-bit floats with a one-byte scale per 32 or per 16
_INTEGER = re.compile(r"int(\d{1,2})(?:-g(\d{1,6}))?(-zp)?")
_BLOCK = 128
_NF4_GROUP = 64
_NF4_SCALES_PER_CONSTANT = 256


def packed_bytes(code: str, rows: int, columns: int) -> int:
    """Bytes of a matrix of `rows` outputs and `columns` inputs."""
    elements = rows * columns
    if code == "fp8":
        return elements + 4 * rows
    if code == "fp8-block":
        return elements + 4 * _ceil(rows, _BLOCK) * _ceil(columns, _BLOCK)
    if code == "mxfp4":
        return elements // 2 + _ceil(elements, 32)
    if code == "nvfp4":
        return elements // 2 + _ceil(elements, 16)
    if code in ("nf4", "nf4-dq"):
        return _normal_float_bytes(elements, double=code == "nf4-dq")
    bits, group, zero_points = _integer(code)
    groups = rows * _ceil(columns, group or columns)
    return _ceil(elements * bits, 8) + 2 * groups + (_ceil(groups * bits, 8) if zero_points else 0)


def check_packing(code: str) -> str:
    """The code itself; raises ShapeError where it names no packing."""
    packed_bytes(code, 1, 1)
    return code


def _normal_float_bytes(elements: int, *, double: bool) -> int:
    scales = _ceil(elements, _NF4_GROUP)
    constants = 4 * _ceil(scales, _NF4_SCALES_PER_CONSTANT)
    return _ceil(elements, 2) + (scales + constants if double else 4 * scales)


@lru_cache(maxsize=64)
def _integer(code: str) -> tuple[int, int, bool]:
    match = _INTEGER.fullmatch(code)
    if match is None:
        raise ShapeError(f"unknown packing {code!r}", field="packing", value=code)
    return int(match[1]), int(match[2] or 0), bool(match[3])


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
