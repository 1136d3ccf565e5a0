"""The application: routes from a table, shared state, lifetime."""

from collections.abc import AsyncIterator

from aiohttp import web

from pagefleet_engine.api import chat, completions, inspection, models, probes, tokenization
from pagefleet_engine.api.errors import error_middleware
from pagefleet_engine.api.service import SERVICE, Service
from pagefleet_engine.lifecycle import ServerState

MAX_BODY_BYTES = 8 * 1024**2

ROUTES = (
    web.get("/v1/models", models.list_models),
    web.get("/v1/models/{model:.+}", models.get_model),
    web.post("/v1/completions", completions.create_completion),
    web.post("/v1/chat/completions", chat.create_chat_completion),
    web.post("/tokenize", tokenization.tokenize),
    web.post("/detokenize", tokenization.detokenize),
    web.get("/health", probes.health),
    web.get("/ready", probes.ready),
    web.get("/drain", probes.get_drain),
    web.post("/drain", probes.begin_drain),
    web.delete("/drain", probes.cancel_drain),
    web.get("/metrics", inspection.metrics),
    web.get("/ledger", inspection.ledger),
    web.get("/version", inspection.version),
)


def build_app(service: Service) -> web.Application:
    app = web.Application(middlewares=[error_middleware], client_max_size=MAX_BODY_BYTES)
    app[SERVICE] = service
    app.add_routes(ROUTES)
    app.on_response_prepare.append(_close_connection_while_draining)
    app.cleanup_ctx.append(_run_service)
    return app


async def _close_connection_while_draining(
    request: web.Request, response: web.StreamResponse
) -> None:
    """Kept-alive connections would bring requests here long after the endpoint is withdrawn."""
    if request.app[SERVICE].lifecycle.state is ServerState.DRAINING:
        # The header is set here too: this hook runs after the one for keep-alive was chosen.
        response.headers["Connection"] = "close"
        response.force_close()


async def _run_service(app: web.Application) -> AsyncIterator[None]:
    service = app[SERVICE]
    service.start()
    yield
    await service.close()
