"""The typed messages between front end and engine core: what is asked and what comes back.

All of them are frozen and picklable. Times are `time.monotonic()` seconds, which every process
of one machine shares.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pagefleet_engine.errors import CapacityError, ContextLengthError, ParameterError

GREEDY_BELOW = 1e-5  # a temperature this small divides logits into infinities: it means greedy
MAX_LOGPROBS = 20
MAX_CHOICES = 128


class FinishReason(StrEnum):
    """Why a request ended; the values are the `reason` label of the metrics."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


def _require(ok: bool, field_name: str, value: object, hint: str) -> None:
    if not ok:
        raise ParameterError(field_name, value, hint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How the tokens of one request are chosen; validated when built.

    `stop` strings and `n` are served by the front end (detokenizer, child requests).
    `top_k` 0 and -1 both mean "all tokens". `logprobs` is the number of alternatives reported
    beside the chosen token, None for no logprobs at all. A `seed` gives the same draws in every
    batch on one kind of device; a CPU and a GPU differ.
    """

    n: int = 1
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None

    def __post_init__(self) -> None:
        self._check_distribution()
        self._check_lengths()
        self._check_penalties()

    def _check_distribution(self) -> None:
        _require(
            math.isfinite(self.temperature) and 0.0 <= self.temperature <= 2.0,
            "temperature",
            self.temperature,
            "must be between 0 and 2",
        )
        _require(0.0 < self.top_p <= 1.0, "top_p", self.top_p, "must be above 0 and at most 1")
        _require(self.top_k >= -1, "top_k", self.top_k, "must be -1 or 0 (all tokens) or positive")
        _require(0.0 <= self.min_p <= 1.0, "min_p", self.min_p, "must be between 0 and 1")
        _require(
            self.seed is None or -(2**63) <= self.seed < 2**63,
            "seed",
            self.seed,
            "must fit a signed 64-bit integer",
        )
        _require(
            self.logprobs is None or 0 <= self.logprobs <= MAX_LOGPROBS,
            "logprobs",
            self.logprobs,
            f"must be between 0 and {MAX_LOGPROBS}",
        )

    def _check_lengths(self) -> None:
        _require(1 <= self.n <= MAX_CHOICES, "n", self.n, f"must be between 1 and {MAX_CHOICES}")
        _require(
            self.max_tokens is None or self.max_tokens >= 1,
            "max_tokens",
            self.max_tokens,
            "must be at least 1",
        )
        longest = math.inf if self.max_tokens is None else self.max_tokens
        _require(
            0 <= self.min_tokens <= longest,
            "min_tokens",
            self.min_tokens,
            "must be between 0 and max_tokens",
        )

    def _check_penalties(self) -> None:
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _require(-2.0 <= value <= 2.0, name, value, "must be between -2 and 2")
        _require(
            0.0 < self.repetition_penalty <= 10.0,
            "repetition_penalty",
            self.repetition_penalty,
            "must be above 0 and at most 10",
        )
        for token_id, bias in self.logit_bias.items():
            _require(token_id >= 0, "logit_bias", token_id, "token ids must not be negative")
            _require(-100.0 <= bias <= 100.0, "logit_bias", bias, "must be between -100 and 100")

    @property
    def is_greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """One sequence to generate. A lower `priority` is served first (priority policy only)."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    arrival_time: float
    priority: int = 0
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Log-probabilities of one position: the chosen token and the best alternatives."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOutput:
    """What one step added to one request.

    `stop_token_id` is set when the last new token ended the request (end of sequence or one of
    stop_token_ids): it counts as generated, and its text is not part of the answer.
    `queue_seconds` is the time from arrival to the first scheduling.
    """

    request_id: str
    new_token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    error: str | None = None
    num_cached_tokens: int = 0
    queue_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionLimits:
    """What one request may ask for; front end and engine core apply the same check."""

    max_model_len: int
    kv_capacity_tokens: int
    vocab_size: int

    def check(self, prompt_token_ids: tuple[int, ...], sampling: SamplingParams) -> None:
        """Raise a RequestError if these tokens can never be served."""
        length = len(prompt_token_ids)
        if length == 0:
            raise ParameterError("prompt", "", "must hold at least one token")
        self._check_token_ids(prompt_token_ids, sampling)
        wanted = length + (sampling.max_tokens or 1)
        if wanted > self.max_model_len:
            raise ContextLengthError(
                "max_tokens",
                sampling.max_tokens,
                f"the context length is {self.max_model_len} tokens, but the prompt has {length} "
                f"and {sampling.max_tokens or 1} were asked for; shorten one of them",
            )
        if length + 1 > self.kv_capacity_tokens:
            raise CapacityError(
                "prompt",
                f"{length} tokens",
                f"the KV cache holds {self.kv_capacity_tokens} tokens; shorten the prompt",
            )

    def _check_token_ids(self, prompt: tuple[int, ...], sampling: SamplingParams) -> None:
        vocab = self.vocab_size
        if min(prompt) < 0 or max(prompt) >= vocab:
            raise ParameterError("prompt", "token ids", f"must be between 0 and {vocab - 1}")
        for name, token_ids in (
            ("logit_bias", sampling.logit_bias),
            ("stop_token_ids", sampling.stop_token_ids),
        ):
            for token_id in token_ids:
                if not 0 <= token_id < vocab:
                    raise ParameterError(name, token_id, f"must be between 0 and {vocab - 1}")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """The state of the engine now, and its totals since start; all that the metrics need.

    Blocks: used (referenced by a request) + cached (content kept, no request) + free == total.
    `last_step_timestamp` is seconds since the epoch, 0.0 before the first step.
    """

    num_running: int
    num_waiting: int
    waiting_prompt_tokens: int
    oldest_waiting_age_seconds: float
    kv_capacity_tokens: int
    kv_used_tokens: int
    blocks_used: int
    blocks_cached: int
    blocks_free: int
    prefill_capacity_tokens_per_second: float
    last_step_timestamp: float
    num_steps: int
    kv_cache_token_seconds: float
    preemptions_recompute: int
    preemptions_swap: int
    prompt_tokens: int
    prompt_tokens_computed: int
    generation_tokens: int
    prefix_cache_queries: int
    prefix_cache_hits: int
    finished: Mapping[FinishReason, int]

    @property
    def kv_cache_usage_ratio(self) -> float:
        total = self.blocks_used + self.blocks_cached + self.blocks_free
        return self.blocks_used / total


@dataclass(frozen=True, slots=True)
class EngineLedgerTerm:
    """One term of the memory ledger; measured is None where nothing was measured."""

    name: str
    predicted_bytes: int
    measured_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLedger:
    """Where the memory goes, as predicted and as measured."""

    profile: str
    budget_bytes: int
    terms: tuple[EngineLedgerTerm, ...]
    block_size: int
    num_blocks: int
    limits: Mapping[str, object]
    peak_bytes: int

    def to_json(self) -> dict[str, object]:
        """The body of `/ledger`."""
        return {
            "profile": self.profile,
            "budgetBytes": self.budget_bytes,
            "terms": [
                {
                    "name": term.name,
                    "predictedBytes": term.predicted_bytes,
                    "measuredBytes": term.measured_bytes,
                }
                for term in self.terms
            ],
            "kv": {
                "blockSize": self.block_size,
                "numBlocks": self.num_blocks,
                "capacityTokens": self.num_blocks * self.block_size,
            },
            "limits": dict(self.limits),
            "peakBytes": self.peak_bytes,
        }
