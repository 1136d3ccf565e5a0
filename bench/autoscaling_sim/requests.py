"""Seeded request streams: how many arrive, and how long they are."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

RateAt = Callable[[float], float]  # requests per second at a time


@dataclass(frozen=True, slots=True)
class Request:
    arrival: float
    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Lengths:
    """A log-normal length: median, 90th percentile, and a ceiling."""

    p50: float
    p90: float
    most: int

    def draw(self, rng: random.Random) -> int:
        sigma = math.log(self.p90 / self.p50) / 1.2816
        return max(1, min(self.most, round(rng.lognormvariate(math.log(self.p50), sigma))))


CHAT_PROMPT, CHAT_OUTPUT = Lengths(1020, 2735, 4096), Lengths(129, 424, 1024)
CODE_PROMPT, CODE_OUTPUT = Lengths(1469, 5194, 7436), Lengths(13, 55, 252)
LONG_PROMPT, LONG_OUTPUT = Lengths(330, 700, 2048), Lengths(1200, 2400, 3000)


def poisson_stream(
    rate_at: RateAt, *, peak: float, seconds: float, prompt: Lengths, output: Lengths, seed: int
) -> list[Request]:
    """Arrivals of a Poisson process whose rate changes; `peak` bounds it (thinning)."""
    rng = random.Random(seed)
    requests = []
    at = rng.expovariate(peak)
    while at < seconds:
        if rng.random() < rate_at(at) / peak:
            requests.append(Request(at, prompt.draw(rng), output.draw(rng)))
        at += rng.expovariate(peak)
    return requests


def ramp(low: float, high: float, *, seconds: float) -> RateAt:
    """Up to `high` in the middle and down again, in straight lines."""
    half = seconds / 2
    return lambda at: low + (high - low) * (1 - abs(at - half) / half)


def step(low: float, high: float, *, start: float, end: float) -> RateAt:
    return lambda at: high if start <= at < end else low
