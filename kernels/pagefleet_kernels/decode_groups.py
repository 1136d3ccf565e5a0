"""Group the decoding sequences of a step that are alike in length, to attend for them at once.

One operator call for a group costs less than one per sequence while the sequences are short; the
shorter ones are padded with their own last block, and a mask hides the padding.
"""

from collections import defaultdict
from dataclasses import dataclass

import torch

from pagefleet_kernels.gather_kv import BlockList
from pagefleet_kernels.metadata import AttentionMetadata

LONGEST_GROUPED = 512  # tokens; beyond it one sequence keeps the processor busy by itself
MOST_GROUPED_TOKENS = 8192  # bounds the gather buffers


@dataclass(frozen=True, slots=True, eq=False)
class DecodeGroup:
    """Sequences with one query token each: where they stand and what they read."""

    rows: torch.Tensor  # [group] index of each sequence's token in the packed batch
    blocks: BlockList  # [group * blocks_each]
    kv_len: int  # of the longest; all are padded to it
    mask: torch.Tensor | None  # [group, 1, 1, kv_len], 0 or -inf; None if all are equally long


def decode_groups(
    metadata: AttentionMetadata, *, block_size: int, dtype: torch.dtype
) -> tuple[list[DecodeGroup], list[int]]:
    """The groups, and the indices of the sequences that are in none."""
    alike: dict[int, list[int]] = defaultdict(list)
    alone: list[int] = []
    for index, seq_len in enumerate(metadata.seq_lens):
        query_len = metadata.query_starts[index + 1] - metadata.query_starts[index]
        if query_len == 1 and 0 < seq_len <= LONGEST_GROUPED:
            alike[(seq_len - 1).bit_length()].append(index)  # equal up to a factor of two
        else:
            alone.append(index)
    groups = []
    for power, members in alike.items():
        most = max(1, MOST_GROUPED_TOKENS >> power)
        for start in range(0, len(members), most):
            chunk = members[start : start + most]
            groups.append(_make_group(metadata, chunk, block_size=block_size, dtype=dtype))
    return groups, alone


def _make_group(
    metadata: AttentionMetadata, members: list[int], *, block_size: int, dtype: torch.dtype
) -> DecodeGroup:
    device = metadata.block_tables.device
    lengths = torch.tensor([metadata.seq_lens[index] for index in members], device=device)
    kv_len = int(lengths.max())
    last_block = (lengths - 1) // block_size
    places = torch.arange(-(-kv_len // block_size), device=device).expand(len(members), -1)
    tables = metadata.block_tables[torch.tensor(members, device=device)]
    mask = None
    if int(lengths.min()) < kv_len:
        hidden = torch.arange(kv_len, device=device)[None, :] >= lengths[:, None]
        mask = torch.zeros(hidden.shape, dtype=dtype, device=device)
        mask = mask.masked_fill_(hidden, float("-inf"))[:, None, None, :]
    return DecodeGroup(
        rows=torch.tensor([metadata.query_starts[index] for index in members], device=device),
        blocks=BlockList(tables.gather(1, torch.minimum(places, last_block[:, None])).flatten()),
        kv_len=kv_len,
        mask=mask,
    )
