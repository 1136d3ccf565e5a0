"""/v1/completions: continue one or several prompts."""

import time
import uuid
from collections.abc import Iterable

from aiohttp import web

from pagefleet_engine.api.answer import FinishedChoice, answer
from pagefleet_engine.api.logprobs import Json, completion_logprobs
from pagefleet_engine.api.schemas import MAX_PROMPTS, CompletionBody, TokenIds
from pagefleet_engine.api.service import SERVICE, Service, parse_body
from pagefleet_engine.errors import ParameterError
from pagefleet_engine.generation import ChoiceDelta, Generation
from pagefleet_engine.request import EngineRequest, TokenLogprobs


async def create_completion(request: web.Request) -> web.StreamResponse:
    arrival_time = time.monotonic()
    service = request.app[SERVICE]
    body = await parse_body(request, CompletionBody)
    service.check_model(body.model)
    answer_format = CompletionFormat(service, body)
    sampling = body.sampling()
    if len(body.prompts) * sampling.n > MAX_PROMPTS:
        hint = f"{len(body.prompts)} prompts make more than {MAX_PROMPTS} choices with this"
        raise ParameterError("n", sampling.n, hint)
    requests = [
        EngineRequest(
            request_id=f"{answer_format.id}-p{number}",
            prompt_token_ids=await _encode(service, prompt),
            sampling=sampling,
            arrival_time=arrival_time,
            priority=body.priority,
        )
        for number, prompt in enumerate(body.prompts)
    ]
    if body.echo:
        answer_format.echo(requests)
    generation = Generation(service.engine, service.tokenizer, requests, body.text_options())
    return await answer(
        request,
        generation,
        answer_format,
        stream=bool(body.stream),
        options=body.stream_options,
    )


async def _encode(service: Service, prompt: str | TokenIds) -> tuple[int, ...]:
    if isinstance(prompt, str):
        return await service.tokenizer.encode(prompt, add_special_tokens=True)
    return tuple(prompt)


class CompletionFormat:
    """The answer of `/v1/completions`."""

    def __init__(self, service: Service, body: CompletionBody) -> None:
        self.id = f"cmpl-{uuid.uuid4().hex}"
        self._service = service
        self._with_logprobs = body.logprobs is not None
        self._created = int(time.time())
        self._echoed: list[str] = []
        self._offsets: dict[int, int] = {}

    def echo(self, requests: Iterable[EngineRequest]) -> None:
        """Begin each answer with its prompt's text."""
        self._echoed = [
            self._service.tokenizer.decode(each.prompt_token_ids, skip_special_tokens=True)
            for each in requests
            for _ in range(each.sampling.n)
        ]

    def body(self, choices: Iterable[FinishedChoice], usage: Json) -> Json:
        return {**self._envelope([self._choice(each) for each in choices]), "usage": usage}

    def opening(self, index: int) -> Json | None:
        if not self._echoed:
            return None
        return self.chunk(ChoiceDelta(index=index, text=self._echoed[index]))

    def chunk(self, delta: ChoiceDelta) -> Json:
        choice: Json = {
            "index": delta.index,
            "text": delta.text,
            "logprobs": self._logprobs(delta.index, delta.logprobs),
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }
        return self._envelope([choice])

    def usage_chunk(self, usage: Json) -> Json:
        return {**self._envelope([]), "usage": usage}

    def _choice(self, choice: FinishedChoice) -> Json:
        prefix = self._echoed[choice.index] if self._echoed else ""
        return {
            "index": choice.index,
            "text": prefix + choice.text,
            "logprobs": self._logprobs(choice.index, choice.logprobs),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.stop_reason,
        }

    def _logprobs(self, index: int, positions: Iterable[TokenLogprobs]) -> Json | None:
        if not self._with_logprobs:
            return None
        listed = tuple(positions)
        offset = self._offsets.get(index, 0)
        self._offsets[index] = offset + sum(len(self._token_text(p.token_id)) for p in listed)
        return completion_logprobs(listed, self._token_text, offset=offset)

    def _token_text(self, token_id: int) -> str:
        return self._service.tokenizer.decode([token_id], skip_special_tokens=False)

    def _envelope(self, choices: list[Json]) -> Json:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self._created,
            "model": self._service.config.model_name,
            "choices": choices,
        }
