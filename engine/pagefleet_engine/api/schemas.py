"""The bodies that clients send, validated once and strictly: an unknown parameter is refused.

A parameter given as null means the same as one left out, as OpenAI's clients expect.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from pagefleet_engine.errors import ParameterError
from pagefleet_engine.generation import TextOptions
from pagefleet_engine.request import SamplingParams
from pagefleet_engine.tokenizer import TemplateOptions

MAX_PROMPTS = 1024
MAX_STOPS = 32

TokenIds = list[int]
StopString = Annotated[str, Field(min_length=1, max_length=1024)]


class Body(BaseModel):
    """Base of every request body."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class StreamOptions(Body):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class GenerationBody(Body):
    """The parameters that completions and chat completions share."""

    model: str | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS)] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    priority: int = 0
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    user: str | None = None  # part of OpenAI's API, with no effect on the answer

    @model_validator(mode="after")
    def _stream_options_need_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is only allowed together with stream: true")
        return self

    def text_options(self) -> TextOptions:
        return TextOptions(
            skip_special_tokens=self.skip_special_tokens,
            include_stop_str_in_output=self.include_stop_str_in_output,
        )

    def _sampling(self, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        given: dict[str, Any] = {
            "n": self.n,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "seed": self.seed,
            "max_tokens": max_tokens,
            "min_tokens": self.min_tokens,
            "stop": (self.stop,) if isinstance(self.stop, str) else self.stop and (*self.stop,),
            "stop_token_ids": self.stop_token_ids and (*self.stop_token_ids,),
            "ignore_eos": self.ignore_eos,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "repetition_penalty": self.repetition_penalty,
            "logit_bias": self.logit_bias and _by_token_id(self.logit_bias),
            "logprobs": logprobs,
        }
        return SamplingParams(
            **{name: value for name, value in given.items() if value not in (None, [])}
        )


class CompletionBody(GenerationBody):
    prompt: str | TokenIds | Annotated[list[str] | list[TokenIds], Field(max_length=MAX_PROMPTS)]
    echo: bool | None = None
    logprobs: int | None = None

    @model_validator(mode="after")
    def _echo_has_no_logprobs(self) -> Self:
        if self.echo and self.logprobs is not None:
            raise ValueError("echo: prompt tokens have no logprobs here; leave one of them out")
        return self

    @property
    def prompts(self) -> Sequence[str | TokenIds]:
        """One or several prompts as a list."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not self.prompt:
            return [[]]  # refused like every prompt without a token
        first = self.prompt[0]
        return (
            [cast(TokenIds, self.prompt)]
            if isinstance(first, int)
            else cast("list[str] | list[TokenIds]", self.prompt)
        )

    def sampling(self) -> SamplingParams:
        return self._sampling(max_tokens=self.max_tokens, logprobs=self.logprobs)


class TextPart(Body):
    type: Literal["text"]
    text: str


class ChatMessage(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextPart] | None = None
    name: str | None = None

    def to_template(self) -> dict[str, str]:
        """What chat templates read: content as one text."""
        content = self.content or ""
        text = content if isinstance(content, str) else "".join(part.text for part in content)
        named = {"name": self.name} if self.name is not None else {}
        return {"role": self.role, "content": text, **named}


class TextFormat(Body):
    type: Literal["text"]


class ChatTemplateBody(Body):
    """How messages become a prompt."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None

    @field_validator("chat_template_kwargs")
    @classmethod
    def _variables_are_not_arguments(cls, given: dict[str, Any] | None) -> dict[str, Any] | None:
        taken = {"conversation", "tokenize", "add_generation_prompt", "continue_final_message"}
        if clash := taken & set(given or ()):
            raise ValueError(f"cannot set {', '.join(sorted(clash))}")
        return given

    def template_options(self) -> TemplateOptions:
        return TemplateOptions(
            add_generation_prompt=self.add_generation_prompt and not self.continue_final_message,
            continue_final_message=self.continue_final_message,
            variables=self.chat_template_kwargs,
        )


class ChatBody(GenerationBody, ChatTemplateBody):
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    response_format: TextFormat | None = None

    @model_validator(mode="after")
    def _top_logprobs_need_logprobs(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs is only allowed together with logprobs: true")
        return self

    def sampling(self) -> SamplingParams:
        limit = (
            self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        )
        return self._sampling(
            max_tokens=limit, logprobs=(self.top_logprobs or 0) if self.logprobs else None
        )


class TokenizeBody(Body):
    model: str | None = None
    prompt: str
    add_special_tokens: bool = True


class TokenizeChatBody(ChatTemplateBody):
    model: str | None = None


class DetokenizeBody(Body):
    model: str | None = None
    tokens: TokenIds


def _by_token_id(bias: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token_id): value for token_id, value in bias.items()}
    except ValueError as error:
        raise ParameterError("logit_bias", list(bias), "keys must be token ids") from error
