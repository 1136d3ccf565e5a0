"""AttentionMetadata: which sequences a packed batch holds and where their keys and values are.

packed tokens   [ a a a a | b | c c ]            query_starts = (0, 4, 5, 7)
sequence a      known 0..seq_len, the last 4 positions are this step's
block_tables    row i lists the blocks of sequence i, padded behind the used part
slot_mapping    token -> block_id * block_size + offset in the block
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, eq=False)
class AttentionMetadata:
    """One step's batch; the same for every layer."""

    query_starts: tuple[int, ...]  # num_seqs + 1
    seq_lens: tuple[int, ...]  # tokens in the cache once this step is written
    block_tables: torch.Tensor  # [num_seqs, max_blocks] int64
    slot_mapping: torch.Tensor  # [num_tokens] int64

    @property
    def num_seqs(self) -> int:
        return len(self.seq_lens)
