"""/v1/models: the one model that is served."""

from aiohttp import web

from pagefleet_engine.api.service import SERVICE, Service


async def list_models(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    service.check_serving()
    return web.json_response({"object": "list", "data": [_model(service)]})


async def get_model(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    service.check_serving()
    service.check_model(request.match_info["model"])
    return web.json_response(_model(service))


def _model(service: Service) -> dict[str, object]:
    return {
        "id": service.config.model_name,
        "object": "model",
        "created": service.created,
        "owned_by": "pagefleet",
        "max_model_len": service.engine.view.limits.max_model_len,
    }
