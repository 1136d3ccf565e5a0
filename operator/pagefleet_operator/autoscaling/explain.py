"""The words of a decision: its reason, its message with numbers, its conditions."""

from dataclasses import dataclass

from pagefleet_operator.autoscaling.decision import Condition
from pagefleet_operator.autoscaling.demand import Demand, RequestStatistics, Supply, Term
from pagefleet_operator.autoscaling.guards import Pressure, Veto
from pagefleet_operator.autoscaling.settings import AutoscalingMode, AutoscalingSettings
from pagefleet_operator.autoscaling.stabilize import Limit, Size

_TERM_REASONS = {
    Term.OCCUPANCY: "KVOccupancyAboveTarget",
    Term.RATE: "RequestRateAboveTarget",
    Term.PREFILL: "PrefillRateAboveTarget",
    Term.SEQUENCES: "BatchOccupancyAboveTarget",
}

_LIMITED_REASONS = {
    Limit.MIN: "TooFewReplicas",
    Limit.MAX: "TooManyReplicas",
    Limit.CAPACITY: "InsufficientCapacity",
    Limit.SCALE_UP_POLICY: "ScaleUpLimit",
    Limit.SCALE_DOWN_POLICY: "ScaleDownLimit",
}


@dataclass(frozen=True, slots=True)
class Findings:
    """All that led to a size."""

    current: int
    size: Size
    demand: Demand
    statistics: RequestStatistics
    supply: Supply
    pressure: Pressure
    forced: bool  # the pressure's step exceeds what the demand needs
    veto: Veto | None
    stabilized: bool
    settings: AutoscalingSettings
    pending: int
    placeable: int | None


def binding(found: Findings) -> str:
    """Which term, guard or bound set the size."""
    if found.size.limit in (Limit.MIN, Limit.MAX, Limit.CAPACITY):
        return found.size.limit.value
    if found.forced:
        return "preemption" if found.pressure.preempting else "slo"
    return found.demand.binding.value


def reason(found: Findings) -> str:
    if found.veto:
        return found.veto.reason
    if found.stabilized:
        return "ScaleDownStabilized"
    if found.forced and found.size.replicas > found.current:
        return "PreemptionPressure" if found.pressure.preempting else "LatencyAboveTarget"
    if found.size.limit in (Limit.MIN, Limit.MAX, Limit.CAPACITY):
        return _LIMITED_REASONS[found.size.limit]
    if found.size.replicas < found.current:
        return "DemandBelowTarget"
    if found.size.replicas > found.current:
        return _TERM_REASONS[found.demand.binding]
    return "WithinTargets"


def message(found: Findings) -> str:
    """One line: the change, the binding number, and what held it back."""
    if found.size.replicas == found.current:
        parts = [f"keep {found.current}: {_demand_text(found)}"]
    else:
        parts = [f"{found.current} -> {found.size.replicas}: {_demand_text(found)}"]
    if found.forced:
        parts.append(_pressure_text(found.pressure))
    if found.veto:
        parts.append(f"not shrinking: {found.veto.message}")
    if found.stabilized:
        window = found.settings.behavior.scale_down.stabilization_window_seconds
        parts.append(f"not shrinking: more was needed within the last {window:.0f} s")
    if found.size.limit in _LIMITED_REASONS:
        parts.append(_limit_text(found))
    return "; ".join(parts)


def conditions(found: Findings) -> tuple[Condition, ...]:
    objectives = found.settings.targets
    answers = [able_to_scale(found), _scaling_active(found), _scaling_limited(found)]
    if objectives.ttft_p90_seconds is not None or objectives.itl_p90_seconds is not None:
        answers.append(_slo_attainable(found))
    return tuple(answers)


def able_to_scale(found: Findings) -> Condition:
    if found.veto:
        return Condition("AbleToScale", "True", found.veto.reason, found.veto.message)
    if found.stabilized:
        return Condition(
            "AbleToScale",
            "True",
            "ScaleDownStabilized",
            "recent demand was higher, so the size is kept for now",
        )
    if found.size.replicas != found.current and found.settings.mode is AutoscalingMode.ACTIVE:
        text = f"the fleet goes from {found.current} to {found.size.replicas} replicas"
        return Condition("AbleToScale", "True", "SucceededRescale", text)
    return Condition("AbleToScale", "True", "ReadyForNewScale", "the size can be changed")


def metrics_unavailable(text: str) -> tuple[Condition, ...]:
    """The conditions of a decision that could not be made."""
    return (
        Condition("AbleToScale", "True", "ReadyForNewScale", "the size can be changed"),
        Condition("ScalingActive", "False", "MetricsUnavailable", text),
    )


def _scaling_active(found: Findings) -> Condition:
    if found.settings.mode is AutoscalingMode.ADVISORY:
        text = f"advisory mode: {found.size.replicas} replicas are recommended, none are changed"
        return Condition("ScalingActive", "False", "ScalingDisabled", text)
    return Condition("ScalingActive", "True", "ValidMetricFound", _demand_text(found))


def _scaling_limited(found: Findings) -> Condition:
    limited = _LIMITED_REASONS.get(found.size.limit)
    if limited:
        return Condition("ScalingLimited", "True", limited, _limit_text(found))
    return Condition(
        "ScalingLimited", "False", "DesiredWithinRange", "the desired size is within the range"
    )


def _slo_attainable(found: Findings) -> Condition:
    latency = found.pressure.latency
    if latency.itl_attainable:
        return Condition(
            "SLOAttainable", "True", "WithinReach", "latency follows the size of the fleet"
        )
    text = (
        f"p90 inter-token latency is {latency.itl_seconds:.3f} s with a nearly empty batch; "
        "more replicas will not meet the target"
    )
    return Condition("SLOAttainable", "False", "EngineTooSlow", text)


def _demand_text(found: Findings) -> str:
    demand, supply, targets = found.demand, found.supply, found.settings.targets
    term = demand.binding
    need = demand.by_term[term]
    of_kv = (
        f"{need:.2f} replicas of {supply.kv_tokens:.0f} KV tokens at {targets.kv_utilization:.0%}"
    )
    if term is Term.OCCUPANCY:
        tokens = need * targets.kv_utilization * supply.kv_tokens
        return f"{tokens:.0f} KV tokens need {of_kv}"
    if term is Term.RATE:
        rate = found.statistics.arrivals_per_second
        cost = found.statistics.kv_token_seconds or 0.0
        return f"{rate:.2f} requests/s of {cost:.0f} KV token-seconds need {of_kv}"
    if term is Term.PREFILL:
        capacity = supply.prefill_tokens_per_second or 0.0
        rate = need * targets.prefill_utilization * capacity
        return (
            f"{rate:.0f} prompt tokens/s need {need:.2f} replicas of {capacity:.0f} tokens/s "
            f"at {targets.prefill_utilization:.0%}"
        )
    return (
        f"requests in flight need {need:.2f} replicas of {supply.max_num_seqs} sequences "
        f"at {targets.kv_utilization:.0%}"
    )


def _pressure_text(pressure: Pressure) -> str:
    if pressure.preempting:
        return "preemptions go on, so one step up; a lower maxNumSeqs would avoid them"
    latency = pressure.latency
    if latency.ttft_violated:
        return f"p90 time to first token is {latency.ttft_seconds:.2f} s, so one step up"
    return f"p90 inter-token latency is {latency.itl_seconds or 0.0:.3f} s, so one step up"


def _limit_text(found: Findings) -> str:
    settings = found.settings
    return {
        Limit.MIN: f"minReplicas is {settings.min_replicas}",
        Limit.MAX: f"maxReplicas is {settings.max_replicas}",
        Limit.CAPACITY: (
            f"the nodes have room for {(found.placeable or 0) - settings.max_pending_replicas} "
            f"replicas, {found.pending} pending"
        ),
        Limit.SCALE_UP_POLICY: "limited by the scaleUp policies",
        Limit.SCALE_DOWN_POLICY: "limited by the scaleDown policies",
    }[found.size.limit]
