"""Draw: chooses one token per row; `open_draw` takes the way that is fast on a device."""

from collections.abc import Sequence as Many
from typing import Protocol

import torch

from pagefleet_engine.sampling.kernel_draw import KernelDraw
from pagefleet_engine.sampling.torch_draw import TorchDraw
from pagefleet_engine.sequence import Sequence


class Draw(Protocol):
    """With a seed a request gets the same tokens in whatever batch, and after preemptions."""

    def draw(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size], read only
        sequences: Many[Sequence],
    ) -> torch.Tensor:
        """Token ids, [num_rows] int64, where the logits are.

        BROKEN_ROW stands for a row with NaN or plus infinity, or with nothing to draw.
        """

    def warm_up(self, logits: torch.Tensor) -> int:
        """Compile for such logits and float32 copies of them; how many ways were run."""

    def forget(self, request_id: str) -> None:
        """Drop what is kept for a request that ended."""


def open_draw(device: torch.device, *, seed: int) -> Draw:
    """`seed` makes the seeds of requests that bring none."""
    if device.type != "cuda":
        return TorchDraw(seed=seed)
    # Imported here: a CPU does without triton.
    from pagefleet_kernels.gpu.sampling import sample

    return KernelDraw(sample, seed=seed)
