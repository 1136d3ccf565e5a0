"""The operator's settings: everything it reads from its environment, once."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from pagefleet_operator.planning.images import Images


class SettingsError(ValueError):
    """An environment variable holds something the operator cannot use."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`watch_namespace` "" means all namespaces."""

    images: Images
    watch_namespace: str
    identity: str
    namespace: str
    resync_seconds: float
    autoscale_seconds: float
    workers: int
    port: int
    log_level: str

    @classmethod
    def from_env(cls, env: Mapping[str, str] = os.environ) -> "Settings":
        return cls(
            images=Images.from_env(env),
            watch_namespace=env.get("PAGEFLEET_WATCH_NAMESPACE", ""),
            identity=env.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}",
            namespace=env.get("POD_NAMESPACE") or "pagefleet-system",
            resync_seconds=_positive(env, "PAGEFLEET_RESYNC_SECONDS", 300.0),
            autoscale_seconds=_positive(env, "PAGEFLEET_AUTOSCALE_SECONDS", 15.0),
            workers=int(_positive(env, "PAGEFLEET_WORKERS", 8.0)),
            port=int(_positive(env, "PAGEFLEET_PORT", 8080.0)),
            log_level=env.get("PAGEFLEET_LOG_LEVEL", "INFO").upper(),
        )


def _positive(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if value <= 0:
        raise SettingsError(f"{name}={text!r} is not a number above 0; unset means {default:g}")
    return value
