"""The autoscaler: decide(snapshot, state, now) -> Decision. Pure; it reads no clock and no network.

settings, snapshot, sample   the inputs; spec_settings reads the custom resource
state                        what one decision leaves to the next
fleet -> demand, guards      how much is needed, and what else counts
stabilize                    windows, policies, bounds
decide -> explain, decision  the size, its reason and its conditions
"""

from pagefleet_operator.autoscaling.decide import decide
from pagefleet_operator.autoscaling.decision import Condition, Decision, restore_state
from pagefleet_operator.autoscaling.sample import Counters, EngineSample, Histogram
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
from pagefleet_operator.autoscaling.snapshot import (
    FleetSnapshot,
    PodObservation,
    PodState,
    ReplicaCapacity,
)
from pagefleet_operator.autoscaling.spec_settings import settings_from_spec
from pagefleet_operator.autoscaling.state import AutoscalerState, ScaleEvent

__all__ = [
    "AutoscalerState",
    "AutoscalingMode",
    "AutoscalingSettings",
    "AutoscalingTargets",
    "Condition",
    "Counters",
    "Decision",
    "EngineSample",
    "FleetSnapshot",
    "Histogram",
    "PodObservation",
    "PodState",
    "PolicyType",
    "ReplicaCapacity",
    "ScaleEvent",
    "ScalingBehavior",
    "ScalingPolicy",
    "ScalingRules",
    "SelectPolicy",
    "decide",
    "default_scale_down",
    "default_scale_up",
    "restore_state",
    "settings_from_spec",
]
