"""KVLayout: where the keys and values of a block lie in its record, in bytes, for every KV mode.

The cache of a rank is one tensor of bytes, `[num_blocks, record_bytes]`. A block is one record
over all layers, so it is copied or swapped as one piece:

    record of a block   [ layer 0 | layer 1 | ... ]
    a layer             [ K codes | V codes | K scales | V scales ]
    codes               [num_kv_heads][block_size][bytes of a row]        head-major
    scales of 8 bits    [num_kv_heads][block_size] float32
    scales of 4 bits    [num_kv_heads][block_size][groups][2] float16     a scale, a minimum

Every part starts on a multiple of 16 bytes. No part is padded: block sizes are multiples of 8 and
quantized widths even (4-bit ones: multiples of 4), so a record is exactly the sum of its rows.

| mode | a key | a value | one number is |
|---|---|---|---|
| bfloat16, float16, float32 | plain | plain | itself |
| fp8_e4m3 | e4m3 | e4m3 | code x scale, scale = largest / 448 |
| int8 | int8 | int8 | code x scale, scale = largest / 127 |
| int8k_int4v | int8 | 4 bits | a value: code x scale + minimum, of its group |
| int4 | 4 bits | 4 bits | likewise, after a rotation of each group (rotation.py) |

Byte i of a 4-bit row holds element i in its low half and element i + width / 2 in its high half.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pagefleet_kernels.errors import ArgumentError

LARGEST_INT4_GROUP = 32
BLOCK_SIZE_UNIT = 8
_PLAIN_BYTES: Mapping[str, int] = MappingProxyType({"bfloat16": 2, "float16": 2, "float32": 4})
_SCALE_BYTES = 4  # float32 of a row, or two float16 of a group

# How a key and a value row are stored: a plain dtype, "fp8_e4m3", "int8" or "int4".
ROW_FORMATS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        **{name: (name, name) for name in (*_PLAIN_BYTES, "fp8_e4m3", "int8", "int4")},
        "int8k_int4v": ("int8", "int4"),
    }
)
KV_MODES = ("bfloat16", "float16", "float32", "fp8_e4m3", "int8", "int8k_int4v", "int4")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKVShape:
    """What one layer stores for one token."""

    num_kv_heads: int
    head_dim: int  # of a key
    v_head_dim: int

    @property
    def elements_per_token(self) -> int:
        return self.num_kv_heads * (self.head_dim + self.v_head_dim)


@dataclass(frozen=True, slots=True)
class LayerParts:
    """Offsets of one layer's parts in the record, in bytes; `end` is where the next one starts."""

    k_codes: int
    v_codes: int
    k_scales: int
    v_scales: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """The record of one block; ArgumentError for what no kernel can read."""

    mode: str
    block_size: int
    layers: tuple[LayerKVShape, ...]

    def __post_init__(self) -> None:
        if self.mode not in ROW_FORMATS:
            raise ArgumentError("mode", self.mode, f"must be one of {', '.join(KV_MODES)}")
        check_block_size(self.block_size)
        for each in self.layers:
            check_widths(self.mode, each.head_dim, each.v_head_dim)

    @property
    def record_bytes(self) -> int:
        """Bytes of one block over all layers, scales included."""
        return self.layer_offset(len(self.layers))

    def layer_offset(self, index: int) -> int:
        """Where a layer starts in the record; the number of layers gives the record's end."""
        return sum(
            each.num_kv_heads * self.block_size * row_bytes
            for each in self.layers[:index]
            for row_bytes in self._row_bytes(each)
        )

    def parts(self, index: int) -> LayerParts:
        start, shape = self.layer_offset(index), self.layers[index]
        offsets = [start]
        for row_bytes in self._row_bytes(shape):
            offsets.append(offsets[-1] + shape.num_kv_heads * self.block_size * row_bytes)
        return LayerParts(*offsets)

    def _row_bytes(self, shape: LayerKVShape) -> tuple[int, int, int, int]:
        """Bytes that one row adds to each part."""
        key, value = ROW_FORMATS[self.mode]
        return (
            code_bytes(key, shape.head_dim),
            code_bytes(value, shape.v_head_dim),
            scale_bytes(key, shape.head_dim),
            scale_bytes(value, shape.v_head_dim),
        )


def code_bytes(row_format: str, width: int) -> int:
    """Bytes of the codes of one row."""
    if row_format == "int4":
        return width // 2
    return width * _PLAIN_BYTES.get(row_format, 1)


def scale_bytes(row_format: str, width: int) -> int:
    """Bytes of the scales of one row."""
    if row_format in _PLAIN_BYTES:
        return 0
    return _SCALE_BYTES * (width // int4_group(width) if row_format == "int4" else 1)


def int4_group(width: int) -> int:
    """Elements that share a 4-bit scale: the largest power of two up to 32 that divides a row."""
    return min(LARGEST_INT4_GROUP, width & -width)


def check_block_size(block_size: int) -> None:
    if block_size < BLOCK_SIZE_UNIT or block_size % BLOCK_SIZE_UNIT:
        hint = f"must be a multiple of {BLOCK_SIZE_UNIT}, such as 16"
        raise ArgumentError("block_size", block_size, hint)


def check_widths(mode: str, head_dim: int, v_head_dim: int) -> None:
    """Refuse rows that a mode cannot store."""
    widths = {"head_dim": head_dim, "v_head_dim": v_head_dim}
    for (field, width), row_format in zip(widths.items(), ROW_FORMATS[mode], strict=True):
        unit = {"int4": 4, "int8": 2, "fp8_e4m3": 2}.get(row_format, 1)
        if width < 1 or width % unit:
            hint = f"{mode} stores multiples of {unit}; auto takes any width"
            raise ArgumentError(field, width, hint)
