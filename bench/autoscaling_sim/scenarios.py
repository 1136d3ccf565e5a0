"""The seeded scenarios of the tests and of the published table."""

from bench.autoscaling_sim.fleet import Scenario
from bench.autoscaling_sim.requests import (
    CHAT_OUTPUT,
    CHAT_PROMPT,
    CODE_OUTPUT,
    CODE_PROMPT,
    LONG_OUTPUT,
    LONG_PROMPT,
    RateAt,
    Request,
    poisson_stream,
    ramp,
    step,
)
from pagefleet_operator.autoscaling import AutoscalingSettings

SETTINGS = AutoscalingSettings(min_replicas=1, max_replicas=16)


def chat_ramp(*, seconds: float = 3600, scrape_loss: float = 0.0) -> Scenario:
    """2 to 8 requests/s and back."""
    return Scenario(
        requests=_chat(ramp(2, 8, seconds=seconds), peak=8, seconds=seconds),
        seconds=seconds,
        settings=SETTINGS,
        initial_replicas=3,
        scrape_loss=scrape_loss,
    )


def chat_step(*, seconds: float = 3600) -> Scenario:
    """2 requests/s, three times as many for a third of the time."""
    rate = step(2, 6, start=seconds / 4, end=seconds / 4 + seconds / 3)
    return Scenario(
        requests=_chat(rate, peak=6, seconds=seconds),
        seconds=seconds,
        settings=SETTINGS,
        initial_replicas=3,
    )


def prefill_bound(*, seconds: float = 3600) -> Scenario:
    """Long prompts, short answers: KV stays low while prompts queue."""
    rate = step(0.6, 3, start=seconds / 6, end=2 * seconds / 3)
    return Scenario(
        requests=poisson_stream(
            rate, peak=3, seconds=seconds, prompt=CODE_PROMPT, output=CODE_OUTPUT, seed=5
        ),
        seconds=seconds,
        settings=SETTINGS,
        initial_replicas=1,
    )


def decode_heavy(*, seconds: float = 3600) -> Scenario:
    """Short prompts, long answers: sequences outgrow the pool and preempt each other."""
    rate = step(0.5, 1.5, start=seconds / 4, end=2 * seconds / 3)
    return Scenario(
        requests=poisson_stream(
            rate, peak=1.5, seconds=seconds, prompt=LONG_PROMPT, output=LONG_OUTPUT, seed=7
        ),
        seconds=seconds,
        settings=SETTINGS,
        initial_replicas=3,
    )


def unschedulable(*, seconds: float = 3600, slots: int = 4) -> Scenario:
    """The nodes hold `slots` replicas; the load asks for more, then is gone."""
    rate = step(1, 4, start=120, end=seconds / 4)
    return Scenario(
        requests=_chat(rate, peak=4, seconds=seconds / 2),
        seconds=seconds,
        settings=SETTINGS,
        initial_replicas=2,
        slots=lambda now: slots,
    )


def _chat(rate_at: RateAt, *, peak: float, seconds: float) -> list[Request]:
    return poisson_stream(
        rate_at, peak=peak, seconds=seconds, prompt=CHAT_PROMPT, output=CHAT_OUTPUT, seed=3
    )
