"""The engine on this GPU, with random weights of Llama-3-8B's shape, one process per setting."""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from bench.gpu.cases import reason
from bench.gpu.model_folder import (
    FEW_LAYERS,
    FULL_LAYERS,
    free_bytes,
    needed_bytes,
    random_llama,
)
from bench.gpu.rows import Row

STAGE = "engine"
Settings = dict[str, Any]
LOAD: Settings = {"prompts": 16, "prompt_tokens": 512, "new_tokens": 128}
FEW: Settings = {"prompts": 8, "prompt_tokens": 256, "new_tokens": 32, "sampled_tokens": 32}
COMMON: Settings = {
    "device": "cuda",
    "max_model_len": 4096,
    "max_num_seqs": 64,
    "enable_prefix_caching": False,
}
RUNS: dict[str, Settings] = {
    "triton, graphs": {"attention_backend": "triton"},
    "triton, no graphs": {"attention_backend": "triton", "enforce_eager": True},
    "torch": {"attention_backend": "torch", "enforce_eager": True},
}
# The slowest last: it is what a short time may leave out.
MEASURED: dict[str, Settings] = {
    "triton, graphs": RUNS["triton, graphs"],
    "triton, no graphs": RUNS["triton, no graphs"],
    "triton, graphs, int8 KV": {"attention_backend": "triton", "kv_cache_dtype": "int8"},
    "torch": RUNS["torch"],
}
MOST_SECONDS = 90.0  # of one engine
SAME_TOKENS = (("triton, no graphs", "torch"), ("triton, graphs", "triton, no graphs"))
# In float32: the logits of random weights are so close that roundings of bf16 choose the token.
MOST_DIFFERING = 0.01
FUSED_ON_TRITON = "on triton the decoder layers are fused"


def rows() -> Iterator[Row]:
    with random_llama(FEW_LAYERS) as folder:
        yield from _same_tokens({**COMMON, **FEW, "dtype": "float32", "model": str(folder)})
    free = min(torch.cuda.mem_get_info()[0], free_bytes())
    layers = FULL_LAYERS if free >= needed_bytes(FULL_LAYERS) else FEW_LAYERS
    with random_llama(layers) as folder:
        common = {**COMMON, **LOAD, "dtype": "bfloat16", "model": str(folder)}
        for name, settings in MEASURED.items():
            try:
                answer = _run({**common, **settings})
            except Exception as error:
                yield Row(stage=STAGE, name=name, failed=reason(error))
            else:
                yield speed_row(name, answer, layers=layers)
                yield memory_row(name, answer)


def _same_tokens(common: Settings) -> Iterator[Row]:
    """At once: nothing is timed, and each engine takes a share of the memory."""
    common = {**common, "gpu_memory_utilization": 0.9 / len(RUNS)}
    tokens: dict[str, list[list[int]]] = {}
    with ThreadPoolExecutor(len(RUNS)) as pool:
        running = {name: pool.submit(_run, {**common, **RUNS[name]}) for name in RUNS}
    for name, run in running.items():
        try:
            answer = run.result()
            seeded = seed_row(name, *answer["sampled"])
        except Exception as error:
            yield Row(stage=STAGE, name=f"float32, {name}", failed=reason(error))
        else:
            tokens[name] = answer["tokens"]
            yield seeded
    for one, other in SAME_TOKENS:
        if one in tokens and other in tokens:
            yield agreement_row(one, other, tokens[one], tokens[other])


def _run(settings: Settings) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.gpu.engine_run", json.dumps(settings)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"it was ended after {MOST_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise RuntimeError(said_last(done.stderr))
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    if answer["errors"]:
        raise RuntimeError(answer["errors"][0])
    return answer


def said_last(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def speed_row(name: str, answer: dict[str, Any], *, layers: int) -> Row:
    return Row(
        stage=STAGE,
        name=name,
        rate=answer["tokens_per_second"],
        unit="tokens/s",
        note=f"{LOAD['prompts']} prompts of {LOAD['prompt_tokens']} tokens, {layers} layers",
    )


def memory_row(name: str, answer: dict[str, Any]) -> Row:
    """Torch's peak over what the ledger grants the process, which must not be passed."""
    return Row(
        stage=STAGE,
        name=f"{name}: peak memory over the ledger's budget",
        error=answer["peak_bytes"] / answer["budget_bytes"],
        tolerance=1.0,
        note=f"{answer['peak_bytes'] / 2**30:.1f} of {answer['budget_bytes'] / 2**30:.1f} GiB",
    )


def agreement_row(
    one: str, other: str, tokens: list[list[int]], other_tokens: list[list[int]]
) -> Row:
    return Row(
        stage=STAGE,
        name=f"float32, greedy tokens that differ: {one} and {other}",
        error=_differing(tokens, other_tokens),
        tolerance=MOST_DIFFERING,
        note=FUSED_ON_TRITON if "torch" in (one, other) else "",
    )


def seed_row(name: str, alone: list[int], in_a_batch: list[int]) -> Row:
    return Row(
        stage=STAGE,
        name=f"float32, {name}: tokens of a seed that differ alone and in a batch",
        error=_differing([alone], [in_a_batch]),
        tolerance=MOST_DIFFERING,
    )


def _differing(tokens: list[list[int]], other_tokens: list[list[int]]) -> float:
    """The share of tokens that differ; what follows the first difference counts too."""
    pairs = [
        (a, b)
        for left, right in zip(tokens, other_tokens, strict=True)
        for a, b in zip(left, right, strict=True)
    ]
    return sum(1 for a, b in pairs if a != b) / len(pairs)
