"""Builders for the engine core without a model: requests, a scripted executor, a hand-set clock."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pagefleet_engine.engine_core import EngineCore
from pagefleet_engine.executor import ModelRunnerOutput, SampledToken, SchedulerOutput
from pagefleet_engine.kv_cache.block_manager import BlockManager
from pagefleet_engine.request import (
    AdmissionLimits,
    EngineLedger,
    EngineOutput,
    EngineRequest,
    SamplingParams,
)
from pagefleet_engine.scheduler import Scheduler, SchedulerLimits

EOS = 2
VOCAB_SIZE = 1000


@dataclass
class Clock:
    """Time that moves only when a test says so."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class ScriptedExecutor:
    """Answers each step with a token that depends only on the sequence, as a model would."""

    clock: Clock
    step_seconds: float = 1.0
    steps: list[SchedulerOutput] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    fail_with: RuntimeError | None = None
    token: Callable[[list[int]], int] = lambda token_ids: 3 + sum(token_ids) % 900

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        self.steps.append(output)
        self.clock.now += self.step_seconds
        if self.fail_with is not None:
            raise self.fail_with
        return ModelRunnerOutput(
            {
                item.sequence.request_id: SampledToken(self.token(item.sequence.token_ids))
                for item in output.scheduled
                if item.needs_token
            }
        )

    def forget(self, request_id: str) -> None:
        self.forgotten.append(request_id)

    def stop(self) -> None:
        """Nothing to stop."""

    def close(self) -> None:
        """Nothing to close."""


class Engine:
    """An engine core whose parts a test can look into."""

    def __init__(
        self,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        max_num_seqs: int = 8,
        max_num_batched_tokens: int = 32,
        max_model_len: int = 128,
        enable_prefix_caching: bool = True,
        by_priority: bool = False,
    ) -> None:
        self.clock = Clock()
        self.executor = ScriptedExecutor(self.clock)
        self.manager = BlockManager(
            num_blocks=num_blocks,
            block_size=block_size,
            enable_prefix_caching=enable_prefix_caching,
        )
        self.scheduler = Scheduler(
            limits=SchedulerLimits(
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                max_model_len=max_model_len,
            ),
            block_manager=self.manager,
            eos_token_ids=frozenset([EOS]),
            by_priority=by_priority,
            clock=self.clock,
        )
        self.core = EngineCore(
            executor=self.executor,
            scheduler=self.scheduler,
            limits=AdmissionLimits(
                max_model_len=max_model_len,
                kv_capacity_tokens=self.manager.capacity_tokens,
                vocab_size=VOCAB_SIZE,
            ),
            ledger=EngineLedger(
                profile="pagefleet",
                budget_bytes=0,
                terms=(),
                block_size=block_size,
                num_blocks=num_blocks,
                limits={},
                peak_bytes=0,
            ),
            peak_bytes=lambda: 7,
            prefill_tokens_per_second=1000.0,
            clock=self.clock,
            wall_clock=self.clock,
        )

    def add(
        self,
        name: str,
        prompt: int | list[int] = 8,
        *,
        priority: int = 0,
        salt: str = "",
        sampling: SamplingParams | None = None,
        max_tokens: int = 8,
    ) -> None:
        """Queue a request; a number as prompt means that many tokens of its own."""
        if isinstance(prompt, int):
            start = 10 + 37 * sum(name.encode())
            prompt = [start + index for index in range(prompt)]
        self.core.add_request(
            EngineRequest(
                request_id=name,
                prompt_token_ids=tuple(token % VOCAB_SIZE for token in prompt),
                sampling=sampling or SamplingParams(temperature=0, max_tokens=max_tokens),
                arrival_time=self.clock.now,
                priority=priority,
                cache_salt=salt,
            )
        )

    def run(self, *, max_steps: int = 1000) -> dict[str, list[EngineOutput]]:
        """Step until nothing is left; every step must make progress."""
        outputs: dict[str, list[EngineOutput]] = {}
        for _ in range(max_steps):
            if not self.core.has_work:
                return outputs
            steps_before = len(self.executor.steps)
            for output in self.core.step():
                outputs.setdefault(output.request_id, []).append(output)
            self.core.check_integrity()
            assert len(self.executor.steps) > steps_before, "a step with work scheduled nothing"
        raise AssertionError(f"still working after {max_steps} steps")

    @property
    def running(self) -> list[str]:
        return [each.request_id for each in self.scheduler.running]

    @property
    def waiting(self) -> list[str]:
        return [each.request_id for each in self.scheduler.waiting]

    def last_step(self) -> dict[str, int]:
        """Tokens by request of the newest step."""
        return {
            item.sequence.request_id: item.num_tokens for item in self.executor.steps[-1].scheduled
        }


@pytest.fixture(scope="session")
def make_engine() -> type[Engine]:
    return Engine
