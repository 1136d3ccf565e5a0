"""/v1/chat/completions: answer a conversation, by the model's own chat template."""

import time
import uuid
from collections.abc import Iterable

from aiohttp import web

from pagefleet_engine.api.answer import FinishedChoice, answer
from pagefleet_engine.api.logprobs import Json, chat_logprobs
from pagefleet_engine.api.schemas import ChatBody
from pagefleet_engine.api.service import SERVICE, Service, parse_body
from pagefleet_engine.generation import ChoiceDelta, Generation
from pagefleet_engine.request import EngineRequest, TokenLogprobs


async def create_chat_completion(request: web.Request) -> web.StreamResponse:
    arrival_time = time.monotonic()
    service = request.app[SERVICE]
    body = await parse_body(request, ChatBody)
    service.check_model(body.model)
    answer_format = ChatFormat(service, body)
    prompt = await service.tokenizer.encode_chat(
        [message.to_template() for message in body.messages], body.template_options()
    )
    engine_request = EngineRequest(
        request_id=answer_format.id,
        prompt_token_ids=prompt,
        sampling=body.sampling(),
        arrival_time=arrival_time,
        priority=body.priority,
    )
    generation = Generation(
        service.engine, service.tokenizer, [engine_request], body.text_options()
    )
    return await answer(
        request,
        generation,
        answer_format,
        stream=bool(body.stream),
        options=body.stream_options,
    )


class ChatFormat:
    """The answer of `/v1/chat/completions`."""

    def __init__(self, service: Service, body: ChatBody) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self._service = service
        self._with_logprobs = bool(body.logprobs)
        self._created = int(time.time())

    def body(self, choices: Iterable[FinishedChoice], usage: Json) -> Json:
        listed = [self._choice(each) for each in choices]
        return {**self._envelope("chat.completion", listed), "usage": usage}

    def opening(self, index: int) -> Json | None:
        choice: Json = {
            "index": index,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return self._envelope("chat.completion.chunk", [choice])

    def chunk(self, delta: ChoiceDelta) -> Json:
        choice: Json = {
            "index": delta.index,
            "delta": {"content": delta.text} if delta.text else {},
            "logprobs": self._logprobs(delta.logprobs),
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        return self._envelope("chat.completion.chunk", [choice])

    def usage_chunk(self, usage: Json) -> Json:
        return {**self._envelope("chat.completion.chunk", []), "usage": usage}

    def _choice(self, choice: FinishedChoice) -> Json:
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text},
            "logprobs": self._logprobs(choice.logprobs),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }

    def _logprobs(self, positions: Iterable[TokenLogprobs]) -> Json | None:
        return chat_logprobs(tuple(positions), self._token_text) if self._with_logprobs else None

    def _token_text(self, token_id: int) -> str:
        return self._service.tokenizer.decode([token_id], skip_special_tokens=False)

    def _envelope(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self._created,
            "model": self._service.config.model_name,
            "choices": choices,
        }
