"""AttentionMetadata: which sequences a packed batch holds and where their keys and values are.

packed tokens   [ a a a a | b | c c ]            query_starts = (0, 4, 5, 7)
sequence a      known 0..seq_len, the last 4 positions are this step's
block_tables    row i lists the blocks of sequence i, padded behind the used part
slot_mapping    token -> block_id * block_size + offset in the block; below zero: padding

Kernels on a device read lengths there, so that a captured graph can be replayed with other ones.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, eq=False)
class DeviceLengths:
    """The lengths where the kernels run, and bounds that the host knows without a transfer."""

    query_starts: torch.Tensor  # [num_seqs + 1] int32
    seq_lens: torch.Tensor  # [num_seqs] int32; 0 is a padded row
    max_query_len: int  # at least the longest query
    max_seq_len: int  # at least the longest sequence


@dataclass(frozen=True, slots=True, eq=False)
class AttentionMetadata:
    """One step's batch; the same for every layer."""

    query_starts: tuple[int, ...]  # num_seqs + 1; empty in a captured graph
    seq_lens: tuple[int, ...]  # tokens in the cache once this step is written; likewise
    block_tables: torch.Tensor  # [num_seqs, max_blocks] int64 or int32
    slot_mapping: torch.Tensor  # [num_tokens] int64
    device_lengths: DeviceLengths | None = None  # on a CUDA device

    @property
    def num_seqs(self) -> int:
        return self.block_tables.shape[0]
