"""Put an engine core together once its model is loaded and its cache is sized."""

from collections.abc import Callable
from dataclasses import dataclass

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.engine_core import EngineCore
from pagefleet_engine.executor import Executor
from pagefleet_engine.kv_cache.block_manager import BlockManager
from pagefleet_engine.request import AdmissionLimits, EngineLedger
from pagefleet_engine.scheduler import Scheduler, SchedulerLimits
from pagefleet_engine.sizing import KVSizing


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """What start-up found out on the way to the executor."""

    executor: Executor
    sizing: KVSizing
    ledger: EngineLedger
    vocab_size: int
    eos_token_ids: frozenset[int]
    peak_bytes: Callable[[], int]
    tokens_per_second: float


def assemble_core(
    config: EngineConfig, loaded: LoadedModel, *, clock: Callable[[], float]
) -> EngineCore:
    return EngineCore(
        executor=loaded.executor,
        scheduler=_build_scheduler(config, loaded.sizing, loaded.eos_token_ids, clock),
        limits=_admission_limits(loaded.sizing, vocab_size=loaded.vocab_size),
        ledger=loaded.ledger,
        peak_bytes=loaded.peak_bytes,
        prefill_tokens_per_second=loaded.tokens_per_second,
        clock=clock,
    )


def _admission_limits(sizing: KVSizing, *, vocab_size: int) -> AdmissionLimits:
    return AdmissionLimits(
        max_model_len=sizing.limits.max_model_len,
        kv_capacity_tokens=sizing.num_blocks * sizing.limits.block_size,
        vocab_size=vocab_size,
    )


def _build_scheduler(
    config: EngineConfig, sizing: KVSizing, eos: frozenset[int], clock: Callable[[], float]
) -> Scheduler:
    return Scheduler(
        limits=SchedulerLimits(
            max_num_seqs=sizing.limits.max_num_seqs,
            max_num_batched_tokens=sizing.limits.max_num_batched_tokens,
            max_model_len=sizing.limits.max_model_len,
        ),
        block_manager=BlockManager(
            num_blocks=sizing.num_blocks,
            block_size=sizing.limits.block_size,
            enable_prefix_caching=config.enable_prefix_caching,
        ),
        eos_token_ids=eos,
        by_priority=config.scheduling_policy == "priority",
        clock=clock,
    )
