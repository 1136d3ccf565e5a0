"""Load rows of the paged cache into a tile; 4-bit rows become float16 without a conversion."""

import triton
import triton.language as tl


@triton.jit
def load_rows(
    rows_ptr,
    offsets,  # [rows] of each row's first element
    exists,  # [rows]: the others are zero, whatever memory holds
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,
    MASKED: tl.constexpr,  # False: all exist
):
    """Rows of WIDTH elements as [rows, PADDED], zero beyond WIDTH."""
    column = tl.arange(0, PADDED)
    place = rows_ptr + offsets[:, None] + column[None, :]
    if MASKED:
        if PADDED == WIDTH:
            rows = tl.load(place, mask=exists[:, None], other=0.0)
        else:
            rows = tl.load(place, mask=exists[:, None] & (column < WIDTH)[None, :], other=0.0)
    else:
        if PADDED == WIDTH:
            rows = tl.load(place)
        else:
            rows = tl.load(place, mask=(column < WIDTH)[None, :], other=0.0)
    return rows


@triton.jit
def load_scales(scales_ptr, offsets, exists, MASKED: tl.constexpr):
    """The scale of each row, [rows] float32."""
    if MASKED:
        scales = tl.load(scales_ptr + offsets, mask=exists, other=0.0)
    else:
        scales = tl.load(scales_ptr + offsets)
    return scales


@triton.jit
def load_int4(
    codes_ptr,
    offsets,  # [rows] of each row's first byte
    scales_ptr,  # int32: float16 scale in the low half, float16 minimum in the high half
    scale_offsets,  # [rows] of each row's first group
    exists,
    WIDTH: tl.constexpr,  # elements of a row
    PADDED: tl.constexpr,  # of half a row, a power of two
    INT4_GROUP: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Elements 0 .. WIDTH / 2 and the others: two float16 [rows, PADDED], zero where padded.

    Byte i of a row holds element i in its low half and element i + WIDTH / 2 in its high half. A
    chunk is what neighbouring bytes share a group in both halves: then a scale is loaded once for
    a chunk instead of once for an element.
    """
    CHUNK: tl.constexpr = chunk_width(WIDTH, INT4_GROUP)
    CHUNKS: tl.constexpr = PADDED // CHUNK
    ROWS: tl.constexpr = offsets.shape[0]
    column = tl.arange(0, PADDED)
    place = codes_ptr + offsets[:, None] + column[None, :]
    chunk = tl.arange(0, CHUNKS)
    first_group = scales_ptr + scale_offsets[:, None] + (chunk * CHUNK // INT4_GROUP)[None, :]
    last_group = (
        scales_ptr + scale_offsets[:, None] + ((WIDTH // 2 + chunk * CHUNK) // INT4_GROUP)[None, :]
    )
    inside = (column < WIDTH // 2)[None, :]
    inside_chunk = (chunk * CHUNK < WIDTH // 2)[None, :]
    if MASKED:
        inside = inside & exists[:, None]
        inside_chunk = inside_chunk & exists[:, None]
    if MASKED or PADDED * 2 != WIDTH:
        codes = tl.load(place, mask=inside, other=0)
        low_scales = tl.load(first_group, mask=inside_chunk, other=0)
        high_scales = tl.load(last_group, mask=inside_chunk, other=0)
    else:
        codes = tl.load(place)
        low_scales = tl.load(first_group)
        high_scales = tl.load(last_group)
    codes = tl.reshape(codes, [ROWS, CHUNKS, CHUNK]).to(tl.uint16)
    low = scaled(codes & 0xF, low_scales)
    high = scaled(codes >> 4, high_scales)
    return tl.reshape(low, [ROWS, PADDED]), tl.reshape(high, [ROWS, PADDED])


@triton.jit
def scaled(codes, scales):
    """codes [rows, chunks, chunk] * scale + minimum of scales [rows, chunks], float16.

    A code in the low bits of 1024.0 is 1024 + code: exact, and no integer is converted, which
    would be several times slower.
    """
    values = (codes | 0x6400).to(tl.float16, bitcast=True) - 1024.0
    scale = (scales & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True)
    minimum = ((scales >> 16) & 0xFFFF).to(tl.uint16).to(tl.float16, bitcast=True)
    return values * scale[:, :, None] + minimum[:, :, None]


@triton.constexpr_function
def chunk_width(width, int4_group):
    """The largest power of two that divides half a row and a group."""
    half = width // 2
    return min(half & -half, int4_group)


@triton.constexpr_function
def number_type(name):
    """"bfloat16", "float16" or "float32" as Triton's type."""
    return getattr(tl, name)
