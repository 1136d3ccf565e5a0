"""spec.autoscaling: bounds, targets and speed of the built-in autoscaler."""

from typing import Annotated, Literal

from pydantic import Field

from pagefleet_operator.spec.fields import Count, Duration, Percent, SpecPart

FleetSize = Annotated[int, Field(strict=True, ge=1, le=1000)]


class ScalingTargets(SpecPart):
    """What a replica should be loaded to."""

    kv_utilization: Percent | None = Field(
        default=None, description="Percent of the KV cache that demand should fill. Absent: 75."
    )
    prefill_utilization: Percent | None = Field(
        default=None,
        description="Percent of the prompt throughput that demand should use. Absent: 60.",
    )
    ttft_p90: Duration | None = Field(
        default=None,
        description="Time to the first token that 90 of 100 requests should see, as 2s. Absent: "
        "no objective.",
    )
    itl_p90: Duration | None = Field(
        default=None,
        description="Time between tokens that 90 of 100 should see, as 80ms. Absent: no objective.",
    )


class ScalingPolicy(SpecPart):
    """A bound on the change within a period."""

    type: Literal["Pods", "Percent"] = Field(
        description="Whether value counts replicas or percent of the present number."
    )
    value: Count = Field(description="The most that may change within the period.")
    period_seconds: Annotated[int, Field(strict=True, ge=1, le=1800)] = Field(
        description="Length of the period, in seconds."
    )


class ScalingRules(SpecPart):
    """How fast the fleet may change in one direction; the shape of a HorizontalPodAutoscaler."""

    stabilization_window_seconds: Annotated[int, Field(strict=True, ge=0, le=3600)] | None = Field(
        default=None,
        description="Past seconds whose most careful recommendation counts. Absent: 0 up, "
        "600 down.",
    )
    policies: tuple[ScalingPolicy, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=8,
        description="Bounds on the speed. Absent: up 4 pods or 100 percent, down 1 pod or "
        "25 percent, each within 60 s.",
    )
    select_policy: Literal["Max", "Min", "Disabled"] | None = Field(
        default=None, description="Which policy wins; Disabled stops this direction. Absent: Max."
    )


class ScalingBehavior(SpecPart):
    """How fast the fleet may grow and shrink."""

    scale_up: ScalingRules | None = Field(default=None, description="How fast the fleet may grow.")
    scale_down: ScalingRules | None = Field(
        default=None, description="How fast the fleet may shrink."
    )


class Autoscaling(SpecPart):
    """Keep the number of replicas right from what the engines report."""

    min_replicas: FleetSize | None = Field(
        default=None, description="Fewest replicas; at least 1. Absent: 1."
    )
    max_replicas: FleetSize = Field(description="Most replicas.")
    targets: ScalingTargets | None = Field(
        default=None, description="What a replica should be loaded to."
    )
    behavior: ScalingBehavior | None = Field(
        default=None, description="How fast the fleet may grow and shrink."
    )
    mode: Literal["Active", "Advisory"] | None = Field(
        default=None,
        description="Advisory computes status.autoscaling and changes nothing. Absent: Active.",
    )

    @property
    def floor(self) -> int:
        return self.min_replicas or 1
