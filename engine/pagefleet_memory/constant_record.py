"""Constant: one figure of the memory model, and where it comes from."""

from dataclasses import dataclass
from typing import Literal

from pagefleet_memory.units import GIB

Profile = Literal["pagefleet", "vllm"]


@dataclass(frozen=True, slots=True)
class Constant:
    """One figure, its unit and its evidence."""

    name: str
    value: int
    unit: str
    source: str
    date: str
    profile: Profile = "pagefleet"


def gib(value: float) -> int:
    """Bytes of a figure stated in GiB."""
    return int(value * GIB)
