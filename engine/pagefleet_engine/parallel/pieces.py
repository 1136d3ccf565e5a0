"""Piece: which part of a weight a rank holds."""

from dataclasses import dataclass

_VOCAB_PADDING = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """Ranges of one dimension of the weight `source`, side by side; None means the whole weight."""

    source: str
    dim: int = 0
    ranges: tuple[tuple[int, int], ...] | None = None
    padded_size: int | None = None  # rows beyond the ranges are zero


def share(size: int, rank: int, num_ranks: int) -> tuple[int, int]:
    """The rank's equal share of a dimension that the ranks divide."""
    each, rest = divmod(size, num_ranks)
    if rest:
        raise ValueError(f"{size} does not divide by {num_ranks}")
    return rank * each, (rank + 1) * each


def packed_share(size: int, rank: int, num_ranks: int) -> tuple[tuple[int, int], ...]:
    """The rank's share of both halves of a dimension (gate and up projections in one weight)."""
    half = size // 2
    start, stop = share(half, rank, num_ranks)
    return (start, stop), (half + start, half + stop)


def head_share(size: int, num_heads: int, rank: int, num_ranks: int) -> tuple[int, int]:
    """The rank's share of whole heads; with fewer heads than ranks, neighbours hold the same."""
    if num_heads >= num_ranks:
        return share(size, rank, num_ranks)
    return share(size, rank * num_heads // num_ranks, num_heads)


def vocab_share(vocab_size: int, rank: int, num_ranks: int) -> tuple[tuple[int, int], int]:
    """The rank's tokens, and the equal number of rows that every rank allocates for its own."""
    rows = -(-vocab_size // _VOCAB_PADDING) * _VOCAB_PADDING // num_ranks
    start = min(rank * rows, vocab_size)
    return (start, min(start + rows, vocab_size)), rows
