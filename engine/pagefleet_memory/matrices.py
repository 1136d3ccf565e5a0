"""Matrix: one weight tensor as engines hold it, and what tensor parallelism leaves of it."""

from dataclasses import dataclass
from typing import Literal

from pagefleet_memory.packing import packed_bytes

# Which dimension tensor parallelism cuts; `whole` matrices are on every rank.
Split = Literal["rows", "columns", "whole"]


@dataclass(frozen=True, slots=True)
class Matrix:
    """One tensor of [rows, columns], or `copies` of it stacked (experts)."""

    name: str  # path inside its layer, fused as engines fuse: "self_attn.qkv_proj"
    rows: int  # outputs
    columns: int  # inputs; 1 for vectors
    split: Split
    kv_rows: int = 0  # of `rows`, those of KV heads, which are copied where ranks outnumber them
    copies: int = 1
    packing: str = ""  # quantized form, see packing.py; empty for plain floats

    @property
    def parameters(self) -> int:
        """Elements of all copies."""
        return self.rows * self.columns * self.copies

    def plain_shape(self, ranks: int, *, kv_heads: int = 1, kv_local: int = 1) -> tuple[int, int]:
        """Rows and columns that one of `ranks` holds of each copy."""
        if self.split == "columns":
            return self.rows, _ceil(self.columns, ranks)
        if self.split == "whole":
            return self.rows, self.columns
        kv_rows = _ceil(self.kv_rows * kv_local, kv_heads)
        return _ceil(self.rows - self.kv_rows, ranks) + kv_rows, self.columns

    def bytes_of(self, rows: int, columns: int, element_bytes: int) -> int:
        """Bytes of one copy cut to this shape."""
        if self.packing:
            return packed_bytes(self.packing, rows, columns)
        return rows * columns * element_bytes


def linear(
    name: str, rows: int, columns: int, split: Split, *, kv_rows: int = 0, bias: bool = False
) -> tuple[Matrix, ...]:
    """A projection and, where it has one, its bias; the bias of a cut input stays whole."""
    matrix = Matrix(name, rows, columns, split, kv_rows)
    if not bias:
        return (matrix,)
    bias_split: Split = "rows" if split == "rows" else "whole"
    return matrix, Matrix(f"{name}.bias", rows, 1, bias_split, kv_rows)


def vector(name: str, width: int, split: Split = "whole", *, kv_rows: int = 0) -> Matrix:
    """A norm or another one-dimensional parameter."""
    return Matrix(name, width, 1, split, kv_rows)


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
