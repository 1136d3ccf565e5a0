"""One engine in a process of its own: `python -m bench.gpu.engine_run SETTINGS`, JSON to stdout.

Settings are JSON: fields of EngineConfig, and `prompts`, `prompt_tokens`, `new_tokens` and, if the
first prompt is to be sampled too, alone and among the others, `sampled_tokens`.
"""

import json
import random
import sys
import time
from typing import Any

VOCABULARY = (1000, 100_000)  # ordinary tokens of Llama-3


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    size = {name: settings.pop(name) for name in ("prompts", "prompt_tokens", "new_tokens")}
    size["sampled_tokens"] = settings.pop("sampled_tokens", 0)
    print(json.dumps(run(settings, **size)))


def run(
    settings: dict[str, Any],
    *,
    prompts: int,
    prompt_tokens: int,
    new_tokens: int,
    sampled_tokens: int = 0,
    vocabulary: tuple[int, int] = VOCABULARY,
) -> dict[str, Any]:
    """Greedy tokens, tokens a second, and memory at its peak beside what the ledger grants."""
    from pagefleet_engine.config import EngineConfig
    from pagefleet_engine.llm import LLM
    from pagefleet_engine.request import SamplingParams

    llm = LLM.from_config(EngineConfig(**settings))
    try:
        draw = random.Random(0)
        ids = [draw.choices(range(*vocabulary), k=prompt_tokens) for _ in range(prompts)]
        greedy = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True)
        llm.generate(ids[:1], greedy)
        started = time.perf_counter()
        answers = llm.generate(ids, greedy)
        seconds = time.perf_counter() - started
        ledger = llm.core.ledger()
        return {
            "tokens": [answer.token_ids for answer in answers],
            "errors": [answer.error for answer in answers if answer.error],
            "tokens_per_second": prompts * new_tokens / seconds,
            "peak_bytes": ledger.peak_bytes,
            "budget_bytes": ledger.budget_bytes,
            "sampled": _sample(llm, ids, sampled_tokens) if sampled_tokens else [],
        }
    finally:
        llm.close()


def _sample(llm: Any, ids: list[list[int]], new_tokens: int) -> list[list[int]]:
    """What a seed gives the first prompt alone and in the batch."""
    from pagefleet_engine.request import SamplingParams

    seeded = SamplingParams(
        temperature=0.8, top_p=0.9, seed=7, max_tokens=new_tokens, ignore_eos=True
    )
    return [llm.generate(batch, seeded)[0].token_ids for batch in (ids[:1], ids)]


if __name__ == "__main__":
    main()
