"""/tokenize and /detokenize: the model's tokenizer over HTTP."""

from aiohttp import web

from pagefleet_engine.api.schemas import DetokenizeBody, TokenizeBody, TokenizeChatBody
from pagefleet_engine.api.service import SERVICE, parse_body
from pagefleet_engine.errors import ParameterError


async def tokenize(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    is_chat = b'"messages"' in await request.read()
    tokens = await (_tokenize_chat(request) if is_chat else _tokenize_text(request))
    limits = service.engine.view.limits
    return web.json_response(
        {"count": len(tokens), "max_model_len": limits.max_model_len, "tokens": list(tokens)}
    )


async def _tokenize_text(request: web.Request) -> tuple[int, ...]:
    service = request.app[SERVICE]
    body = await parse_body(request, TokenizeBody)
    service.check_model(body.model)
    return await service.tokenizer.encode(body.prompt, add_special_tokens=body.add_special_tokens)


async def _tokenize_chat(request: web.Request) -> tuple[int, ...]:
    service = request.app[SERVICE]
    body = await parse_body(request, TokenizeChatBody)
    service.check_model(body.model)
    messages = [message.to_template() for message in body.messages]
    return await service.tokenizer.encode_chat(messages, body.template_options())


async def detokenize(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    body = await parse_body(request, DetokenizeBody)
    service.check_model(body.model)
    vocab_size = service.engine.view.limits.vocab_size
    for token_id in body.tokens:
        if not 0 <= token_id < vocab_size:
            raise ParameterError("tokens", token_id, f"must be between 0 and {vocab_size - 1}")
    text = service.tokenizer.decode(body.tokens, skip_special_tokens=False)
    return web.json_response({"prompt": text})
