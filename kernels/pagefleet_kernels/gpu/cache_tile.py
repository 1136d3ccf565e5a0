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
def load_halves(
    rows_ptr, offsets, exists, WIDTH: tl.constexpr, PADDED: tl.constexpr, HALVES: tl.constexpr
):
    """Lower and upper halves (1) or even and odd columns (2) of rows: two [rows, PADDED]."""
    column = tl.arange(0, PADDED)
    inside = exists[:, None] & (column < WIDTH // 2)[None, :]
    if HALVES == 2:
        place = rows_ptr + offsets[:, None] + (column * 2)[None, :]
        next_half = 1
    else:
        place = rows_ptr + offsets[:, None] + column[None, :]
        next_half = WIDTH // 2
    low = tl.load(place, mask=inside, other=0.0)
    high = tl.load(place + next_half, mask=inside, other=0.0)
    return low, high


@triton.jit
def load_scales(scales_ptr, offsets, exists, MASKED: tl.constexpr):
    """The scale of each row, [rows] float32."""
    if MASKED:
        scales = tl.load(scales_ptr + offsets, mask=exists, other=0.0)
    else:
        scales = tl.load(scales_ptr + offsets)
    return scales


@triton.jit
def load_e4m3_pairs(
    pairs_ptr,  # int16: two codes
    offsets,
    exists,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,  # of half a row
    MASKED: tl.constexpr,
):
    """The even and the odd columns of e4m3 rows: two [rows, PADDED].

    A tile of bytes would be read from shared memory byte by byte where it is transposed.
    """
    pairs = load_rows(pairs_ptr, offsets, exists, WIDTH // 2, PADDED, MASKED)
    low = pairs.to(tl.int8).to(tl.float8e4nv, bitcast=True)
    high = (pairs >> 8).to(tl.int8).to(tl.float8e4nv, bitcast=True)
    return low, high


@triton.jit
def load_int8(
    words_ptr,  # int32: four codes
    offsets,
    exists,
    WIDTH: tl.constexpr,
    PADDED: tl.constexpr,  # of half a row
    MASKED: tl.constexpr,
):
    """The even and the odd columns of int8 rows: two float16 [rows, PADDED].

    A byte with its sign turned, in the low bits of 1024.0, is 1152 + code: exact, two at a time,
    and no integer is converted, which would be several times slower.
    """
    words = load_rows(words_ptr, offsets, exists, WIDTH // 4, PADDED // 2, MASKED)
    words = words.to(tl.uint32, bitcast=True)
    even = (words & 0x00FF00FF) ^ 0x64806480
    odd = ((words >> 8) & 0x00FF00FF) ^ 0x64806480
    shape: tl.constexpr = [offsets.shape[0], PADDED]
    low = tl.reshape(tl.join(low_half(even), high_half(even)), shape) - 1152.0
    high = tl.reshape(tl.join(low_half(odd), high_half(odd)), shape) - 1152.0
    return low, high


@triton.jit
def load_int4(
    words_ptr,  # int32: eight codes
    offsets,  # [rows] of each row's first word
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
    words = load_rows(words_ptr, offsets, exists, WIDTH // 8, PADDED // 4, MASKED)
    chunk = tl.arange(0, CHUNKS)
    first_group = scales_ptr + scale_offsets[:, None] + (chunk * CHUNK // INT4_GROUP)[None, :]
    last_group = (
        scales_ptr + scale_offsets[:, None] + ((WIDTH // 2 + chunk * CHUNK) // INT4_GROUP)[None, :]
    )
    inside = (chunk * CHUNK < WIDTH // 2)[None, :]
    if MASKED:
        inside = inside & exists[:, None]
    if MASKED or PADDED * 2 != WIDTH:
        low_scales = tl.load(first_group, mask=inside, other=0)
        high_scales = tl.load(last_group, mask=inside, other=0)
    else:
        low_scales = tl.load(first_group)
        high_scales = tl.load(last_group)
    words = words.to(tl.uint32, bitcast=True)
    low = four_codes(words & 0x000F000F, (words >> 8) & 0x000F000F) - 1024.0
    # 16 times a code: still exact, and no shift
    high = four_codes(words & 0x00F000F0, (words >> 8) & 0x00F000F0) * 0.0625 - 64.0
    low = scaled(tl.reshape(low, [ROWS, CHUNKS, CHUNK]), low_scales)
    high = scaled(tl.reshape(high, [ROWS, CHUNKS, CHUNK]), high_scales)
    return tl.reshape(low, [ROWS, PADDED]), tl.reshape(high, [ROWS, PADDED])


@triton.jit
def four_codes(even, odd):
    """Bytes 0 and 2, and bytes 1 and 3, of words as 1024 + byte: float16 [rows, words, 2, 2]."""
    even = even | 0x64006400
    odd = odd | 0x64006400
    return tl.join(tl.join(low_half(even), high_half(even)), tl.join(low_half(odd), high_half(odd)))


@triton.jit
def low_half(words):
    return words.to(tl.uint16).to(tl.float16, bitcast=True)


@triton.jit
def high_half(words):
    return (words >> 16).to(tl.uint16).to(tl.float16, bitcast=True)


@triton.jit
def scaled(codes, scales):
    """codes [rows, chunks, chunk] * scale + minimum of scales [rows, chunks], float16."""
    scales = scales.to(tl.uint32, bitcast=True)
    return codes * low_half(scales)[:, :, None] + high_half(scales)[:, :, None]


@triton.constexpr_function
def chunk_width(width, int4_group):
    """The largest power of two that divides half a row and a group."""
    half = width // 2
    return min(half & -half, int4_group)


@triton.constexpr_function
def number_type(name):
    """ "bfloat16", "float16" or "float32" as Triton's type."""
    return getattr(tl, name)
