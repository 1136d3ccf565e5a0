"""Refuse attention over a batch whose parts do not belong together, on any device."""

from pagefleet_kernels.checks import check
from pagefleet_kernels.metadata import AttentionMetadata


def check_batch(num_tokens: int, metadata: AttentionMetadata, *, block_size: int) -> None:
    """The query against the lengths that the host knows, and these against the tables."""
    tables, starts, seq_lens = metadata.block_tables, metadata.query_starts, metadata.seq_lens
    check(tables.ndim == 2, "block_tables.shape", tuple(tables.shape), "[num_seqs, max_blocks]")
    num_seqs = metadata.num_seqs
    check(len(starts) == num_seqs + 1, "query_starts", starts, f"{num_seqs} sequences and an end")
    check(len(seq_lens) == num_seqs, "seq_lens", seq_lens, f"one a sequence: {num_seqs}")
    check(starts[-1] == num_tokens, "query_starts[-1]", starts[-1], f"{num_tokens} tokens of query")
    most = tables.shape[1] * block_size
    longest = max(seq_lens, default=0)
    check(longest <= most, "seq_lens", longest, f"at most {most}, which the block tables hold")


def check_options(*, window: int | None, softcap: float | None) -> None:
    """A window of no key and a cap of zero would leave a row without a number."""
    check(window is None or window >= 1, "window", window, "at least 1, or None for all keys")
    check(softcap is None or softcap > 0, "softcap", softcap, "above 0, or None for no cap")
