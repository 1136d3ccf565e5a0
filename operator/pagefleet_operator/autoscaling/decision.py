"""Decision: the size to drive the fleet to, why, and what the next decision has to know."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pagefleet_operator.autoscaling.demand import Demand
from pagefleet_operator.autoscaling.state import AutoscalerState, ScaleEvent


@dataclass(frozen=True, slots=True)
class Condition:
    """HPA's AbleToScale, ScalingActive, ScalingLimited; and SLOAttainable."""

    type: str
    status: Literal["True", "False"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Decision:
    """`desired_replicas` is to be carried out; `recommended_replicas` is what the law says.

    They differ in Advisory mode only. `valid` is False when the metrics did not allow a
    decision and the size was left as it was. `demand` is None then.
    """

    desired_replicas: int
    recommended_replicas: int
    current_replicas: int
    binding: str
    reason: str
    message: str
    valid: bool
    conditions: tuple[Condition, ...]
    demand: Demand | None
    state: AutoscalerState

    @property
    def changes(self) -> bool:
        return self.desired_replicas != self.current_replicas

    def to_status(self) -> dict[str, object]:
        """`status.autoscaling` of the custom resource; its history has the newest first."""
        history = self.state.history
        status: dict[str, object] = {
            "desiredReplicas": self.desired_replicas,
            "reason": self.reason,
            "message": self.message,
            "history": [_event_to_status(event) for event in reversed(history)],
        }
        if history:
            status["lastScaleTime"] = format_time(history[-1].at)
        return status


def restore_state(status: Mapping[str, object]) -> AutoscalerState:
    """The state a new leader starts with: the history of `status.autoscaling`, no windows."""
    history = status.get("history")
    events = history if isinstance(history, list) else []
    return AutoscalerState(history=tuple(_event_from_status(event) for event in reversed(events)))


def format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _event_to_status(event: ScaleEvent) -> dict[str, object]:
    return {
        "at": format_time(event.at),
        "from": event.from_replicas,
        "to": event.to_replicas,
        "reason": event.reason,
        "message": event.message,
    }


def _event_from_status(event: Mapping[str, object]) -> ScaleEvent:
    return ScaleEvent(
        at=parse_time(str(event["at"])),
        from_replicas=int(str(event["from"])),
        to_replicas=int(str(event["to"])),
        reason=str(event["reason"]),
        message=str(event.get("message", "")),
    )
