"""Ranks that replay their decoding steps, against a model in one rank that runs all of them.

Each rank captures its own part, in a process of its own with gloo's collectives, and fuses its
layers as on a GPU. Left out: NCCL
inside real captures, which needs as many GPUs as ranks.
"""

import multiprocessing
from array import array
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.executor import StepInputs
from pagefleet_engine.limits import resolve_limits
from pagefleet_engine.llm import LLM
from pagefleet_engine.models.checkpoint import read_shape
from pagefleet_engine.parallel.placement import Node, Place, node_places
from pagefleet_engine.parallel.rank import Rank
from pagefleet_engine.request import SamplingParams
from pagefleet_engine.sampler import Sampler
from pagefleet_engine.sampling.torch_draw import TorchDraw
from tests.support.graph_replay import LIKE_A_GPU, FakeCapture
from tests.support.parallel_engine import save_model

BLOCK_SIZE, NUM_BLOCKS = 8, 16
PROMPTS = ([5, 12, 19], [26, 33, 40, 47, 54, 61, 68, 75, 82], [7])
TABLES = [array("q", range(4 * index, 4 * index + 4)) for index in range(len(PROMPTS))]
NEW_TOKENS = 5


def settings(folder: Path, *, tensor: int = 1, stages: int = 1) -> EngineConfig:
    return EngineConfig(
        model=str(folder),
        device="cpu",
        dtype="float32",
        block_size=BLOCK_SIZE,
        max_model_len=32,
        max_num_seqs=4,
        max_num_batched_tokens=16,
        device_memory_bytes=8 << 30,
        num_gpu_blocks_override=NUM_BLOCKS,
        tensor_parallel_size=tensor,
        pipeline_parallel_size=stages,
    )


def steps(answers: list[tuple[int, ...]]) -> list[StepInputs]:
    """The prompts in one step, then steps that are told what was generated before them."""
    lengths = [len(prompt) for prompt in PROMPTS]
    ends = torch.tensor(lengths).cumsum(0) - 1
    prompts = StepInputs(
        token_ids=[token for prompt in PROMPTS for token in prompt],
        num_computed=[0] * len(PROMPTS),
        num_tokens=lengths,
        block_tables=TABLES,
        rows=ends.tolist(),
    )
    decoding = [
        StepInputs(
            token_ids=[answer[index] for answer in answers],
            num_computed=[length + index for length in lengths],
            num_tokens=[1] * len(PROMPTS),
            block_tables=TABLES,
            rows=list(range(len(PROMPTS))),
        )
        for index in range(NEW_TOKENS - 1)
    ]
    return [prompts, *decoding]


def run_rank(
    config: EngineConfig, place: Place, port: int, todo: list[StepInputs], results: "Queue[Any]"
) -> None:
    """One rank: load, capture, run the steps; the last stage tells the best tokens."""
    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port)
    rank = Rank(config, place, read_shape(config.model_path))
    limits = resolve_limits(config, shape=rank.shape, accelerator=rank.device.accelerator)
    worker = rank.load(limits, store)
    with patch("pagefleet_engine.worker.open_backend", lambda *_, **__: LIKE_A_GPU):
        profile = worker.profile()
    unused = Sampler(TorchDraw(seed=0), eos_token_ids=frozenset())
    runner = worker.make_runner(profile, num_blocks=NUM_BLOCKS, sampler=unused)
    capture = FakeCapture()
    worker.capture_decoding(runner, capture)
    best = [runner.compute(step).argmax(dim=1).tolist() for step in todo]
    results.put((place.rank, capture.replays, best))
    rank.leave()


def run_ranks(config: EngineConfig, todo: list[StepInputs]) -> dict[int, tuple[int, Any]]:
    """Replays and best tokens of every rank."""
    context = multiprocessing.get_context("forkserver")  # imports once, as for an engine's ranks
    context.set_forkserver_preload(["pagefleet_engine.parallel.rank"])
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    results: Queue[Any] = context.Queue()
    places = node_places(config, Node())
    ranks = [
        context.Process(target=run_rank, args=(config, place, store.port, todo, results))
        for place in places
    ]
    for each in ranks:
        each.start()
    try:
        said = [results.get(timeout=120) for _ in ranks]
    finally:
        for each in ranks:
            each.join(30)
            each.kill()
    return {rank: (replays, best) for rank, replays, best in said}


@pytest.mark.parametrize(("tensor", "stages"), [(2, 1), (1, 2)])
def test_ranks_that_replay_give_the_tokens_of_one_that_does_not(
    tensor: int, stages: int, tmp_path: Path
) -> None:
    save_model(tmp_path, "llama")
    greedy = SamplingParams(temperature=0, max_tokens=NEW_TOKENS, ignore_eos=True)
    llm = LLM.from_config(settings(tmp_path))
    answers = [tuple(each.token_ids) for each in llm.generate(list(PROMPTS), greedy)]
    llm.close()

    config = settings(tmp_path, tensor=tensor, stages=stages)
    said = run_ranks(config, steps(answers))
    assert {replays for replays, _ in said.values()} == {NEW_TOKENS - 1}
    assert list(zip(*said[0][1], strict=True)) == answers
