"""Errors of the API, in OpenAI's shape, and the middleware that turns every failure into one."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import takewhile

from aiohttp import web
from pydantic import ValidationError

from pagefleet_engine.engine_state import EngineDeadError
from pagefleet_engine.errors import RequestError
from pagefleet_engine.generation import GenerationAborted, GenerationError

RETRY_WHILE_STOPPING = 1

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiError(Exception):
    """An answer other than 200, with the fields of OpenAI's error object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.headers = headers

    def to_json(self) -> dict[str, object]:
        return {
            "error": {
                "message": self.message,
                "type": _error_type(self.status),
                "param": self.param,
                "code": self.code,
            }
        }

    def to_response(self) -> web.Response:
        return web.json_response(self.to_json(), status=self.status, headers=self.headers)


def unavailable(message: str, *, code: str, retry_after: int) -> ApiError:
    """503: another replica, or this one a little later, can answer."""
    return ApiError(503, message, code=code, headers={"Retry-After": str(retry_after)})


def as_api_error(error: Exception) -> ApiError:
    """The API error that stands for any exception of a handler."""
    match error:
        case ApiError():
            return error
        case RequestError():
            return ApiError(400, str(error), param=error.field, code=error.code)
        case ValidationError():
            return _invalid_body(error)
        case GenerationAborted():
            return unavailable(str(error), code="draining", retry_after=RETRY_WHILE_STOPPING)
        case GenerationError() | EngineDeadError():
            return ApiError(500, f"the engine failed: {error}", code="engine_failed")
        case web.HTTPRequestEntityTooLarge():
            return ApiError(413, f"the body is too large: {error.text}", code="body_too_large")
        case web.HTTPException():
            allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
            return ApiError(error.status, error.reason, headers=allow)
    log.error("unexpected failure", exc_info=error)
    return ApiError(500, "internal error", code="internal_error")


@web.middleware
async def error_middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ConnectionResetError:
        raise  # the client went away; there is nobody to answer
    except Exception as error:
        return _with_route(as_api_error(error), request).to_response()


def _with_route(error: ApiError, request: web.Request) -> ApiError:
    """Say which route was not found, or not with this method."""
    if error.status in (404, 405) and error.code is None:
        message = f"{error.message}: {request.method} {request.path}"
        return ApiError(error.status, message, headers=error.headers)
    return error


def _error_type(status: int) -> str:
    if status == 404:
        return "not_found_error"
    if status == 503:
        return "service_unavailable_error"
    return "invalid_request_error" if status < 500 else "server_error"


def _invalid_body(error: ValidationError) -> ApiError:
    """The first complaint decides; it names the parameter."""
    complaints = error.errors(include_url=False)
    first = complaints[0]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body is not valid JSON: {first['msg']}", code="invalid_json")
    # A parameter of several types brings one complaint for each type that it is not.
    same = [each for each in complaints if each["loc"][:1] == first["loc"][:1]]
    param = ".".join(str(part) for part in _common([each["loc"] for each in same])) or None
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"unknown parameter: {param}", param=param, code="unknown_parameter")
    if first["type"] == "missing":
        return ApiError(400, f"missing parameter: {param}", param=param)
    messages = dict.fromkeys(each["msg"].removeprefix("Value error, ") for each in same)
    where = f"{param}: " if param else ""
    return ApiError(400, where + ", or: ".join(messages), param=param)


def _common(locations: Sequence[tuple[int | str, ...]]) -> list[int | str]:
    """The beginning that all locations share."""
    return [
        parts[0]
        for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*locations, strict=False))
    ]
