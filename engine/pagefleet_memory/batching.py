"""How many requests run at once, how many tokens a step takes, how long a context may be."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pagefleet_memory.workload import TokenDistribution, Workload

# One risk in a hundred that the resident contexts outgrow the pool: z of the normal distribution.
_TAIL_Z = 2.33
_Z95 = 1.645
_LOAD_MARGIN = 1.2

# Requests of the public Azure conversation trace (2023): what is assumed where nothing is stated.
DEFAULT_INPUT_TOKENS = TokenDistribution(1020, 4083)
DEFAULT_OUTPUT_TOKENS = TokenDistribution(129, 451)

MAX_SEQS_GPU = 256
MAX_SEQS_CPU = 16
MOST_SEQS = 1024
# A full step of prompts holds up the requests that decode: not longer than this, where that is
# known. 512 tokens are above the point where every card of the table computes as fast as it reads.
STEP_SECONDS = 0.2
BATCHED_TOKENS_UNKNOWN = 2048
BATCHED_TOKENS_CPU = 512
_LEAST_BATCHED_TOKENS = 512
_MOST_BATCHED_TOKENS = 8192
DEFAULT_CPU_CONCURRENCY = 8
# An unstated context length is at least this, where the model allows it.
MODEL_LEN_FLOOR = 4096
MODEL_LEN_CPU = 8192


@dataclass(frozen=True, slots=True)
class ContextLoad:
    """Tokens that one running request holds in the cache by itself, and those all share."""

    mean: float
    deviation: float
    shared: int = 0

    def tokens_for(self, sequences: int, block_size: int) -> float:
        """Tokens that this many requests stay below in 99 of 100 moments."""
        spread = _TAIL_Z * self.deviation * math.sqrt(sequences)
        return sequences * (self.mean + block_size / 2) + spread + self.shared

    def sequences_for(self, tokens: int, block_size: int) -> int:
        """The most requests whose tail stays within this many tokens; at least one."""
        a = self.mean + block_size / 2
        b = _TAIL_Z * self.deviation
        root = (-b + math.sqrt(b * b + 4 * a * max(0, tokens - self.shared))) / (2 * a)
        return max(1, int(root * root))


def context_load(workload: Workload, max_model_len: int) -> ContextLoad:
    """Resident tokens of a steady mix: the prompt less the shared prefix, half the output."""
    prompt_mean, prompt_deviation = _lognormal(workload.input_tokens or DEFAULT_INPUT_TOKENS)
    output_mean, output_deviation = _lognormal(workload.output_tokens or DEFAULT_OUTPUT_TOKENS)
    shared = min(workload.shared_prefix_tokens, int(prompt_mean), max_model_len)
    mean = max(1.0, prompt_mean - shared) + output_mean / 2
    deviation = math.hypot(prompt_deviation, output_deviation / 2)
    # No request outgrows max_model_len, so what it has beside the shared prefix cannot either.
    own = max(1, max_model_len - shared)
    return ContextLoad(min(mean, float(own)), min(deviation, own / 2), shared)


def mean_prompt_tokens(workload: Workload, max_model_len: int) -> int:
    """Tokens that the prompt of a mean request computes: the shared prefix is there already."""
    mean, _ = _lognormal(workload.input_tokens or DEFAULT_INPUT_TOKENS)
    return max(1, min(int(mean), max_model_len) - workload.shared_prefix_tokens)


def sequence_cap(workload: Workload, *, cpu: bool) -> int:
    """Slots worth having: the stated concurrency with a margin, or a default."""
    if workload.concurrency is None:
        return MAX_SEQS_CPU if cpu else MAX_SEQS_GPU
    return min(MOST_SEQS, math.ceil(_LOAD_MARGIN * workload.concurrency))


def sequences_in_flight(
    rate: float, workload: Workload, *, prefill: float, step: Callable[[int], float], most: int
) -> int:
    """Requests that a rate keeps running, by Little's law: rate x (prefill + answer x step).

    `step` is the seconds of a step of so many requests: the smallest number that sustains itself
    is found by going up from one.
    """
    answer, _ = _lognormal(workload.output_tokens or DEFAULT_OUTPUT_TOKENS)
    running = 1
    while running < most:
        needed = math.ceil(_LOAD_MARGIN * rate * (prefill + answer * step(running)))
        if needed <= running:
            break
        running = min(most, needed)
    return running


def batched_tokens(computed_in_a_step: int | None) -> int:
    """Tokens of a step on a GPU: the power of two that it computes in STEP_SECONDS, in bounds."""
    if computed_in_a_step is None:
        return BATCHED_TOKENS_UNKNOWN
    power = 1 << max(0, computed_in_a_step.bit_length() - 1)
    return max(_LEAST_BATCHED_TOKENS, min(_MOST_BATCHED_TOKENS, power))


def model_len_floor(workload: Workload, max_position_embeddings: int) -> int:
    """The shortest context length that an unstated one may become."""
    wanted = MODEL_LEN_FLOOR
    if workload.input_tokens or workload.output_tokens:
        inputs = workload.input_tokens or DEFAULT_INPUT_TOKENS
        outputs = workload.output_tokens or DEFAULT_OUTPUT_TOKENS
        wanted = inputs.p95 + outputs.p95
    return min(max_position_embeddings, wanted)


def _lognormal(tokens: TokenDistribution) -> tuple[float, float]:
    """Mean and standard deviation of the lognormal through both percentiles."""
    sigma = math.log(tokens.p95 / tokens.p50) / _Z95
    mean = tokens.p50 * math.exp(sigma * sigma / 2)
    return mean, mean * math.sqrt(math.expm1(sigma * sigma))
