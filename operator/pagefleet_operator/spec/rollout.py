"""spec.rolloutStrategy and spec.drain: how replicas are replaced without failing a request."""

from typing import Annotated

from pydantic import Field

from pagefleet_operator.spec.fields import Replicas, SpecPart

DEFAULT_DRAIN_SECONDS = 300


class RolloutStrategy(SpecPart):
    """How far a rollout may go above or below the wanted number of replicas."""

    max_surge: Replicas | None = Field(
        default=None,
        description="Replicas above the wanted number. Absent: 1 where the cluster has room, "
        "else 0.",
    )
    max_unavailable: Replicas | None = Field(
        default=None,
        description="Replicas below the wanted number. Absent: 0 where a surge has room, else 1.",
    )


class Drain(SpecPart):
    """How a replica is taken out of service."""

    timeout_seconds: Annotated[int, Field(strict=True, ge=0, le=86400)] | None = Field(
        default=None,
        description="Seconds that running requests get to finish before the pod is stopped. "
        "Absent: 300.",
    )
