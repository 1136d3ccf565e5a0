"""Ask a served model over its OpenAI API, streaming or not."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class RefusedRequest(Exception):
    """The server answered with an error."""

    status: int
    body: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"HTTP {self.status}: {json.dumps(self.body)[:500]}"


def post(url: str, body: Any, *, timeout: float = 120) -> dict[str, Any]:
    """POST JSON, return JSON; RefusedRequest carries the error object."""
    with _open(url, body, timeout=timeout) as response:
        return dict(json.load(response))


def get_text(url: str, *, timeout: float = 20) -> str:
    with urllib.request.urlopen(url, timeout=timeout) as response:
        return str(response.read().decode())


def chat(base: str, model: str, question: str, *, max_tokens: int = 48) -> dict[str, Any]:
    """One chat completion, greedy so that the answer is the same every time."""
    return post(f"{base}/v1/chat/completions", _chat_body(model, question, max_tokens))


def stream_chat(base: str, model: str, question: str, *, max_tokens: int = 48) -> Iterator[str]:
    """The pieces of one streamed answer."""
    body = _chat_body(model, question, max_tokens) | {"stream": True}
    with _open(f"{base}/v1/chat/completions", body, timeout=120) as response:
        for line in response:
            event = line.decode().strip().removeprefix("data: ")
            if not event or event == "[DONE]":
                continue
            for choice in json.loads(event)["choices"]:
                yield choice["delta"].get("content") or ""


def _chat_body(model: str, question: str, max_tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": max_tokens,
        "temperature": 0,
    }


def _open(url: str, body: Any, *, timeout: float) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, data=data, headers=headers, method="POST")
    try:
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        parsed = json.loads(text) if text.startswith("{") else {"text": text}
        raise RefusedRequest(error.code, parsed) from error
