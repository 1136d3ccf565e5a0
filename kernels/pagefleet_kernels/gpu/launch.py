"""How attention is launched: tiles, warps and splits, from shapes alone.

Nothing is tuned or measured when a model is served: every choice is a function of what the host
knows before a step, so a captured graph stays right. Lengths are read on the device.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from pagefleet_kernels.kv_layout import ROW_FORMATS

MOST_DECODE_QUERY = 8  # tokens of a sequence that still decode: speculative steps verify as many
SMALLEST_ROW_TILE = 16  # what one matrix instruction takes
LARGEST_DECODE_ROW_TILE = 32
LEAST_TOKENS_OF_SPLIT = 1024  # a partial result costs less than 3 % of the keys that it read
MOST_SPLITS = 64
SPLIT_TOKENS = 1024  # of every split, where results must not depend on the batch
PROGRAMS_PER_PROCESSOR = 2
NARROW, WIDE = 64, 128  # elements of a row: a program keeps fewer of wider ones at once
# Keys of narrower rows at once and, by KV mode, stages: such that no register is spilled and two or
# more programs share a processor, which hides what each waits for (bench/results/aot.md).
DECODE_TILE = 64
DECODE_STAGES: Mapping[str, int] = MappingProxyType({"int8": 2, "int4": 2})
FLOAT32_TILE = 16  # for checks: it has no matrix instruction of full precision
HOPPER = 90  # compute capability 9.0
# Of a thread, and stated: the assembler would rather spill a few bytes than take one register more
# than lets another program onto the processor. 168: three programs of four warps share it.
MOST_REGISTERS = 255
REGISTERS_OF_THREE = 168
REDUCE_ELEMENTS = 2048  # of one program
REDUCE_REGISTERS = 128  # four programs share a processor
STORE_ELEMENTS = 1024  # of one program


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """One layer on one rank."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    v_head_dim: int
    kv_mode: str
    dtype: str  # of queries: "bfloat16", "float16" or "float32"

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.num_heads // self.num_kv_heads

    @property
    def formats(self) -> tuple[str, str]:
        return ROW_FORMATS[self.kv_mode]

    @property
    def is_plain(self) -> bool:
        """Whether numbers are stored as they are."""
        return self.kv_mode in ("bfloat16", "float16", "float32")

    @property
    def is_unpacked(self) -> bool:
        """Whether codes are taken out of words."""
        return not self.is_plain and self.kv_mode != "fp8_e4m3"

    @property
    def widest(self) -> int:
        """The wider of keys and values, as padded to a power of two."""
        return power_of_two(max(self.head_dim, self.v_head_dim))


@dataclass(frozen=True, slots=True, kw_only=True)
class TileLaunch:
    """One program's share."""

    block_m: int  # rows: tokens x heads of a group
    tile: int  # keys at once
    num_warps: int
    num_stages: int
    max_registers: int = MOST_REGISTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitLaunch:
    """How a sequence's keys are divided among programs."""

    splits: int  # a power of two, where keys are divided evenly
    split_tokens: int  # 0: evenly


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below a positive number."""
    return 1 << (number - 1).bit_length()


def decode_tile(shape: AttentionShape, *, query_len: int) -> TileLaunch:
    """For up to `query_len` tokens a sequence."""
    is_short_of_registers = shape.widest > WIDE and shape.kv_mode == "int4"
    most = SMALLEST_ROW_TILE if is_short_of_registers else LARGEST_DECODE_ROW_TILE
    block_m = min(max(power_of_two(shape.group * query_len), SMALLEST_ROW_TILE), most)
    if shape.dtype == "float32":
        return TileLaunch(block_m=block_m, tile=FLOAT32_TILE, num_warps=4, num_stages=1)
    if block_m > SMALLEST_ROW_TILE:
        tile = 32 if shape.is_unpacked or shape.widest > WIDE else 64
        return TileLaunch(block_m=block_m, tile=tile, num_warps=4, num_stages=2)
    if shape.widest > WIDE:
        num_stages = 3 if shape.kv_mode == "int8" else 2
        return TileLaunch(block_m=block_m, tile=32, num_warps=4, num_stages=num_stages)
    is_padded = shape.widest > max(shape.head_dim, shape.v_head_dim)
    return TileLaunch(
        block_m=block_m,
        tile=DECODE_TILE // 2 if is_padded and "int4" in shape.formats else DECODE_TILE,
        num_warps=4,
        num_stages=DECODE_STAGES.get(shape.kv_mode, 3),
        max_registers=MOST_REGISTERS if shape.kv_mode == "int4" else REGISTERS_OF_THREE,
    )


def prefill_tile(shape: AttentionShape, *, capability: int) -> TileLaunch:
    """16 rows for a warp: fewer, and warps would compute the same; so 64 on Hopper for four."""
    if shape.dtype == "float32":
        return TileLaunch(block_m=32, tile=FLOAT32_TILE, num_warps=4, num_stages=1)
    if capability < HOPPER:
        return _prefill_tile_before_hopper(shape)
    if shape.is_plain and shape.widest <= WIDE:
        return TileLaunch(block_m=128, tile=64, num_warps=8, num_stages=3)
    if shape.is_plain:
        return TileLaunch(block_m=128, tile=32, num_warps=8, num_stages=2)
    if shape.widest > WIDE:
        num_stages = 1 if shape.kv_mode == "int4" else 2
        return TileLaunch(block_m=128, tile=16, num_warps=8, num_stages=num_stages)
    tile = 64 if shape.widest <= NARROW else 32
    return TileLaunch(block_m=128, tile=tile, num_warps=8, num_stages=2)


def _prefill_tile_before_hopper(shape: AttentionShape) -> TileLaunch:
    if shape.widest > NARROW and shape.kv_mode == "int4":
        return TileLaunch(block_m=16, tile=32, num_warps=4, num_stages=2)
    if shape.widest > WIDE:
        return TileLaunch(block_m=64, tile=32, num_warps=8, num_stages=2)
    tile = 16 if shape.widest > NARROW and shape.is_unpacked else 32
    return TileLaunch(block_m=64, tile=tile, num_warps=4, num_stages=2)


def split_launch(
    shape: AttentionShape,
    *,
    num_seqs: int,
    row_tiles: int,
    max_seq_len: int,
    num_processors: int,
    is_deterministic: bool,
) -> SplitLaunch:
    """Enough programs for every processor, and enough keys for every program.

    `row_tiles` is of one sequence and key head, `max_seq_len` a bound that the host knows.
    Deterministic splits have one length, so that a sequence's sums do not depend on its batch.
    """
    if is_deterministic:
        return SplitLaunch(
            splits=max(1, -(-max_seq_len // SPLIT_TOKENS)), split_tokens=SPLIT_TOKENS
        )
    programs = num_seqs * shape.num_kv_heads * row_tiles
    wanted = power_of_two(-(-PROGRAMS_PER_PROCESSOR * num_processors // programs))
    longest = power_of_two(max(1, -(-max_seq_len // LEAST_TOKENS_OF_SPLIT)))
    return SplitLaunch(splits=min(wanted, MOST_SPLITS, longest), split_tokens=0)


def row_tiles_of(shape: AttentionShape, tile: TileLaunch, *, query_len: int) -> int:
    """Row tiles that hold the rows of `query_len` tokens."""
    return -(-shape.group * query_len // tile.block_m)


def reduce_heads(shape: AttentionShape) -> int:
    """Heads that one program of the reduction merges."""
    each = max(1, REDUCE_ELEMENTS // power_of_two(shape.v_head_dim))
    return min(each, power_of_two(shape.num_heads))


def store_heads(num_heads: int, width: int) -> int:
    """Heads whose rows one program writes."""
    return min(max(1, STORE_ELEMENTS // power_of_two(width)), power_of_two(num_heads))
