"""/metrics, /ledger, /version: what the engine says about itself."""

import importlib.metadata

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from pagefleet_engine.api.service import SERVICE


async def metrics(request: web.Request) -> web.Response:
    text = generate_latest(request.app[SERVICE].registry)
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})


async def ledger(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    service.check_serving()
    return web.json_response(service.engine.view.ledger.to_json())


async def version(request: web.Request) -> web.Response:
    return web.json_response({"version": importlib.metadata.version("pagefleet")})
