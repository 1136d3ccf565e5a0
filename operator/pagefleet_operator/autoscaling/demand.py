"""How many replicas the load needs: absolute demand over what one replica supplies.

    n_occ = (U + B * min(1, S/T)) / (theta * K)          KV tokens pinned, plus the backlog's
    n_rate = arrivals/s * w / (theta * K)                KV tokens to come (Little's law)
    n_pf  = (arrivals/s * i + waiting prompt / T) / (rho * R)    prompt tokens per second
    n_seq = (running + waiting * min(1, S/T)) / (theta * max_num_seqs)     places in the batch

K, R: one replica's KV tokens and prefill tokens/s. U: tokens pinned. B: tokens the waiting
requests will pin. w: KV token-seconds a request costs. i, o: its uncached prompt and its output.
S = w / (i + o/2): how long it stays. T: how long new capacity takes; a backlog that is gone
before T must not buy any. Nothing here is a ratio of a full pool, so nothing saturates at 1.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from pagefleet_operator.autoscaling.fleet import FleetView, Load
from pagefleet_operator.autoscaling.settings import AutoscalingTargets
from pagefleet_operator.autoscaling.snapshot import ReplicaCapacity
from pagefleet_operator.autoscaling.state import STATISTICS_WINDOW_SECONDS, AutoscalerState

ARRIVAL_WINDOW_SECONDS = 60.0
MIN_FINISHED = 10  # fewer finished requests say nothing about their mean
MIN_CLEARING_SECONDS = 60.0


class Term(StrEnum):
    OCCUPANCY = "occupancy"
    RATE = "rate"
    PREFILL = "prefill"
    SEQUENCES = "sequences"


@dataclass(frozen=True, slots=True)
class Supply:
    """One replica: planned, or measured where the fleet has measured it."""

    kv_tokens: float
    prefill_tokens_per_second: float | None
    max_num_seqs: int | None
    clearing_seconds: float


@dataclass(frozen=True, slots=True)
class RequestStatistics:
    """The mean request of the last minutes. None: too few requests to say."""

    arrivals_per_second: float
    prompt_tokens: float | None
    output_tokens: float | None
    kv_token_seconds: float | None

    @property
    def residence_seconds(self) -> float | None:
        if self.kv_token_seconds is None or self.prompt_tokens is None:
            return None
        held = self.prompt_tokens + (self.output_tokens or 0.0) / 2
        return self.kv_token_seconds / held if held > 0 else None


@dataclass(frozen=True, slots=True)
class Demand:
    """Replicas needed, by each term, as real numbers."""

    occupancy: float
    rate: float
    prefill: float
    sequences: float

    @property
    def by_term(self) -> dict[Term, float]:
        return {
            Term.OCCUPANCY: self.occupancy,
            Term.RATE: self.rate,
            Term.PREFILL: self.prefill,
            Term.SEQUENCES: self.sequences,
        }

    @property
    def binding(self) -> Term:
        needs = self.by_term
        return max(needs, key=needs.__getitem__)

    @property
    def replicas(self) -> int:
        # Ten replicas' worth of demand must not become eleven by a rounding error.
        return math.ceil(max(self.by_term.values()) - 1e-9)


def read_supply(capacity: ReplicaCapacity, fleet: FleetView) -> Supply:
    """Prefer what the pods measured of themselves to what the plan expected."""
    return Supply(
        kv_tokens=fleet.measured_kv_tokens or capacity.kv_tokens,
        prefill_tokens_per_second=(
            fleet.measured_prefill_rate or capacity.prefill_tokens_per_second
        ),
        max_num_seqs=capacity.max_num_seqs,
        clearing_seconds=max(MIN_CLEARING_SECONDS, capacity.cold_start_seconds),
    )


def read_statistics(state: AutoscalerState, fleet: FleetView, now: float) -> RequestStatistics:
    """Rates over one minute, means over three."""
    flow = state.flow_since(now - STATISTICS_WINDOW_SECONDS)
    # A first token means a computed prompt; engines without that histogram count the finished.
    prompts = flow.time_to_first_token.total or flow.finished
    enough = flow.finished >= MIN_FINISHED
    return RequestStatistics(
        arrivals_per_second=_arrivals_per_second(state, fleet, now),
        prompt_tokens=flow.prompt_tokens_computed / prompts if prompts >= MIN_FINISHED else None,
        output_tokens=flow.generation_tokens / flow.finished if enough else None,
        kv_token_seconds=flow.kv_token_seconds / flow.finished if enough else None,
    )


def _arrivals_per_second(state: AutoscalerState, fleet: FleetView, now: float) -> float:
    """Pods that are silent now are taken to go on like the average pod that reported."""
    since = now - ARRIVAL_WINDOW_SECONDS
    watched = state.observed_seconds(ARRIVAL_WINDOW_SECONDS, now)
    covered = state.pod_seconds_since(since)
    if watched <= 0 or covered <= 0:
        return 0.0
    silent = sum(min(seconds, ARRIVAL_WINDOW_SECONDS) for seconds in fleet.silent_seconds(now))
    return state.flow_since(since).arrivals / watched * (covered + silent) / covered


def replicas_needed(
    load: Load, statistics: RequestStatistics, supply: Supply, targets: AutoscalingTargets
) -> Demand:
    """Each term of the law at the given targets."""
    kv_tokens = targets.kv_utilization * supply.kv_tokens
    return Demand(
        occupancy=_occupied_tokens(load, statistics, supply) / kv_tokens,
        rate=statistics.arrivals_per_second * (statistics.kv_token_seconds or 0.0) / kv_tokens,
        prefill=_prefill_replicas(load, statistics, supply, targets.prefill_utilization),
        sequences=_sequence_replicas(load, statistics, supply, targets.kv_utilization),
    )


def _occupied_tokens(load: Load, statistics: RequestStatistics, supply: Supply) -> float:
    output_tokens = statistics.output_tokens or 0.0
    backlog = load.waiting_prompt_tokens + load.waiting * output_tokens / 2
    return load.used_tokens + backlog * _backlog_share(statistics, supply)


def _backlog_share(statistics: RequestStatistics, supply: Supply) -> float:
    """How much of the backlog will still be there when new capacity is; all, if unknown."""
    residence = statistics.residence_seconds
    return 1.0 if residence is None else min(1.0, residence / supply.clearing_seconds)


def _prefill_replicas(
    load: Load, statistics: RequestStatistics, supply: Supply, utilization: float
) -> float:
    if not supply.prefill_tokens_per_second:
        return 0.0
    arriving = statistics.arrivals_per_second * (statistics.prompt_tokens or 0.0)
    backlog = load.waiting_prompt_tokens / supply.clearing_seconds
    return (arriving + backlog) / (utilization * supply.prefill_tokens_per_second)


def _sequence_replicas(
    load: Load, statistics: RequestStatistics, supply: Supply, utilization: float
) -> float:
    if not supply.max_num_seqs:
        return 0.0
    sequences = load.running + load.waiting * _backlog_share(statistics, supply)
    return sequences / (utilization * supply.max_num_seqs)
