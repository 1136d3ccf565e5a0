"""Decoding by replay without a GPU.

A capture is stood in for by a function that runs its work again, on buffers that the work reads
where they are, and attention reads lengths from the tensors that a GPU kernel would read.
"""

from dataclasses import replace
from typing import Any

import torch

from pagefleet_engine.decode_graphs import Run
from pagefleet_kernels import AttentionMetadata, LayerCache, store_kv
from pagefleet_kernels.backend import torch_backend
from pagefleet_kernels.reference import paged_attention_reference


def attend_by_tensors(
    query: torch.Tensor, cache: LayerCache, metadata: AttentionMetadata, **options: Any
) -> torch.Tensor:
    """As a kernel does: lengths come from tensors, at the time when it runs."""
    if (lengths := metadata.device_lengths) is not None:
        metadata = AttentionMetadata(
            query_starts=tuple(lengths.query_starts.tolist()),
            seq_lens=tuple(lengths.seq_lens.tolist()),
            block_tables=metadata.block_tables,
            slot_mapping=metadata.slot_mapping,
        )
    return paged_attention_reference(query, cache, metadata, **options)


LIKE_A_GPU = replace(
    torch_backend(),
    name="reference",
    store_kv=store_kv,
    paged_attention=attend_by_tensors,
    gathers=False,
)


class FakeCapture:
    """Runs what is captured once, as a real one must, and again when it is replayed."""

    def __init__(self) -> None:
        self.replays = 0

    def __call__(self, run: Run) -> Run:
        run()

        def replay() -> None:
            self.replays += 1
            run()

        return replay
