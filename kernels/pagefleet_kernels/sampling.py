"""Draw one token per row with temperature, top-k, top-p and min-p: the reference in plain torch.

A token is kept if its logit reaches the row's threshold, which depends on the logit's value alone:
min_p    probability at least min_p times the largest;
top_k    the k-th largest logit; tokens that tie with it are all kept;
top_p    of what the others leave, tokens whose more probable ones have not reached top_p together;
         tokens that tie with the last one kept are all kept.
Among the kept ones the token with the largest logit / temperature + noise is drawn, which is a
draw from their softmax if the noise is Gumbel's. The noise of a token depends on the request's
seed, the position and the token's id, so the same token is drawn in whatever batch a request runs.
With temperature 0 the largest logit wins. The lowest id wins a tie. A logit of minus infinity is
never drawn; a row with NaN, plus infinity or nothing to draw gives -1.
"""

from dataclasses import dataclass

import torch

from pagefleet_kernels.checks import check, check_tensor

LOGIT_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BROKEN_ROW = -1
_MASK32 = 0xFFFFFFFF
_NEGATIVE_INFINITY = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplingRows:
    """What each row asks for."""

    temperature: torch.Tensor  # [num_rows] float32; 0: the most probable token
    top_k: torch.Tensor  # [num_rows] int32; 0: off
    top_p: torch.Tensor  # [num_rows] float32; 1: off
    min_p: torch.Tensor  # [num_rows] float32; 0: off
    seeds: torch.Tensor  # [num_rows] int64
    positions: torch.Tensor  # [num_rows] int64, of the token that is drawn


def sample_reference(
    logits: torch.Tensor, rows: SamplingRows, *, any_filter: bool = True
) -> torch.Tensor:
    """The drawn token of each row of [num_rows, vocab_size]: [num_rows] int64.

    Without `any_filter` no row may ask for top-k, top-p or min-p.
    """
    check_sampling(logits, rows)
    exact = logits.float()
    if any_filter:
        thresholds = thresholds_reference(logits, rows)
    else:
        thresholds = torch.full_like(rows.temperature, _NEGATIVE_INFINITY)
    noise = gumbel_reference(rows.seeds, rows.positions, vocab_size=logits.shape[1])
    greedy = (rows.temperature <= 0)[:, None]
    scores = exact / rows.temperature[:, None] + noise
    scores = torch.where(greedy, exact, scores.masked_fill(exact < thresholds[:, None], -torch.inf))
    scores = scores.masked_fill(exact == _NEGATIVE_INFINITY, _NEGATIVE_INFINITY)
    best = scores.amax(dim=1, keepdim=True)
    ids = torch.arange(logits.shape[1], device=logits.device)
    lowest = torch.where(scores == best, ids, logits.shape[1]).amin(dim=1)
    usable = (exact < torch.inf).all(dim=1) & (best[:, 0] > _NEGATIVE_INFINITY)
    return torch.where(usable, lowest, BROKEN_ROW)


def thresholds_reference(logits: torch.Tensor, rows: SamplingRows) -> torch.Tensor:
    """The smallest logit that each row keeps: [num_rows] float32, minus infinity if all."""
    exact = logits.float()
    largest = exact.amax(dim=1)
    thresholds = largest + rows.temperature * torch.log(rows.min_p)
    ordered = exact.sort(dim=1, descending=True).values  # [num_rows, vocab_size]
    nth = (rows.top_k.long() - 1).clamp(0, logits.shape[1] - 1)[:, None]
    ranked = (rows.top_k > 0) & (rows.top_k < logits.shape[1])
    by_rank = torch.where(ranked, ordered.gather(1, nth)[:, 0], -torch.inf)
    thresholds = torch.maximum(thresholds, by_rank)
    masses = torch.exp((ordered - largest[:, None]).double() / rows.temperature[:, None])
    masses = masses.masked_fill(ordered < thresholds[:, None], 0.0)
    reached = masses.cumsum(dim=1)
    goal = rows.top_p.double() * reached[:, -1]
    last = (reached < goal[:, None]).sum(dim=1).clamp_max(logits.shape[1] - 1)
    by_mass = torch.where(rows.top_p < 1, ordered.gather(1, last[:, None])[:, 0], -torch.inf)
    filtered = rows.temperature > 0
    return torch.where(filtered, torch.maximum(thresholds, by_mass), -torch.inf)


def gumbel_reference(
    seeds: torch.Tensor, positions: torch.Tensor, *, vocab_size: int
) -> torch.Tensor:
    """Noise of each row and token: [num_rows, vocab_size] float32."""
    ids = torch.arange(vocab_size, device=seeds.device)[None, :]
    bits = philox_reference(seeds[:, None], ids, positions[:, None])
    # Small numbers decide who wins, and near zero float32 resolves 2^-32.
    uniform = ((bits.float() + 0.5) * 2.0**-32).clamp_max(1 - 2.0**-24)
    series = uniform * (1 + uniform * (1 / 2 + uniform * (1 / 3 + uniform / 4)))
    exponential = torch.where(uniform < 2.0**-6, series, -torch.log(1 - uniform))
    return -torch.log(exponential)


def philox_reference(
    seeds: torch.Tensor, tokens: torch.Tensor, positions: torch.Tensor
) -> torch.Tensor:
    """First word of Philox-4x32-10, counter (token, position), key the seed; int64 tensors.

    Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
    """
    counter = [tokens & _MASK32, positions & _MASK32, (positions >> 32) & _MASK32, tokens * 0]
    key = [seeds & _MASK32, (seeds >> 32) & _MASK32]
    for _ in range(10):
        high_a, low_a = _multiply(0xD2511F53, counter[0])
        high_b, low_b = _multiply(0xCD9E8D57, counter[2])
        counter = [high_b ^ counter[1] ^ key[0], low_b, high_a ^ counter[3] ^ key[1], low_a]
        key = [(key[0] + 0x9E3779B9) & _MASK32, (key[1] + 0xBB67AE85) & _MASK32]
    return counter[0]


def _multiply(constant: int, word: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """High and low 32 bits of the product, without overflow of int64."""
    low = (word & 0xFFFF) * constant
    high = (word >> 16) * constant + (low >> 16)
    return high >> 16, ((high & 0xFFFF) << 16) | (low & 0xFFFF)


def check_sampling(logits: torch.Tensor, rows: SamplingRows) -> None:
    check_tensor("logits", logits, shape=(None, None), dtypes=LOGIT_DTYPES, device=logits.device)
    check(logits.shape[1] > 0, "logits.shape[1]", logits.shape[1], "at least 1")
    wanted = {
        "temperature": torch.float32,
        "top_k": torch.int32,
        "top_p": torch.float32,
        "min_p": torch.float32,
        "seeds": torch.int64,
        "positions": torch.int64,
    }
    for name, dtype in wanted.items():
        tensor: torch.Tensor = getattr(rows, name)
        shape = (logits.shape[0],)
        check_tensor(name, tensor, shape=shape, dtypes=(dtype,), device=logits.device)
