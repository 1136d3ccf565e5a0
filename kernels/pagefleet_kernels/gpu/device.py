"""DeviceTraits: what launches depend on besides shapes."""

from dataclasses import dataclass
from functools import cache

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTraits:
    num_processors: int  # streaming multiprocessors
    capability: int  # 90 for compute capability 9.0


INTERPRETED = DeviceTraits(num_processors=132, capability=90)  # an H200, where there is no GPU


@cache
def traits_of(device: torch.device) -> DeviceTraits:
    if device.type != "cuda":
        return INTERPRETED
    properties = torch.cuda.get_device_properties(device)
    return DeviceTraits(
        num_processors=properties.multi_processor_count,
        capability=properties.major * 10 + properties.minor,
    )
