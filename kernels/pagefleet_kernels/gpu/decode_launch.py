"""DecodeLaunch: how the decoding sequences of a batch are launched, and what their splits leave."""

from dataclasses import dataclass

from pagefleet_kernels.gpu.launch import (
    AttentionShape,
    SplitLaunch,
    TileLaunch,
    decode_tile,
    row_tiles_of,
    split_launch,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeLaunch:
    """One launch over all sequences of a batch."""

    num_seqs: int
    most_query: int  # tokens of a sequence that it answers
    tile: TileLaunch
    row_tiles: int  # of one sequence and key head
    split: SplitLaunch

    @property
    def is_split(self) -> bool:
        """Whether results are partial; with splits of one length always, whatever the batch."""
        return self.split.splits > 1 or self.split.split_tokens > 0

    def partial_rows(self, shape: AttentionShape) -> tuple[int, int, int, int]:
        """Partial results: [num_seqs, most_query, num_heads, splits]."""
        return (self.num_seqs, self.most_query, shape.num_heads, self.split.splits)


def decode_launch(
    shape: AttentionShape,
    *,
    num_seqs: int,
    most_query: int,
    max_seq_len: int,
    num_processors: int,
    is_deterministic: bool,
) -> DecodeLaunch:
    """For sequences of up to `most_query` tokens; `max_seq_len` is a bound that the host knows."""
    tile = decode_tile(shape, query_len=most_query)
    row_tiles = row_tiles_of(shape, tile, query_len=most_query)
    split = split_launch(
        shape,
        num_seqs=num_seqs,
        row_tiles=row_tiles,
        max_seq_len=max_seq_len,
        num_processors=num_processors,
        is_deterministic=is_deterministic,
    )
    return DecodeLaunch(
        num_seqs=num_seqs, most_query=most_query, tile=tile, row_tiles=row_tiles, split=split
    )
