"""Generation: the choices of one API request, from token ids in the core to pieces of text."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace

from pagefleet_engine.async_engine import AsyncEngine, OutputStream
from pagefleet_engine.detokenizer import IncrementalDetokenizer, StopMatch, StopStrings
from pagefleet_engine.errors import EngineError
from pagefleet_engine.request import (
    EngineOutput,
    EngineRequest,
    FinishReason,
    SamplingParams,
    TokenLogprobs,
)
from pagefleet_engine.tokenizer import Tokenizer


class GenerationError(EngineError):
    """A request that was accepted could not be finished, through no fault of its own."""


class GenerationAborted(GenerationError):
    """The server gave the request up because it stops; another replica can answer it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOptions:
    """How tokens become the text of an answer."""

    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceDelta:
    """What was added to one choice; `stop_reason` is the stop string or token that ended it."""

    index: int
    text: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None


@dataclass(slots=True)
class Usage:
    """Tokens read and written; a prompt counts once, however many choices it has."""

    prompt_tokens: int
    completion_tokens: int = 0
    cached_tokens: int = 0

    def to_json(self) -> dict[str, object]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


@dataclass(slots=True)
class _Choice:
    """One sequence of the request and the state of its text."""

    index: int
    request: EngineRequest
    detokenizer: IncrementalDetokenizer
    stops: StopStrings

    def take(self, output: EngineOutput) -> ChoiceDelta:
        """Turn an output into a delta; a stop string may finish the choice before the core does."""
        shown = output.new_token_ids
        if output.stop_token_id is not None:
            shown = shown[:-1]  # its text is not part of the answer
        text = self.detokenizer.push(shown) if shown else ""
        if output.finish_reason is not None:
            text += self.detokenizer.flush()
        safe = self.stops.push(text)
        if isinstance(safe, StopMatch):
            return self._delta(output, safe.text, FinishReason.STOP, safe.stop)
        if output.finish_reason is not None:
            safe += self.stops.flush()
        return self._delta(output, safe, output.finish_reason, self._stop_reason(output))

    def _stop_reason(self, output: EngineOutput) -> int | None:
        """The token that ended the choice, where it was one that the request named."""
        named = output.stop_token_id in self.request.sampling.stop_token_ids
        return output.stop_token_id if named else None

    def _delta(
        self,
        output: EngineOutput,
        text: str,
        finish_reason: FinishReason | None,
        stop_reason: str | int | None,
    ) -> ChoiceDelta:
        return ChoiceDelta(
            index=self.index,
            text=text,
            token_ids=output.new_token_ids,
            logprobs=output.logprobs or (),
            finish_reason=finish_reason,
            stop_reason=stop_reason,
        )


class Generation:
    """All choices of one API request: `n` for each prompt, numbered prompt by prompt."""

    def __init__(
        self,
        engine: AsyncEngine,
        tokenizer: Tokenizer,
        prompts: Sequence[EngineRequest],
        options: TextOptions,
    ) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._options = options
        self._choices = {
            request.request_id: self._choice(index, request)
            for index, request in enumerate(child for each in prompts for child in _fork(each))
        }
        self._cached = dict.fromkeys((each.request_id for each in prompts), 0)
        self.usage = Usage(prompt_tokens=sum(len(each.prompt_token_ids) for each in prompts))

    @property
    def num_choices(self) -> int:
        return len(self._choices)

    async def deltas(self) -> AsyncGenerator[ChoiceDelta, None]:
        """Run it; leaving this iterator early (a client that went away) aborts the rest."""
        stream = self._engine.submit([each.request for each in self._choices.values()])
        try:
            async for output in stream:
                yield self._take(stream, output)
        finally:
            stream.close()

    def _take(self, stream: OutputStream, output: EngineOutput) -> ChoiceDelta:
        if output.finish_reason is FinishReason.ABORT:
            raise GenerationAborted(output.error)
        if output.error is not None:
            raise GenerationError(output.error)
        self._count(output)
        delta = self._choices[output.request_id].take(output)
        if delta.finish_reason is not None and output.finish_reason is None:
            stream.stop(output.request_id)
        return delta

    def _count(self, output: EngineOutput) -> None:
        self.usage.completion_tokens += len(output.new_token_ids)
        if output.request_id in self._cached:  # the first choice: later ones always hit
            self._cached[output.request_id] = output.num_cached_tokens
            self.usage.cached_tokens = sum(self._cached.values())

    def _choice(self, index: int, request: EngineRequest) -> _Choice:
        sampling = request.sampling
        return _Choice(
            index,
            request,
            IncrementalDetokenizer(self._decode, request.prompt_token_ids),
            StopStrings(sampling.stop, include=self._options.include_stop_str_in_output),
        )

    def _decode(self, token_ids: Sequence[int]) -> str:
        return self._tokenizer.decode(
            token_ids, skip_special_tokens=self._options.skip_special_tokens
        )


def _fork(request: EngineRequest) -> list[EngineRequest]:
    """The `n` requests of one prompt: the prefix cache shares it, each has its own seed."""
    return [request, *(_child(request, number) for number in range(1, request.sampling.n))]


def _child(request: EngineRequest, number: int) -> EngineRequest:
    return replace(
        request,
        request_id=f"{request.request_id}-{number}",
        sampling=_with_seed(request.sampling, number),
    )


def _with_seed(sampling: SamplingParams, number: int) -> SamplingParams:
    """The seed that comes `number` later, which after the largest is the smallest."""
    if sampling.seed is None:
        return sampling
    return replace(sampling, seed=(sampling.seed + number + 2**63) % 2**64 - 2**63)
