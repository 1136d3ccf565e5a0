"""Sequence: the scheduler's mutable record of one request."""

from array import array
from enum import StrEnum

from pagefleet_engine.request import EngineRequest, SamplingParams


class SequenceStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class Sequence:
    """Tokens of one request and how far they are computed.

    Owned by the scheduler; the block manager alone changes `block_table` and `block_hashes`.
    `token_ids` is the prompt followed by the output, and positions below `num_computed_tokens`
    have their keys and values in the cache.
    """

    __slots__ = (
        "arrival_index",
        "block_hashes",
        "block_table",
        "first_scheduled_time",
        "max_tokens",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_preemptions",
        "num_prompt_tokens",
        "num_registered_blocks",
        "order",
        "request",
        "status",
        "token_ids",
    )

    def __init__(
        self, request: EngineRequest, *, arrival_index: int, max_tokens: int, by_priority: bool
    ) -> None:
        self.request = request
        self.arrival_index = arrival_index
        self.max_tokens = max_tokens
        # One order for admission, for scheduling and (from its end) for preemption.
        self.order = (request.priority if by_priority else 0, arrival_index)
        self.status = SequenceStatus.WAITING
        self.token_ids = list(request.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.num_computed_tokens = 0
        self.num_cached_tokens = 0  # found in the prefix cache at first admission
        self.num_preemptions = 0
        self.first_scheduled_time: float | None = None
        self.block_table = array("q")  # 64-bit, so that the runner can read it without a copy
        self.block_hashes: list[bytes] = []
        self.num_registered_blocks = 0

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def sampling(self) -> SamplingParams:
        return self.request.sampling

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def queue_seconds(self) -> float:
        if self.first_scheduled_time is None:
            return 0.0
        return max(0.0, self.first_scheduled_time - self.request.arrival_time)
