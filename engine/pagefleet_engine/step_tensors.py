"""StepTensors: a scheduled step as the tensors that the model and its attention read."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Self

import torch

from pagefleet_engine.executor import StepInputs
from pagefleet_kernels import AttentionMetadata, DeviceLengths


@dataclass(frozen=True, slots=True, eq=False)
class StepTensors:
    """Made on the host, then moved as a whole."""

    token_ids: torch.Tensor  # [num_tokens] int64
    positions: torch.Tensor  # [num_tokens] int64
    rows: torch.Tensor  # [num_sampled] int64, places among the tokens
    metadata: AttentionMetadata

    @classmethod
    def of(cls, inputs: StepInputs, *, block_size: int) -> Self:
        counts = torch.tensor(inputs.num_tokens)
        positions: list[int] = []
        for start, count in zip(inputs.num_computed, inputs.num_tokens, strict=True):
            positions += range(start, start + count)
        places = torch.tensor(positions)
        tables = _block_tables(inputs.block_tables)
        blocks = tables[torch.arange(len(counts)).repeat_interleave(counts), places // block_size]
        query_starts = (0, *accumulate(inputs.num_tokens))
        seq_lens = tuple(map(sum, zip(inputs.num_computed, inputs.num_tokens, strict=True)))
        return cls(
            token_ids=torch.tensor(inputs.token_ids),
            positions=places,
            rows=torch.tensor(inputs.rows, dtype=torch.int64),
            metadata=AttentionMetadata(
                query_starts=query_starts,
                seq_lens=seq_lens,
                block_tables=tables,
                slot_mapping=blocks * block_size + places % block_size,
            ),
        )

    def to(self, device: torch.device) -> "StepTensors":
        """The same step on a device, with its lengths there; on a CPU itself."""
        if device.type == "cpu":
            return self
        metadata = self.metadata
        query_starts, seq_lens = metadata.query_starts, metadata.seq_lens
        counts = (b - a for a, b in zip(query_starts, query_starts[1:], strict=False))
        return StepTensors(
            token_ids=self.token_ids.to(device),
            positions=self.positions.to(device),
            rows=self.rows.to(device),
            metadata=AttentionMetadata(
                query_starts=query_starts,
                seq_lens=seq_lens,
                block_tables=metadata.block_tables.to(device),
                slot_mapping=metadata.slot_mapping.to(device),
                device_lengths=DeviceLengths(
                    query_starts=torch.tensor(query_starts, dtype=torch.int32).to(device),
                    seq_lens=torch.tensor(seq_lens, dtype=torch.int32).to(device),
                    max_query_len=max(counts),
                    max_seq_len=max(seq_lens),
                ),
            ),
        )


def _block_tables(block_tables: "Sequence[array[int]]") -> torch.Tensor:
    """All tables as rows of one tensor, padded with block 0: [num_seqs, max_blocks]."""
    longest = max(map(len, block_tables))
    tables = torch.zeros(len(block_tables), longest, dtype=torch.int64)
    for row, table in zip(tables, block_tables, strict=True):
        row[: len(table)] = torch.frombuffer(table, dtype=torch.int64)
    return tables
