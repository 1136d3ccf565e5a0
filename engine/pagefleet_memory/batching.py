"""How many requests run at once, how many tokens a step takes, how long a context may be."""

import math
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
_MOST_SEQS = 1024
BATCHED_TOKENS_GPU = 2048
BATCHED_TOKENS_CPU = 512
DEFAULT_CPU_CONCURRENCY = 8
# An unstated context length is at least this, where the model allows it.
MODEL_LEN_FLOOR = 4096
MODEL_LEN_CPU = 8192


@dataclass(frozen=True, slots=True)
class ContextLoad:
    """Tokens that one running request holds in the cache: mean and standard deviation."""

    mean: float
    deviation: float

    def tokens_for(self, sequences: int, block_size: int) -> float:
        """Tokens that this many requests stay below in 99 of 100 moments."""
        spread = _TAIL_Z * self.deviation * math.sqrt(sequences)
        return sequences * (self.mean + block_size / 2) + spread

    def sequences_for(self, tokens: int, block_size: int) -> int:
        """The most requests whose tail stays within this many tokens; at least one."""
        a = self.mean + block_size / 2
        b = _TAIL_Z * self.deviation
        root = (-b + math.sqrt(b * b + 4 * a * max(0, tokens))) / (2 * a)
        return max(1, int(root * root))


def context_load(workload: Workload, max_model_len: int) -> ContextLoad:
    """Resident tokens of a steady mix: the prompt less the shared prefix, half the output."""
    prompt_mean, prompt_deviation = _lognormal(workload.input_tokens or DEFAULT_INPUT_TOKENS)
    output_mean, output_deviation = _lognormal(workload.output_tokens or DEFAULT_OUTPUT_TOKENS)
    mean = max(1.0, prompt_mean - workload.shared_prefix_tokens) + output_mean / 2
    deviation = math.hypot(prompt_deviation, output_deviation / 2)
    # No request outgrows max_model_len, so its mean and spread cannot either.
    return ContextLoad(min(mean, float(max_model_len)), min(deviation, max_model_len / 2))


def sequence_cap(workload: Workload, *, cpu: bool) -> int:
    """Slots worth having: the stated concurrency with a margin, or a default."""
    if workload.concurrency is None:
        return MAX_SEQS_CPU if cpu else MAX_SEQS_GPU
    return min(_MOST_SEQS, math.ceil(_LOAD_MARGIN * workload.concurrency))


def sequences_in_flight(workload: Workload, step_seconds: float) -> int | None:
    """Requests that the stated rate keeps running, by Little's law; None where none is stated."""
    if workload.request_rate is None:
        return None
    output_mean, _ = _lognormal(workload.output_tokens or DEFAULT_OUTPUT_TOKENS)
    return math.ceil(_LOAD_MARGIN * workload.request_rate * output_mean * step_seconds)


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
