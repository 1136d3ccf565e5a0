"""What a search is asked for, and the sizes of its options, each computed once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.batching import MOST_SEQS
from pagefleet_memory.kv_cache import blocks_for_tokens, kv_block_bytes
from pagefleet_memory.ledger import budget_bytes, fixed_terms
from pagefleet_memory.limits import EngineLimits
from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.speed import ModelWork, model_work
from pagefleet_memory.workload import Pins, Workload

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StageSizes:
    """What one stage's rank holds whatever the accelerator's memory is."""

    weights_bytes: int
    fixed_bytes: int  # all terms but the KV pool
    block_bytes: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What every option is held against."""

    shape: ModelShape
    workload: Workload
    pins: Pins
    _once: dict[tuple[object, ...], Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def stated_model_len(self) -> int | None:
        """The context length the user asked for."""
        return self.pins.max_model_len or self.workload.max_model_len

    def required_tokens(self, max_model_len: int) -> int:
        """KV tokens below which a plan is refused."""
        return max(max_model_len, self.pins.min_kv_tokens or 0)

    @property
    def wanted_requests(self) -> int:
        """Requests at once that the workload states, as far as pinned limits let them run."""
        wanted, pins = min(self.workload.concurrency or 1, MOST_SEQS), self.pins
        return min(wanted, pins.max_num_seqs or wanted, pins.max_num_batched_tokens or wanted)

    @property
    def work(self) -> ModelWork:
        """What a token costs, counted over the layers once."""
        return self.once(("work",), lambda: model_work(self.shape))

    def once(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """What `make` gives, made where the key is new."""
        if key not in self._once:
            self._once[key] = make()
        found: T = self._once[key]
        return found

    def stage_sizes(self, accelerator: Accelerator, limits: EngineLimits) -> tuple[StageSizes, ...]:
        """Sizes of every stage under these limits."""
        stages = range(limits.pipeline_parallel_size)
        # They depend on the limits and what the kernels find only: equal ones are shared.
        return self.once(
            _key(accelerator, limits),
            lambda: tuple(self._stage(accelerator, limits, stage) for stage in stages),
        )

    def num_blocks(self, accelerator: Accelerator, limits: EngineLimits) -> int:
        """KV blocks that every stage can hold."""
        budget = budget_bytes(accelerator, limits)
        sizes = self.stage_sizes(accelerator, limits)
        return max(0, min((budget - size.fixed_bytes) // size.block_bytes for size in sizes))

    def shortfall(self, accelerator: Accelerator, limits: EngineLimits, tokens: int) -> int:
        """Bytes per accelerator that the tightest stage lacks for these tokens; 0 where it fits."""
        budget = budget_bytes(accelerator, limits)
        blocks = blocks_for_tokens(self.shape, limits, tokens)
        sizes = self.stage_sizes(accelerator, limits)
        return max(0, *(size.fixed_bytes + blocks * size.block_bytes - budget for size in sizes))

    def _stage(self, accelerator: Accelerator, limits: EngineLimits, stage: int) -> StageSizes:
        terms = fixed_terms(self.shape, accelerator, limits, stage=stage)
        return StageSizes(
            weights_bytes=next(term.bytes for term in terms if term.name == "weights"),
            fixed_bytes=sum(term.bytes for term in terms),
            block_bytes=kv_block_bytes(self.shape, limits, stage=stage),
        )


def _key(accelerator: Accelerator, limits: EngineLimits) -> tuple[object, ...]:
    return (
        "sizes",
        accelerator.kind,
        accelerator.compute_capability,
        accelerator.processors,
        limits.tensor_parallel_size,
        limits.pipeline_parallel_size,
        limits.max_model_len,
        limits.max_num_seqs,
        limits.max_num_batched_tokens,
        limits.dtype,
        limits.kv_cache_dtype,
        limits.block_size,
        limits.enforce_eager,
    )
