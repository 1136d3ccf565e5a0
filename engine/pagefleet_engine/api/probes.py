"""/health, /ready, /drain: what Kubernetes and the operator ask and tell the server."""

from aiohttp import web

from pagefleet_engine.api.errors import unavailable
from pagefleet_engine.api.service import SERVICE, Service


async def health(request: web.Request) -> web.Response:
    """Whether the process should live on: false only when it cannot recover by itself."""
    service = request.app[SERVICE]
    if service.engine.is_dead:
        raise unavailable("the engine has failed", code="engine_failed", retry_after=5)
    if service.engine.is_stalled:
        raise unavailable("no step ends although there is work", code="stalled", retry_after=5)
    return web.json_response({"status": "ok", "state": service.lifecycle.state})


async def ready(request: web.Request) -> web.Response:
    """Whether new requests should be sent here."""
    service = request.app[SERVICE]
    is_ready = service.lifecycle.is_ready and not service.engine.is_dead
    return web.json_response({"state": service.lifecycle.state}, status=200 if is_ready else 503)


async def begin_drain(request: web.Request) -> web.Response:
    """Fail readiness; what runs and what still arrives is served."""
    service = request.app[SERVICE]
    service.lifecycle.drain()
    return web.json_response(_drain_state(service), status=202)


async def get_drain(request: web.Request) -> web.Response:
    return web.json_response(_drain_state(request.app[SERVICE]))


async def cancel_drain(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    service.lifecycle.undrain()
    return web.json_response(_drain_state(service))


def _drain_state(service: Service) -> dict[str, object]:
    """Counted here, not in the core: what was accepted but not yet seen by a step counts too."""
    view = service.engine.latest_view
    num_live = service.engine.num_live
    waiting = min(view.stats.num_waiting, num_live) if view is not None else 0
    return {
        "state": service.lifecycle.state,
        "running": num_live - waiting,
        "waiting": waiting,
        "kvTokens": view.stats.kv_used_tokens if view is not None else 0,
    }
