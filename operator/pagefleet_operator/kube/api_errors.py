"""What the API server can answer instead of an object.

KubeError
├── NotFound            404
├── Conflict            409  someone else wrote first, or the name is taken
├── Gone                410  a list's continue token or a watch's version expired
├── Forbidden           403  RBAC or quota; the message says which
├── Unauthorized        401
├── Invalid             400, 422  the object itself is refused
├── TooManyRequests     429
└── Unavailable         5xx, and no answer at all
LeadershipLost          a write was stopped here: this replica may no longer write
"""

from collections.abc import Mapping
from typing import Any


class KubeError(Exception):
    """An API request that failed for good; `message` is the server's own."""

    def __init__(self, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.retry_after = retry_after


class NotFound(KubeError):
    pass


class Conflict(KubeError):
    pass


class Gone(KubeError):
    pass


class Forbidden(KubeError):
    pass


class Unauthorized(KubeError):
    pass


class Invalid(KubeError):
    pass


class TooManyRequests(KubeError):
    pass


class Unavailable(KubeError):
    pass


class LeadershipLost(Exception):
    """The lease may have passed to another replica, so nothing may be written."""


_BY_STATUS: Mapping[int, type[KubeError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def error_from(status: int, body: object, headers: Mapping[str, str]) -> KubeError:
    """The typed error for a response of 400 and above."""
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else KubeError)
    return kind(_message(status, body), status=status, retry_after=_retry_after(body, headers))


def _message(status: int, body: object) -> str:
    if isinstance(body, Mapping) and body.get("message"):
        return str(body["message"])
    return f"HTTP {status}: {str(body)[:200]}"


def _retry_after(body: object, headers: Mapping[str, str]) -> float | None:
    value: Any = headers.get("Retry-After")
    if value is None and isinstance(body, Mapping):
        value = (body.get("details") or {}).get("retryAfterSeconds")
    try:
        return None if value is None else max(0.0, float(value))
    except (TypeError, ValueError):
        return None
