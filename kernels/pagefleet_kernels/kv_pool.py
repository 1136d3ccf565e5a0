"""KVPool: the one tensor that holds all blocks of a rank, and each layer's views into it.

The bytes are laid out by kv_layout.py. Views have the strides of the records, which may be wider
than the layout: always take strides from `tensor.stride()`.
"""

from dataclasses import dataclass, field

import torch

from pagefleet_kernels.kv_layout import ROW_FORMATS, KVLayout, int4_group

FP8 = torch.float8_e4m3fn
_CODE_DTYPES = {
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float32": torch.float32,
    "fp8_e4m3": FP8,
    "int8": torch.int8,
    "int4": torch.uint8,
}


@dataclass(frozen=True, slots=True, eq=False)
class CachePart:
    """The keys or the values of one layer."""

    row_format: str  # a plain dtype, "fp8_e4m3", "int8" or "int4"
    width: int  # elements of a row
    codes: torch.Tensor  # [num_blocks, num_kv_heads, block_size, width or bytes of a 4-bit row]
    # 8 bits: [num_blocks, num_kv_heads, block_size] float32
    # 4 bits: [num_blocks, num_kv_heads, block_size, groups, 2] float16
    scales: torch.Tensor | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LayerCache:
    """Strided views of one layer's keys, values and scales in the pool; shapes as in CachePart."""

    mode: str
    block_size: int
    head_dim: int
    v_head_dim: int
    k_codes: torch.Tensor
    v_codes: torch.Tensor
    k_scales: torch.Tensor | None
    v_scales: torch.Tensor | None
    keys: CachePart = field(init=False)
    values: CachePart = field(init=False)

    def __post_init__(self) -> None:
        key, value = ROW_FORMATS[self.mode]
        keys = CachePart(key, self.head_dim, self.k_codes, self.k_scales)
        values = CachePart(value, self.v_head_dim, self.v_codes, self.v_scales)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "values", values)

    @property
    def num_blocks(self) -> int:
        return self.k_codes.shape[0]

    @property
    def num_kv_heads(self) -> int:
        return self.k_codes.shape[1]

    @property
    def is_rotated(self) -> bool:
        """Whether keys and values are stored rotated (rotation.py)."""
        return self.mode == "int4"


class KVPool:
    """All blocks, zeroed: a masked position is multiplied by zero, and stray memory can be NaN."""

    def __init__(self, layout: KVLayout, *, num_blocks: int, device: torch.device) -> None:
        self.layout = layout
        self.records = torch.zeros(
            num_blocks, layout.record_bytes, dtype=torch.uint8, device=device
        )  # [num_blocks, record_bytes]
        self._layers = [
            layer_cache(self.records, layout, index) for index in range(len(layout.layers))
        ]

    def layer(self, index: int) -> LayerCache:
        return self._layers[index]

    @property
    def num_blocks(self) -> int:
        return self.records.shape[0]

    @property
    def num_bytes(self) -> int:
        return self.records.nbytes

    def clear(self, blocks: torch.Tensor) -> None:
        """Zero blocks before their first row is written: a failed request may have left a NaN."""
        # Words, not bytes: an eighth of the elements to fill.
        self.records.view(torch.int64).index_fill_(0, blocks, 0)


def layer_cache(records: torch.Tensor, layout: KVLayout, index: int) -> LayerCache:
    """One layer's views into uint8 records `[num_blocks, record_bytes]`, of any row stride that
    is a multiple of 16."""
    shape, parts = layout.layers[index], layout.parts(index)
    key, value = ROW_FORMATS[layout.mode]
    bytes_of = {
        "k_codes": records[:, parts.k_codes : parts.v_codes],
        "v_codes": records[:, parts.v_codes : parts.k_scales],
        "k_scales": records[:, parts.k_scales : parts.v_scales],
        "v_scales": records[:, parts.v_scales : parts.end],
    }
    rows = (records.shape[0], shape.num_kv_heads, layout.block_size)
    return LayerCache(
        mode=layout.mode,
        block_size=layout.block_size,
        head_dim=shape.head_dim,
        v_head_dim=shape.v_head_dim,
        k_codes=_codes(bytes_of["k_codes"], rows, key),
        v_codes=_codes(bytes_of["v_codes"], rows, value),
        k_scales=_scales(bytes_of["k_scales"], rows, key, shape.head_dim),
        v_scales=_scales(bytes_of["v_scales"], rows, value, shape.v_head_dim),
    )


def _codes(part: torch.Tensor, rows: tuple[int, int, int], row_format: str) -> torch.Tensor:
    """[num_blocks, num_kv_heads, block_size, width], in 4 bits half of it."""
    return part.view(code_dtype(row_format)).view(*rows, -1)


def _scales(
    part: torch.Tensor, rows: tuple[int, int, int], row_format: str, width: int
) -> torch.Tensor | None:
    if part.shape[1] == 0:
        return None
    if row_format == "int4":
        return part.view(torch.float16).view(*rows, width // int4_group(width), 2)
    return part.view(torch.float32).view(rows)


def code_dtype(row_format: str) -> torch.dtype:
    """The element type of the codes; two 4-bit codes share a byte."""
    return _CODE_DTYPES[row_format]
