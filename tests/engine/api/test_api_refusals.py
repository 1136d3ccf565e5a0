"""Requests that cannot be served: the right status, OpenAI's shape, and nobody else is touched."""

import io
import json
from typing import Any

import aiohttp
import pytest

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
COMPLETION = {"model": "tiny", "prompt": "hello", "max_tokens": 2}
LONG = [5] * 4096


@pytest.mark.parametrize(
    ("path", "body", "param", "code", "words"),
    [
        ("completions", {"best_of": 2}, "best_of", "unknown_parameter", "best_of"),
        ("completions", {"temprature": 0}, "temprature", "unknown_parameter", "temprature"),
        ("completions", {"temperature": 3.0}, "temperature", None, "between 0 and 2"),
        ("completions", {"temperature": "hot"}, "temperature", None, "number"),
        ("completions", {"max_tokens": 0}, "max_tokens", None, "at least 1"),
        ("completions", {"max_tokens": 1.5}, "max_tokens", None, "integer"),
        ("completions", {"n": 0}, "n", None, "between 1 and"),
        ("completions", {"top_p": 0}, "top_p", None, "top_p"),
        ("completions", {"stop": [""]}, "stop", None, "at least 1 character"),
        ("completions", {"logprobs": 21}, "logprobs", None, "between 0 and 20"),
        ("completions", {"logit_bias": {"x": 1}}, "logit_bias", None, "token ids"),
        ("completions", {"logit_bias": {"999999": 1}}, "logit_bias", None, "between 0 and"),
        ("completions", {"prompt": ""}, "prompt", None, "at least one token"),
        ("completions", {"prompt": [10**9]}, "prompt", None, "between 0 and"),
        ("completions", {"prompt": []}, "prompt", None, "at least one token"),
        ("completions", {"prompt": ["a"] * 20, "n": 100}, "n", None, "1024 choices"),
        ("completions", {"prompt": None}, "prompt", None, "prompt"),
        ("completions", {"prompt": LONG}, "max_tokens", "context_length_exceeded", "4096"),
        ("completions", {"max_tokens": 4096}, "max_tokens", "context_length_exceeded", "4096"),
        ("completions", {"stream_options": {}}, None, None, "stream"),
        ("completions", {"echo": True, "logprobs": 1}, None, None, "echo"),
        ("chat/completions", {"messages": []}, "messages", None, "at least 1 item"),
        ("chat/completions", {"messages": "hi"}, "messages", None, "array"),
        ("chat/completions", {"tools": []}, "tools", "unknown_parameter", "tools"),
        ("chat/completions", {"messages": [{"role": "bot"}]}, "messages.0.role", None, "user"),
        (
            "chat/completions",
            {"messages": [{"role": "tool", "content": "x"}]},
            "messages",
            None,
            "tools are not supported",
        ),
        ("chat/completions", {"top_logprobs": 2}, None, None, "logprobs"),
        ("chat/completions", {"response_format": {"type": "json_object"}}, None, None, "text"),
    ],
)
async def test_bad_parameter_is_named(
    client: aiohttp.ClientSession,
    path: str,
    body: dict[str, Any],
    param: str | None,
    code: str | None,
    words: str,
) -> None:
    base = CHAT if path.startswith("chat") else COMPLETION
    async with client.post(f"/v1/{path}", json={**base, **body}) as response:
        error = (await response.json())["error"]
        assert response.status == 400, error
    assert error["type"] == "invalid_request_error"
    assert words in error["message"]
    assert error["code"] == code
    if param is not None:
        assert error["param"].startswith(param)


async def test_context_error_has_all_numbers(client: aiohttp.ClientSession) -> None:
    async with client.post("/v1/completions", json={**COMPLETION, "prompt": LONG}) as response:
        message = (await response.json())["error"]["message"]
    assert "context length is 4096" in message
    assert "prompt has 4096" in message and "2 were asked for" in message


@pytest.mark.parametrize("data", [b"", b"{", b'{"model": tiny}', b"\xff\xfe", b"[" * 100_000])
async def test_invalid_json_is_400(client: aiohttp.ClientSession, data: bytes) -> None:
    async with client.post("/v1/completions", data=data) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "invalid_json"


async def test_huge_body_is_413(client: aiohttp.ClientSession) -> None:
    async with client.post("/v1/completions", data=io.BytesIO(b" " * (9 * 1024**2))) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == "body_too_large"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_unknown_model_is_404(client: aiohttp.ClientSession, path: str) -> None:
    body = {**(CHAT if "chat" in path else COMPLETION), "model": "gpt-4"}
    async with client.post(path, json=body) as response:
        assert response.status == 404
        error = (await response.json())["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "'tiny'" in error["message"]


async def test_wrong_method_is_405_with_the_right_ones(client: aiohttp.ClientSession) -> None:
    async with client.get("/v1/completions") as response:
        assert response.status == 405
        assert response.headers["Allow"] == "POST"
        assert "GET /v1/completions" in (await response.json())["error"]["message"]


async def test_unknown_route_is_404(client: aiohttp.ClientSession) -> None:
    async with client.get("/v2/models") as response:
        assert response.status == 404
        assert (await response.json())["error"]["type"] == "not_found_error"


async def test_refusals_leave_a_running_request_alone(client: aiohttp.ClientSession) -> None:
    body = {**COMPLETION, "max_tokens": 300, "ignore_eos": True, "temperature": 0}
    async with client.post("/v1/completions", json=body) as response:
        expected = (await response.json())["choices"][0]["text"]
    async with client.post("/v1/completions", json={**body, "stream": True}) as stream:
        for bad in ({"prompt": LONG}, {"n": 0}, {"nonsense": 1}, {"model": "other"}):
            async with client.post("/v1/completions", json={**COMPLETION, **bad}) as response:
                assert response.status in (400, 404)
        lines = [line[6:] async for line in stream.content if line.startswith(b"data: {")]
    assert "".join(json.loads(line)["choices"][0]["text"] for line in lines) == expected
