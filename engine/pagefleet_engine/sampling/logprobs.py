"""Log-probabilities of the model itself, before anything was adjusted, for the rows that asked."""

from collections.abc import Sequence as Many

import torch

from pagefleet_engine.request import TokenLogprobs
from pagefleet_engine.sampling.transfer import to_device
from pagefleet_engine.sequence import Sequence


def measure(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    tokens: torch.Tensor,  # [num_rows] int64
    sequences: Many[Sequence],
    *,
    count: int,
) -> torch.Tensor:
    """The drawn token's, those of the best `count` and their ids: [num_asking, 1 + 2 * count].

    In float64, which holds ids and float32 numbers exactly.
    """
    asking = [row for row, each in enumerate(sequences) if each.sampling.logprobs is not None]
    rows = to_device(torch.tensor(asking), logits.device)
    logprobs = torch.log_softmax(logits[rows], dim=1, dtype=torch.float32)
    chosen = logprobs.gather(1, tokens[rows, None].clamp_min(0))
    best, ids = torch.topk(logprobs, count)
    return torch.cat([chosen.double(), best.double(), ids.double()], dim=1)


def describe(token_id: int, asked: int, measured: Many[float]) -> TokenLogprobs:
    """One row of `measure`, cut to the number of alternatives that its request asked for."""
    count = (len(measured) - 1) // 2
    best, ids = measured[1 : 1 + count], measured[1 + count :]
    top = tuple(zip(map(int, ids[:asked]), best[:asked], strict=True))
    return TokenLogprobs(token_id, measured[0], top)
