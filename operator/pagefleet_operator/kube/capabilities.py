"""What a cluster can do beyond the core API; found once, at start."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """`image_volume`: pods can mount an image; `lws`, `pod_monitor`: that CRD is installed."""

    image_volume: bool = False
    lws: bool = False
    pod_monitor: bool = False
