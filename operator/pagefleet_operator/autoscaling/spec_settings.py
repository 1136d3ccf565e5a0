"""From `spec.autoscaling` to AutoscalingSettings: percents to shares, absent to the default."""

from collections.abc import Iterable

from pagefleet_operator.autoscaling.settings import (
    AutoscalingMode,
    AutoscalingSettings,
    AutoscalingTargets,
    PolicyType,
    ScalingBehavior,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
    default_scale_down,
    default_scale_up,
)
from pagefleet_operator.spec import autoscaling as spec
from pagefleet_operator.spec.quantity import duration_seconds


def settings_from_spec(autoscaling: spec.Autoscaling) -> AutoscalingSettings:
    behavior = autoscaling.behavior or spec.ScalingBehavior()
    return AutoscalingSettings(
        min_replicas=autoscaling.floor,
        max_replicas=autoscaling.max_replicas,
        targets=_targets(autoscaling.targets or spec.ScalingTargets()),
        behavior=ScalingBehavior(
            scale_up=_rules(behavior.scale_up, default_scale_up()),
            scale_down=_rules(behavior.scale_down, default_scale_down()),
        ),
        mode=AutoscalingMode(autoscaling.mode or "Active"),
    )


def _targets(targets: spec.ScalingTargets) -> AutoscalingTargets:
    default = AutoscalingTargets()
    return AutoscalingTargets(
        kv_utilization=_share(targets.kv_utilization, default.kv_utilization),
        prefill_utilization=_share(targets.prefill_utilization, default.prefill_utilization),
        ttft_p90_seconds=_seconds(targets.ttft_p90),
        itl_p90_seconds=_seconds(targets.itl_p90),
    )


def _share(percent: int | None, default: float) -> float:
    return default if percent is None else percent / 100


def _seconds(duration: str | None) -> float | None:
    return None if duration is None else duration_seconds(duration)


def _rules(rules: spec.ScalingRules | None, default: ScalingRules) -> ScalingRules:
    if rules is None:
        return default
    window = rules.stabilization_window_seconds
    return ScalingRules(
        stabilization_window_seconds=default.stabilization_window_seconds
        if window is None
        else window,
        policies=default.policies if rules.policies is None else _policies(rules.policies),
        select_policy=SelectPolicy(rules.select_policy or "Max"),
    )


def _policies(policies: Iterable[spec.ScalingPolicy]) -> tuple[ScalingPolicy, ...]:
    return tuple(
        ScalingPolicy(PolicyType(policy.type), policy.value, policy.period_seconds)
        for policy in policies
    )
