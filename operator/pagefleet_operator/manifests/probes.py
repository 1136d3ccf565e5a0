"""Probes and time limits of an engine pod."""

from typing import Any

from pagefleet_operator.manifests.names import PORT_NAME

READY_PERIOD_SECONDS = 2
GRACE_MARGIN_SECONDS = 30

# A start is predicted from bytes and bandwidth; a cold disk or a busy node may need this much more.
STARTUP_SLACK = 2
LEAST_STARTUP_SECONDS = 300


def startup_budget_seconds(predicted: float) -> int:
    return max(LEAST_STARTUP_SECONDS, int(STARTUP_SLACK * predicted))


def build_probes(startup_seconds: float) -> dict[str, Any]:
    """Started and ready when one token was generated; alive while the engine's steps go on."""
    budget = startup_budget_seconds(startup_seconds)
    return {
        "startupProbe": {
            **_get("/ready", period=READY_PERIOD_SECONDS, timeout=2),
            "failureThreshold": -(-budget // READY_PERIOD_SECONDS),
        },
        "readinessProbe": {
            **_get("/ready", period=READY_PERIOD_SECONDS, timeout=2),
            "failureThreshold": 2,
        },
        "livenessProbe": {**_get("/health", period=10, timeout=5), "failureThreshold": 6},
    }


def _get(path: str, *, period: int, timeout: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": PORT_NAME},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
    }
