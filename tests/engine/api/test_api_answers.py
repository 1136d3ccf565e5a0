"""Answers of the completions endpoints: text, choices, stop strings, logprobs, usage, streams.

The model is random, so its text is full of broken characters: what streams must still be whole.
"""

import json
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

PROMPT = "hello world, the quick brown fox 你好"
COMPLETION = {"model": "tiny", "prompt": PROMPT, "max_tokens": 40, "temperature": 0}
CHAT = {
    "model": "tiny",
    "messages": [{"role": "user", "content": PROMPT}],
    "max_tokens": 40,
    "temperature": 0,
}


@dataclass(slots=True)
class Streamed:
    """A stream, put together again."""

    texts: dict[int, str] = field(default_factory=dict)
    finish_reasons: dict[int, str] = field(default_factory=dict)
    chunks: list[dict[str, Any]] = field(default_factory=list)
    is_done: bool = False

    @property
    def usage(self) -> Any:
        return self.chunks[-1].get("usage")


async def complete(client: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> Any:
    async with client.post(path, json=body) as response:
        answer = await response.json()
        assert response.status == 200, answer
        return answer


async def stream(client: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> Streamed:
    streamed = Streamed()
    async with client.post(path, json={**body, "stream": True}) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        async for line in response.content:
            if line.startswith(b"data: "):
                _add(streamed, line[6:].strip())
    assert streamed.is_done, "the stream ends with [DONE]"
    return streamed


def _add(streamed: Streamed, data: bytes) -> None:
    assert not streamed.is_done, "nothing comes after [DONE]"
    if data == b"[DONE]":
        streamed.is_done = True
        return
    chunk = json.loads(data)
    streamed.chunks.append(chunk)
    for choice in chunk["choices"]:
        index = choice["index"]
        text = choice["text"] if "text" in choice else choice["delta"].get("content", "")
        streamed.texts[index] = streamed.texts.get(index, "") + text
        if choice["finish_reason"] is not None:
            assert index not in streamed.finish_reasons, "one finish reason for each choice"
            streamed.finish_reasons[index] = choice["finish_reason"]


def texts_of(answer: Any) -> dict[int, str]:
    return {
        choice["index"]: choice["text"] if "text" in choice else choice["message"]["content"]
        for choice in answer["choices"]
    }


@pytest.mark.parametrize(
    "path,body", [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)]
)
@pytest.mark.parametrize("extra", [{}, {"n": 3, "temperature": 1.0, "seed": 7}])
async def test_stream_equals_the_whole_answer(
    client: aiohttp.ClientSession, path: str, body: dict[str, Any], extra: dict[str, Any]
) -> None:
    whole = await complete(client, path, {**body, **extra})
    parts = await stream(client, path, {**body, **extra})
    assert parts.texts == texts_of(whole)
    assert parts.finish_reasons == {c["index"]: c["finish_reason"] for c in whole["choices"]}
    assert len(whole["choices"]) == extra.get("n", 1)


async def test_answer_is_the_decoded_text_of_its_tokens(client: aiohttp.ClientSession) -> None:
    answer = await complete(client, "/v1/completions", {**COMPLETION, "logprobs": 0})
    ids = await complete(client, "/tokenize", {"prompt": PROMPT})
    longer = await complete(client, "/v1/completions", {**COMPLETION, "prompt": ids["tokens"]})
    assert longer["choices"][0]["text"] == answer["choices"][0]["text"]
    assert len(answer["choices"][0]["logprobs"]["tokens"]) == 40


async def test_choices_differ_and_are_repeatable(client: aiohttp.ClientSession) -> None:
    body = {**COMPLETION, "n": 3, "temperature": 1.5, "seed": 1}
    first, second = [await complete(client, "/v1/completions", body) for _ in range(2)]
    assert texts_of(first) == texts_of(second)
    assert len(set(texts_of(first).values())) == 3


async def test_several_prompts_are_numbered_in_order(client: aiohttp.ClientSession) -> None:
    alone = [
        (await complete(client, "/v1/completions", {**COMPLETION, "prompt": each}))["choices"][0]
        for each in ("hello", "world")
    ]
    both = await complete(client, "/v1/completions", {**COMPLETION, "prompt": ["hello", "world"]})
    assert texts_of(both) == {0: alone[0]["text"], 1: alone[1]["text"]}


@pytest.mark.parametrize("streamed", [False, True])
async def test_stop_string_ends_the_answer_before_it(
    client: aiohttp.ClientSession, streamed: bool
) -> None:
    full = texts_of(await complete(client, "/v1/completions", COMPLETION))[0]
    stop = full[20:23]
    expected = full[: full.index(stop)]
    body = {**COMPLETION, "stop": [stop, "never in the text"]}
    if streamed:
        parts = await stream(client, "/v1/completions", body)
        assert (parts.texts[0], parts.finish_reasons[0]) == (expected, "stop")
    else:
        choice = (await complete(client, "/v1/completions", body))["choices"][0]
        assert (choice["text"], choice["finish_reason"]) == (expected, "stop")
        assert choice["stop_reason"] == stop


async def test_stop_token_is_named_and_not_shown(client: aiohttp.ClientSession) -> None:
    ids = (await complete(client, "/tokenize", {"prompt": "h"}))["tokens"]
    body = {**COMPLETION, "logit_bias": {str(ids[0]): 100}, "stop_token_ids": ids}
    choice = (await complete(client, "/v1/completions", body))["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("", "stop", ids[0])


async def test_echo_puts_the_prompt_first(client: aiohttp.ClientSession) -> None:
    plain = texts_of(await complete(client, "/v1/completions", COMPLETION))[0]
    echoed = await complete(client, "/v1/completions", {**COMPLETION, "echo": True})
    parts = await stream(client, "/v1/completions", {**COMPLETION, "echo": True})
    assert texts_of(echoed)[0] == parts.texts[0] == PROMPT + plain


async def test_usage_counts_the_prompt_once(client: aiohttp.ClientSession) -> None:
    num_prompt = (await complete(client, "/tokenize", {"prompt": PROMPT}))["count"]
    body = {**COMPLETION, "n": 2, "ignore_eos": True, "stream_options": {"include_usage": True}}
    parts = await stream(client, "/v1/completions", body)
    usage = parts.usage
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (num_prompt, 80)
    assert usage["total_tokens"] == num_prompt + 80
    assert all(chunk["usage"] is None for chunk in parts.chunks[:-1])


async def test_repeated_prompt_is_reported_as_cached(client: aiohttp.ClientSession) -> None:
    body = {**COMPLETION, "prompt": "a prompt that fills several blocks of the cache " * 3}
    await complete(client, "/v1/completions", body)
    usage = (await complete(client, "/v1/completions", body))["usage"]
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    assert 0 < cached < usage["prompt_tokens"] and cached % 16 == 0


async def test_chat_logprobs_hold_the_chosen_token_first(client: aiohttp.ClientSession) -> None:
    body = {**CHAT, "logprobs": True, "top_logprobs": 3, "max_tokens": 4, "ignore_eos": True}
    answer = await complete(client, "/v1/chat/completions", body)
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == 4
    for position in content:
        best = position["top_logprobs"][0]
        assert (best["token"], best["logprob"]) == (position["token"], position["logprob"])
        assert len(position["top_logprobs"]) == 3


async def test_answer_without_max_tokens_may_use_the_whole_context(
    client: aiohttp.ClientSession,
) -> None:
    models = (await (await client.get("/v1/models")).json())["data"]
    max_model_len = models[0]["max_model_len"]
    ids = [5] * (max_model_len - 3)
    body = {"model": "tiny", "prompt": ids, "temperature": 0, "ignore_eos": True}
    answer = await complete(client, "/v1/completions", body)
    assert answer["usage"]["total_tokens"] == max_model_len
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_detokenize_inverts_tokenize(client: aiohttp.ClientSession) -> None:
    tokens = (await complete(client, "/tokenize", {"prompt": PROMPT}))["tokens"]
    assert await complete(client, "/detokenize", {"tokens": tokens}) == {"prompt": PROMPT}


async def test_tokenize_renders_a_chat(client: aiohttp.ClientSession) -> None:
    answer = await complete(client, "/tokenize", {"messages": CHAT["messages"]})
    text = (await complete(client, "/detokenize", {"tokens": answer["tokens"]}))["prompt"]
    assert text == f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
