"""FleetView: the snapshot with every pod's sample judged as fresh, carried or missing."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

from pagefleet_operator.autoscaling.sample import EngineSample
from pagefleet_operator.autoscaling.snapshot import FleetSnapshot, PodState
from pagefleet_operator.autoscaling.state import AutoscalerState

FRESH_SECONDS = 15.0
CARRIED_SECONDS = 60.0
HUNG_SECONDS = 30.0


class Freshness(StrEnum):
    FRESH = "fresh"
    CARRIED = "carried"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class PodView:
    name: str
    state: PodState
    sample: EngineSample | None  # the last one ever seen
    freshness: Freshness

    @property
    def missing(self) -> bool:
        return self.freshness is Freshness.MISSING

    @property
    def hung(self) -> bool:
        """Ready for the API server, but its engine has work and does not step."""
        sample = self.sample
        return (
            self.state is PodState.READY
            and sample is not None
            and sample.last_step_at is not None
            and sample.running > 0
            and sample.scraped_at - sample.last_step_at > HUNG_SECONDS
        )


@dataclass(frozen=True, slots=True)
class Load:
    """Tokens and requests in a set of pods; `used_tokens` are pinned in KV blocks."""

    used_tokens: float
    waiting_prompt_tokens: float
    running: float
    waiting: float


@dataclass(frozen=True, slots=True)
class FleetView:
    pods: tuple[PodView, ...]

    @property
    def ready(self) -> tuple[PodView, ...]:
        return tuple(pod for pod in self.pods if pod.state is PodState.READY)

    @property
    def serving(self) -> int:
        """Ready pods that make progress."""
        return sum(1 for pod in self.ready if not pod.hung)

    @property
    def missing(self) -> int:
        return sum(1 for pod in self.ready if pod.missing)

    @property
    def missing_share(self) -> float:
        return self.missing / len(self.ready) if self.ready else 0.0

    @property
    def placed(self) -> int:
        """Pods that hold a slot of a node; a draining one can be called back."""
        holding = (PodState.STARTING, PodState.READY, PodState.DRAINING)
        return sum(1 for pod in self.pods if pod.state in holding)

    @property
    def pending(self) -> int:
        return sum(1 for pod in self.pods if pod.state is PodState.PENDING)

    @property
    def oldest_waiting_seconds(self) -> float:
        samples = _samples(pod for pod in self.ready if not pod.missing)
        return max((sample.oldest_waiting_seconds for sample in samples), default=0.0)

    @property
    def measured_kv_tokens(self) -> float | None:
        return _typical(sample.kv_capacity_tokens for sample in _samples(self.ready))

    @property
    def measured_prefill_rate(self) -> float | None:
        rates = (sample.prefill_tokens_per_second for sample in _samples(self.ready))
        return _typical(rate for rate in rates if rate is not None)

    def silent_seconds(self, now: float) -> list[float]:
        """For each ready pod that ever reported, how long ago that was."""
        return [now - sample.scraped_at for sample in _samples(self.ready)]

    def load(self) -> Load:
        """What the ready pods carry; a pod that stopped reporting carries what it last did."""
        return _sum_load(_samples(self.ready))

    def cautious_load(self, *, tokens_if_missing: float) -> Load:
        """The most that may be there: draining pods too, and silent pods taken as full."""
        reporting = [
            pod
            for pod in self.pods
            if pod.state in (PodState.READY, PodState.DRAINING) and not pod.missing
        ]
        load = _sum_load(_samples(reporting))
        return Load(
            used_tokens=load.used_tokens + tokens_if_missing * self.missing,
            waiting_prompt_tokens=load.waiting_prompt_tokens,
            running=load.running,
            waiting=load.waiting,
        )


def view_fleet(snapshot: FleetSnapshot, state: AutoscalerState, now: float) -> FleetView:
    """Join the pods of the snapshot with the newest sample of each."""
    return FleetView(
        tuple(
            PodView(
                name=pod.name,
                state=pod.state,
                sample=state.samples.get(pod.name),
                freshness=judge(state.samples.get(pod.name), now),
            )
            for pod in snapshot.pods
        )
    )


def judge(sample: EngineSample | None, now: float) -> Freshness:
    """No sample is not a zero: it is missing."""
    if sample is None or now - sample.scraped_at > CARRIED_SECONDS:
        return Freshness.MISSING
    return Freshness.FRESH if now - sample.scraped_at <= FRESH_SECONDS else Freshness.CARRIED


def _samples(pods: Iterable[PodView]) -> list[EngineSample]:
    return [pod.sample for pod in pods if pod.sample is not None]


def _typical(values: Iterable[float]) -> float | None:
    positive = [value for value in values if value > 0]
    return median(positive) if positive else None


def _sum_load(samples: Iterable[EngineSample]) -> Load:
    samples = list(samples)
    return Load(
        used_tokens=sum(sample.kv_used_tokens for sample in samples),
        waiting_prompt_tokens=sum(sample.waiting_prompt_tokens for sample in samples),
        running=sum(sample.running for sample in samples),
        waiting=sum(sample.waiting for sample in samples),
    )
