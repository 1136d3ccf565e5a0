"""Loads on an engine in this process: a line on stdin names one, a line of JSON answers.

It uses only what the engine offers to everyone, so that it also runs older code.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.engine_core import EngineCore
from pagefleet_engine.request import EngineRequest, SamplingParams
from pagefleet_engine.startup import build_engine_core

VOCABULARY = range(1000, 40000)


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that start together; `num_steps` of 0 measures their prompts, else decoding.

    Prompts before a decode repeat from run to run, so that the prefix cache has them.
    """

    batch: int
    prompt_tokens: int
    num_steps: int


LOADS = {
    "decode, batch 1, context 300": Load(1, 300, 30),
    "decode, batch 16, context 200": Load(16, 200, 12),
    "decode, batch 2, context 1100": Load(2, 1100, 12),
    "prefill, 512 tokens": Load(1, 512, 0),
}


class LoadRunner:
    """Runs loads one after the other."""

    def __init__(self, core: EngineCore, clock: Callable[[], float]) -> None:
        self._core = core
        self._clock = clock
        self._num_requests = 0

    def run(self, load: Load) -> float:
        """Tokens per second."""
        seeds = range(load.batch) if load.num_steps else [self._num_requests]
        names = [self._submit(load, seed) for seed in seeds]
        started = self._clock()
        missing = set(names)
        while missing:  # until every prompt has its first token
            missing -= {each.request_id for each in self._core.step()}
        tokens = load.batch * load.prompt_tokens
        if load.num_steps:
            tokens, started = load.batch * load.num_steps, self._clock()
            for _ in range(load.num_steps):
                self._core.step()
        seconds = self._clock() - started
        self._core.abort(names)
        return tokens / seconds

    def _submit(self, load: Load, seed: int) -> str:
        self._num_requests += 1
        prompt = random.Random(f"{load} {seed}").choices(VOCABULARY, k=load.prompt_tokens)
        request = EngineRequest(
            request_id=f"load-{self._num_requests}",
            prompt_token_ids=tuple(prompt),
            sampling=SamplingParams(temperature=0, max_tokens=200, ignore_eos=True),
            arrival_time=time.monotonic(),
        )
        self._core.add_request(request)
        return request.request_id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--kv-cache-dtype", default="auto")
    parser.add_argument("--processor-time", action="store_true")
    options = parser.parse_args()
    config = EngineConfig(
        model=options.model,
        device="cpu",
        dtype=options.dtype,
        kv_cache_dtype=options.kv_cache_dtype,
        max_model_len=2048,
        device_memory_bytes=8 << 30,
        num_gpu_blocks_override=1024,
    )
    clock = time.process_time if options.processor_time else time.perf_counter
    runner = LoadRunner(build_engine_core(config), clock)
    for line in sys.stdin:
        print(json.dumps({"tokens_per_second": runner.run(LOADS[line.strip()])}), flush=True)


if __name__ == "__main__":
    main()
