"""Every measured or chosen constant of the memory model, by profile and name."""

from collections.abc import Mapping
from types import MappingProxyType

from pagefleet_memory.constant_record import Constant, Profile
from pagefleet_memory.constants_pagefleet import PAGEFLEET
from pagefleet_memory.constants_vllm import VLLM

CONSTANTS: Mapping[tuple[Profile, str], Constant] = MappingProxyType(
    {(constant.profile, constant.name): constant for constant in (*PAGEFLEET, *VLLM)}
)


def constant(name: str, profile: Profile = "pagefleet") -> Constant:
    """The constant of this name in a profile."""
    return CONSTANTS[profile, name]
