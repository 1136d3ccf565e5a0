"""Answers: run a generation and send it, as one JSON body or as server-sent events."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from pagefleet_engine.api.errors import as_api_error
from pagefleet_engine.api.schemas import StreamOptions
from pagefleet_engine.errors import EngineError
from pagefleet_engine.generation import ChoiceDelta, Generation
from pagefleet_engine.request import FinishReason, TokenLogprobs

Json = dict[str, object]


@dataclass(slots=True)
class FinishedChoice:
    """All deltas of one choice, added up."""

    index: int
    text: str = ""
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None

    def add(self, delta: ChoiceDelta) -> None:
        self.text += delta.text
        self.logprobs += delta.logprobs
        self.finish_reason = delta.finish_reason
        self.stop_reason = delta.stop_reason


class AnswerFormat(Protocol):
    """How one endpoint words its answer."""

    def body(self, choices: Iterable[FinishedChoice], usage: Json) -> Json: ...

    def opening(self, index: int) -> Json | None:
        """The chunk that begins a choice, where there is one."""

    def chunk(self, delta: ChoiceDelta) -> Json: ...

    def usage_chunk(self, usage: Json) -> Json: ...


async def answer(
    request: web.Request,
    generation: Generation,
    answer_format: AnswerFormat,
    *,
    stream: bool,
    options: StreamOptions | None,
) -> web.StreamResponse:
    async with aclosing(generation.deltas()) as deltas:
        if stream:
            events = _Events(generation, answer_format, options or StreamOptions())
            return await events.send(request, deltas)
        choices = [FinishedChoice(index) for index in range(generation.num_choices)]
        async for delta in deltas:
            choices[delta.index].add(delta)
        return web.json_response(answer_format.body(choices, generation.usage.to_json()))


class _Events:
    """One stream of server-sent events."""

    def __init__(
        self, generation: Generation, answer_format: AnswerFormat, options: StreamOptions
    ) -> None:
        self._generation = generation
        self._format = answer_format
        self._options = options

    async def send(
        self, request: web.Request, deltas: AsyncIterator[ChoiceDelta]
    ) -> web.StreamResponse:
        # The headers wait for the first delta: what fails before it gets a proper status.
        first = await anext(deltas)
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        await self._send_opening(response)
        try:
            await self._send_delta(response, first)
            async for delta in deltas:
                await self._send_delta(response, delta)
        except EngineError as error:
            await _send_event(response, as_api_error(error).to_json())
        else:
            if self._options.include_usage:
                usage = self._generation.usage.to_json()
                await _send_event(response, self._format.usage_chunk(usage))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    async def _send_opening(self, response: web.StreamResponse) -> None:
        for index in range(self._generation.num_choices):
            if (chunk := self._format.opening(index)) is not None:
                await _send_event(response, self._with_usage(chunk))

    async def _send_delta(self, response: web.StreamResponse, delta: ChoiceDelta) -> None:
        if delta.text or delta.logprobs or delta.finish_reason is not None:
            await _send_event(response, self._with_usage(self._format.chunk(delta)))

    def _with_usage(self, chunk: Json) -> Json:
        if self._options.continuous_usage_stats:
            return {**chunk, "usage": self._generation.usage.to_json()}
        return {**chunk, "usage": None} if self._options.include_usage else chunk


async def _send_event(response: web.StreamResponse, event: Json) -> None:
    data = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    await response.write(b"data: " + data.encode() + b"\n\n")
