"""LLM: offline generation in this process, without a server."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.engine_core import EngineCore
from pagefleet_engine.parallel.leader import build_parallel_core
from pagefleet_engine.request import (
    EngineOutput,
    EngineRequest,
    FinishReason,
    SamplingParams,
    TokenLogprobs,
)
from pagefleet_engine.startup import build_engine_core


@dataclass(slots=True)
class Completion:
    """What became of one prompt; `error` says why there is no full answer."""

    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    error: str | None = None
    num_cached_tokens: int = 0

    def add(self, output: EngineOutput) -> None:
        self.token_ids += output.new_token_ids
        self.logprobs += output.logprobs or ()
        self.finish_reason = output.finish_reason
        self.error = output.error
        self.num_cached_tokens = output.num_cached_tokens


class LLM:
    """Generates for batches of tokenized prompts on the same core that the server runs."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self._num_requests = 0

    @classmethod
    def from_config(cls, config: EngineConfig) -> Self:
        build = build_parallel_core if config.num_ranks > 1 else build_engine_core
        return cls(build(config))

    def close(self) -> None:
        """End the processes that hold parts of the model, if there are any."""
        self.core.close()

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: SamplingParams | Sequence[SamplingParams],
    ) -> list[Completion]:
        """One completion per prompt, in order; `sampling` is shared or one per prompt."""
        each = [sampling] * len(prompts) if isinstance(sampling, SamplingParams) else sampling
        completions: dict[str, Completion] = {}
        for prompt, params in zip(prompts, each, strict=True):
            completions[self._submit(prompt, params)] = Completion()
        while self.core.has_work:
            for output in self.core.step():
                if output.request_id in completions:
                    completions[output.request_id].add(output)
        return list(completions.values())

    def _submit(self, prompt: Sequence[int], sampling: SamplingParams) -> str:
        request_id = f"offline-{self._num_requests}"
        self._num_requests += 1
        self.core.add_request(
            EngineRequest(
                request_id=request_id,
                prompt_token_ids=tuple(prompt),
                sampling=sampling,
                arrival_time=time.monotonic(),
            )
        )
        return request_id
