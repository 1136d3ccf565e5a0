"""A real pretrained model over HTTP: a chat answer that makes sense, streamed beside others."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from e2e.model.folder import model_folder
from pagefleet_engine.api.service import Service
from tests.support.engine_server import RunningServer, server_in_thread, tiny_config, wait_until

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def smollm2() -> Iterator[RunningServer]:
    model: Path = model_folder()
    with server_in_thread(Service(tiny_config(model, served_model_name="smollm2"))) as running:
        wait_until(lambda: running.service.lifecycle.is_ready, "it is ready")
        yield running


async def ask(client: aiohttp.ClientSession, question: str) -> str:
    body: dict[str, Any] = {
        "model": "smollm2",
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_completion_tokens": 24,
        "stream": True,
    }
    text = ""
    async with client.post("/v1/chat/completions", json=body) as response:
        async for line in response.content:
            if line.startswith(b"data: {"):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
    return text


async def test_questions_asked_together_are_answered_as_when_asked_alone(
    smollm2: RunningServer,
) -> None:
    questions = ["What is the capital of France?", "What is 2 + 2?", "你好，请介绍一下自己。"]
    async with aiohttp.ClientSession(smollm2.url) as client:
        alone = [await ask(client, each) for each in questions]
        together = await asyncio.gather(*(ask(client, each) for each in questions))
    assert together == alone
    assert "Paris" in alone[0]
