"""EngineCore: one engine, driven step by step: schedule, execute, update, outputs."""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from pagefleet_engine.errors import ParameterError
from pagefleet_engine.executor import Executor, SchedulerOutput
from pagefleet_engine.request import (
    AdmissionLimits,
    EngineLedger,
    EngineOutput,
    EngineRequest,
    EngineStats,
)
from pagefleet_engine.scheduler import Scheduler
from pagefleet_engine.usage_meter import UsageMeter

logger = logging.getLogger(__name__)

MAX_FAILED_STEPS = 3  # in a row; a device that broke for good must not eat every new request
RATE_SMOOTHING = 0.2  # weight of the newest saturated step in the measured prefill rate


class EngineCore:
    """Not thread-safe: one thread adds, aborts and steps. `stats` and `ledger` are cheap."""

    def __init__(
        self,
        *,
        executor: Executor,
        scheduler: Scheduler,
        limits: AdmissionLimits,
        ledger: EngineLedger,
        peak_bytes: Callable[[], int],
        prefill_tokens_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.limits = limits
        self._executor = executor
        self._scheduler = scheduler
        self._ledger = ledger
        self._peak_bytes = peak_bytes
        self._prefill_rate = prefill_tokens_per_second
        self._clock = clock
        self._wall_clock = wall_clock
        self._meter = UsageMeter(clock)
        self._num_steps = 0
        self._failed_steps = 0
        self._last_step_timestamp = 0.0

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def add_request(self, request: EngineRequest) -> None:
        """Queue a request, or raise RequestError if it can never be served."""
        self.limits.check(request.prompt_token_ids, request.sampling)
        if request.request_id in self._scheduler:
            raise ParameterError("request_id", request.request_id, "is already being served")
        self._scheduler.add(request)

    def abort(self, request_ids: Iterable[str]) -> list[EngineOutput]:
        """End requests; returns their last outputs. Unknown ids are ignored."""
        outputs = self._scheduler.abort(request_ids)
        self._settle(outputs)
        return outputs

    def step(self) -> list[EngineOutput]:
        """Compute one step; without work it does nothing."""
        started = self._clock()
        output = self._scheduler.schedule()
        if not output.scheduled:
            return []
        self._meter.set_level(self._used_tokens)
        outputs = self._execute(output)
        self._settle(outputs)
        self._num_steps += 1
        self._last_step_timestamp = self._wall_clock()
        self._note_rate(output, self._clock() - started)
        return outputs

    def _execute(self, output: SchedulerOutput) -> list[EngineOutput]:
        try:
            result = self._executor.execute(output)
        except RuntimeError as error:  # what torch raises, out of memory included
            self._failed_steps += 1
            if self._failed_steps >= MAX_FAILED_STEPS:
                raise
            logger.exception("a step of %d requests failed", len(output.scheduled))
            return self._scheduler.fail(output, f"the engine could not compute this: {error}")
        self._failed_steps = 0
        return self._scheduler.update(output, result)

    def _settle(self, outputs: list[EngineOutput]) -> None:
        for each in outputs:
            if each.finish_reason is not None:
                self._executor.forget(each.request_id)
        self._meter.set_level(self._used_tokens)

    def _note_rate(self, output: SchedulerOutput, seconds: float) -> None:
        saturated = output.num_tokens >= self._scheduler.limits.max_num_batched_tokens
        if saturated and seconds > 0:
            rate = output.num_tokens / seconds
            self._prefill_rate += RATE_SMOOTHING * (rate - self._prefill_rate)

    @property
    def _used_tokens(self) -> int:
        manager = self._scheduler.block_manager
        return manager.pool.counts().used * manager.block_size

    def stats(self) -> EngineStats:
        """The state now."""
        scheduler = self._scheduler
        manager = scheduler.block_manager
        counts = manager.pool.counts()
        waiting = scheduler.waiting
        oldest = min((each.request.arrival_time for each in waiting), default=self._clock())
        return EngineStats(
            num_running=len(scheduler.running),
            num_waiting=len(waiting),
            waiting_prompt_tokens=sum(each.num_tokens for each in waiting),
            oldest_waiting_age_seconds=max(0.0, self._clock() - oldest),
            kv_capacity_tokens=manager.capacity_tokens,
            kv_used_tokens=counts.used * manager.block_size,
            blocks_used=counts.used,
            blocks_cached=counts.cached,
            blocks_free=counts.free,
            prefill_capacity_tokens_per_second=self._prefill_rate,
            last_step_timestamp=self._last_step_timestamp,
            num_steps=self._num_steps,
            kv_cache_token_seconds=self._meter.total,
            preemptions_recompute=scheduler.totals.preemptions,
            preemptions_swap=0,
            prompt_tokens=scheduler.totals.prompt_tokens,
            prompt_tokens_computed=scheduler.totals.prompt_tokens_computed,
            generation_tokens=scheduler.totals.generation_tokens,
            prefix_cache_queries=manager.prefix_totals.queries,
            prefix_cache_hits=manager.prefix_totals.hits,
            finished=dict(scheduler.totals.finished),
        )

    def ledger(self) -> EngineLedger:
        return replace(self._ledger, peak_bytes=self._peak_bytes())

    def stop(self) -> None:
        """Let the other processes of the engine end; any thread may call it."""
        self._executor.stop()

    def close(self) -> None:
        """End the engine together with its other processes."""
        self._executor.close()

    def check_integrity(self) -> None:
        """Raise AssertionError if a block leaked or the books disagree."""
        self._scheduler.check_integrity()
