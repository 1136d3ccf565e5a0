"""Sequences to sample for, and both ways to draw, the kernels' by their reference."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from pagefleet_engine.executor import SampledToken
from pagefleet_engine.request import EngineRequest, SamplingParams
from pagefleet_engine.sampler import Sampler
from pagefleet_engine.sampling.draw import Draw
from pagefleet_engine.sampling.kernel_draw import KernelDraw
from pagefleet_engine.sampling.torch_draw import TorchDraw
from pagefleet_engine.sequence import Sequence
from pagefleet_kernels.sampling import sample_reference

EOS = 3
MakeDraw = Callable[[int], Draw]  # from a seed
DRAWS: dict[str, MakeDraw] = {
    "torch": lambda seed: TorchDraw(seed=seed),
    "reference": lambda seed: KernelDraw(sample_reference, seed=seed),
}

WISHES: dict[str, dict[str, Any]] = {
    "plain": {},
    "greedy": {"temperature": 0},
    "top_p": {"top_p": 0.7, "logprobs": 3},
    "top_k": {"top_k": 3, "logit_bias": {4: 2.0, 9: -100.0}},
    "min_p": {"min_p": 0.3, "repetition_penalty": 1.3, "logprobs": 0},
    "penalties": {"presence_penalty": 1.0, "frequency_penalty": -0.5},
    "min_tokens": {"min_tokens": 5, "stop_token_ids": (1,), "logprobs": 1},
    "all": {"temperature": 0, "logit_bias": {3: 9.0}, "min_tokens": 9, "frequency_penalty": 1.0},
}


def sequence(
    sampling: SamplingParams, *, name: str = "a", prompt: tuple[int, ...] = (0,), output: str = ""
) -> Sequence:
    request = EngineRequest(
        request_id=name, prompt_token_ids=prompt, sampling=sampling, arrival_time=0.0
    )
    made = Sequence(request, arrival_index=0, max_tokens=100, by_priority=False)
    made.token_ids += [int(digit) for digit in output]
    return made


def different_rows() -> list[Sequence]:
    """A request of each kind, all with the same seed."""
    return [
        sequence(SamplingParams(seed=8, **asked), name=name, output="1223")
        for name, asked in WISHES.items()
    ]


def sampler_of(make_draw: MakeDraw, *, seed: int = 0) -> Sampler:
    return Sampler(make_draw(seed), eos_token_ids=frozenset([EOS]))


def sample_one(
    make_draw: MakeDraw, logits: list[float], sampling: SamplingParams, *, output: str = ""
) -> SampledToken:
    sampler = sampler_of(make_draw)
    return sampler.sample(torch.tensor([logits]), [sequence(sampling, output=output)])["a"]


def count_drawn(
    make_draw: MakeDraw, logits: list[float], *, count: int = 300, **parameters: Any
) -> Counter[int]:
    """One step of many requests with the same logits, each with a seed of its own."""
    rows = [
        sequence(SamplingParams(seed=seed, **parameters), name=str(seed)) for seed in range(count)
    ]
    drawn = sampler_of(make_draw).sample(torch.tensor([logits]).expand(count, -1), rows)
    return Counter(each.token_id for each in drawn.values())
