"""Small builders for the autoscaler's inputs, and a clock that feeds it a steady load."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from pagefleet_operator.autoscaling import (
    AutoscalerState,
    AutoscalingSettings,
    AutoscalingTargets,
    Counters,
    Decision,
    EngineSample,
    FleetSnapshot,
    PodObservation,
    PodState,
    ReplicaCapacity,
    ScalingBehavior,
    ScalingRules,
    decide,
    default_scale_down,
    default_scale_up,
)

KV_TOKENS = 10_000


def sample(
    pod: str = "a",
    *,
    at: float = 0.0,
    used: float = 0.0,
    running: int = 0,
    waiting: int = 0,
    waiting_tokens: float = 0.0,
    oldest: float = 0.0,
    counters: Counters | None = None,
    prefill_rate: float | None = None,
    last_step_at: float | None = None,
) -> EngineSample:
    return EngineSample(
        pod=pod,
        scraped_at=at,
        running=running,
        waiting=waiting,
        waiting_prompt_tokens=waiting_tokens,
        oldest_waiting_seconds=oldest,
        kv_used_tokens=used,
        kv_capacity_tokens=KV_TOKENS,
        counters=counters or Counters(),
        prefill_tokens_per_second=prefill_rate,
        last_step_at=last_step_at,
    )


def ready(one: EngineSample) -> PodObservation:
    return PodObservation(one.pod, PodState.READY, one)


def silent(pod: str, state: PodState = PodState.READY) -> PodObservation:
    return PodObservation(pod, state, None)


def pods_using(*used: float, at: float = 0.0) -> tuple[PodObservation, ...]:
    return tuple(ready(sample(f"pod-{i}", at=at, used=tokens)) for i, tokens in enumerate(used))


def without_policies(rules: ScalingRules, *, window: float) -> ScalingRules:
    return replace(rules, policies=(), stabilization_window_seconds=window)


def settings(
    *,
    least: int = 1,
    most: int = 20,
    up_window: float = 0,
    down_window: float = 0,
    targets: AutoscalingTargets | None = None,
) -> AutoscalingSettings:
    """No scale policies, and by default no windows: the law alone."""
    return AutoscalingSettings(
        min_replicas=least,
        max_replicas=most,
        targets=targets or AutoscalingTargets(),
        behavior=ScalingBehavior(
            scale_up=without_policies(default_scale_up(), window=up_window),
            scale_down=without_policies(default_scale_down(), window=down_window),
        ),
    )


def snapshot(
    pods: Iterable[PodObservation],
    *,
    current: int | None = None,
    config: AutoscalingSettings | None = None,
    free_slots: int | None = None,
    rollout_running: bool = False,
    max_num_seqs: int | None = None,
    prefill_rate: float | None = None,
    cold_start: float = 60.0,
) -> FleetSnapshot:
    pods = tuple(pods)
    return FleetSnapshot(
        pods=pods,
        current_replicas=len(pods) if current is None else current,
        capacity=ReplicaCapacity(
            kv_tokens=KV_TOKENS,
            max_num_seqs=max_num_seqs,
            prefill_tokens_per_second=prefill_rate,
            cold_start_seconds=cold_start,
        ),
        settings=config or settings(),
        free_slots=free_slots,
        rollout_running=rollout_running,
    )


@dataclass(slots=True)
class Controller:
    """Evaluates every 15 s and keeps the state, as the operator does."""

    now: float = 0.0
    state: AutoscalerState = field(default_factory=AutoscalerState)

    def tick(self, fleet: FleetSnapshot, *, seconds: float = 15.0) -> Decision:
        self.now += seconds
        decision = decide(fleet, self.state, self.now)
        self.state = decision.state
        return decision

    def see(self, used: Sequence[float], *, times: int = 1, **options: object) -> Decision:
        """`times` evaluations of fresh samples with these pinned tokens per pod."""
        for _ in range(times):
            pods = pods_using(*used, at=self.now + 15.0)
            decision = self.tick(snapshot(pods, **options))  # type: ignore[arg-type]
        return decision
