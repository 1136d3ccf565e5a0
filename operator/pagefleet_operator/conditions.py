"""Conditions: one answer each, whose transition time moves only when the answer does."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Answer = Literal["True", "False", "Unknown"]

MOST_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Condition:
    """An answer with its reason; the type is a noun phrase such as MemoryFits."""

    type: str
    status: Answer
    reason: str
    message: str = ""

    @property
    def holds(self) -> bool:
        return self.status == "True"


def merge_conditions(
    previous: Sequence[Mapping[str, Any]],
    conditions: Sequence[Condition],
    *,
    generation: int,
    now: str,
) -> list[dict[str, Any]]:
    """The new list for status; `now` is RFC 3339."""
    before = {entry.get("type"): entry for entry in previous}
    return [
        _entry(before.get(condition.type), condition, generation=generation, now=now)
        for condition in conditions
    ]


def _entry(
    before: Mapping[str, Any] | None, condition: Condition, *, generation: int, now: str
) -> dict[str, Any]:
    unchanged = before is not None and before.get("status") == condition.status
    since = before.get("lastTransitionTime", now) if before and unchanged else now
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message[:MOST_CHARACTERS],
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }
