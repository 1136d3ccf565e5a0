"""KernelDraw: draws all rows in a few launches, with the sampling kernels or their reference.

The noise of a token depends on the request's seed, the place of the drawn token in the sequence and
the token's id, so nothing has to be kept for a request that brings a seed.
"""

import random
from collections.abc import Sequence as Many
from typing import Protocol

import torch

from pagefleet_engine.request import SamplingParams
from pagefleet_engine.sampling.transfer import to_device
from pagefleet_engine.sequence import Sequence
from pagefleet_kernels.sampling import SamplingRows

LARGEST_TOP_K = 2**31 - 1
_NUMBERS = 8  # 32-bit numbers that a row takes: seed and position are two each
_ALIGNED_ROWS = 4


class Sample(Protocol):
    """The sampling kernels, or their reference."""

    def __call__(
        self, logits: torch.Tensor, rows: SamplingRows, *, any_filter: bool
    ) -> torch.Tensor: ...


class KernelDraw:
    """Keeps the seeds of requests that brought none."""

    def __init__(self, sample: Sample, *, seed: int) -> None:
        self._sample = sample
        self._random = random.Random(seed)
        self._seeds: dict[str, int] = {}

    def forget(self, request_id: str) -> None:
        self._seeds.pop(request_id, None)

    def warm_up(self, logits: torch.Tensor) -> int:
        vocab_size, device = logits.shape[1], logits.device
        rows = _unpack(torch.zeros(_NUMBERS, _ALIGNED_ROWS, dtype=torch.int32, device=device), 2)
        dtypes = {logits.dtype, torch.float32}
        for dtype in dtypes:
            zeros = torch.zeros(2, vocab_size, dtype=dtype, device=device)
            for any_filter in (False, True):
                self._sample(zeros, rows, any_filter=any_filter)
        return 2 * len(dtypes)

    def draw(
        self,
        logits: torch.Tensor,  # [num_rows, vocab_size]
        sequences: Many[Sequence],
    ) -> torch.Tensor:
        rows = self._rows(sequences, logits.device)
        any_filter = any(_filters(each.sampling) for each in sequences)
        return self._sample(logits, rows, any_filter=any_filter)

    def _seed(self, sequence: Sequence) -> int:
        stated = sequence.sampling.seed
        if stated is not None:
            return stated
        name = sequence.request_id
        if name not in self._seeds:
            self._seeds[name] = self._random.getrandbits(64) - 2**63
        return self._seeds[name]

    def _rows(self, sequences: Many[Sequence], device: torch.device) -> SamplingRows:
        """What the rows ask for, in one copy to the device."""
        count = len(sequences)
        room = -(-count // _ALIGNED_ROWS) * _ALIGNED_ROWS
        packed = torch.zeros(_NUMBERS, room, dtype=torch.int32)
        rows, asked = _unpack(packed, count), [each.sampling for each in sequences]
        rows.seeds.copy_(torch.tensor([self._seed(each) for each in sequences]))
        rows.positions.copy_(torch.tensor([each.num_tokens for each in sequences]))
        temperatures = [0.0 if each.is_greedy else each.temperature for each in asked]
        rows.temperature.copy_(torch.tensor(temperatures))
        rows.top_k.copy_(torch.tensor([min(max(each.top_k, 0), LARGEST_TOP_K) for each in asked]))
        rows.top_p.copy_(torch.tensor([each.top_p for each in asked]))
        rows.min_p.copy_(torch.tensor([each.min_p for each in asked]))
        return _unpack(to_device(packed, device), count)


def _unpack(packed: torch.Tensor, count: int) -> SamplingRows:
    """Views of [_NUMBERS, room] int32.

    Each begins at a multiple of 16 bytes, because Triton compiles anew for addresses that do not.
    """
    wide = packed[:4].view(torch.int64).view(2, -1)
    floats = packed.view(torch.float32)
    return SamplingRows(
        seeds=wide[0, :count],
        positions=wide[1, :count],
        top_k=packed[4, :count],
        temperature=floats[5, :count],
        top_p=floats[6, :count],
        min_p=floats[7, :count],
    )


def _filters(sampling: SamplingParams) -> bool:
    asks = sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0
    return asks and not sampling.is_greedy
