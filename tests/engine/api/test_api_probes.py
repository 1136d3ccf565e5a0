"""Health, readiness, drain, ledger and version of a running server."""

import aiohttp


async def test_drain_fails_readiness_serves_on_and_can_be_taken_back(
    client: aiohttp.ClientSession,
) -> None:
    async with client.post("/drain") as response:
        assert response.status == 202
        assert await response.json() == {
            "state": "draining",
            "running": 0,
            "waiting": 0,
            "kvTokens": 0,
        }
    try:
        async with client.get("/ready") as response:
            assert (response.status, await response.json()) == (503, {"state": "draining"})
        async with client.get("/health") as response:
            assert response.status == 200
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 2}
        async with client.post("/v1/completions", json=body) as response:
            assert response.status == 200
            assert response.headers["Connection"] == "close", "the client asks elsewhere next"
        async with client.get("/metrics") as response:
            assert 'engine_state{model_name="tiny",state="draining"} 1.0' in await response.text()
    finally:
        async with client.delete("/drain") as response:
            assert (response.status, (await response.json())["state"]) == (200, "ready")
    async with client.get("/ready") as response:
        assert response.status == 200


async def test_drain_reports_what_still_runs(client: aiohttp.ClientSession) -> None:
    body = {"model": "tiny", "prompt": "hello", "stream": True, "ignore_eos": True}
    async with client.post("/v1/completions", json=body) as stream:
        await stream.content.readline()
        async with client.get("/drain") as response:
            state = await response.json()
            assert (state["state"], state["running"], state["waiting"]) == ("ready", 1, 0)


async def test_ledger_adds_up(client: aiohttp.ClientSession) -> None:
    async with client.get("/ledger") as response:
        ledger = await response.json()
    assert sum(term["predictedBytes"] for term in ledger["terms"]) == ledger["budgetBytes"]
    kv = ledger["kv"]
    assert kv["capacityTokens"] == kv["blockSize"] * kv["numBlocks"] == 16 * 512
    assert ledger["limits"]["max_model_len"] == 4096
    measured = {term["name"]: term["measuredBytes"] for term in ledger["terms"]}
    assert measured["weights"] > 0


async def test_models_and_version(client: aiohttp.ClientSession) -> None:
    async with client.get("/v1/models") as response:
        (model,) = (await response.json())["data"]
    assert (model["id"], model["max_model_len"]) == ("tiny", 4096)
    async with client.get("/v1/models/tiny") as response:
        assert await response.json() == model
    async with client.get("/v1/models/other") as response:
        assert response.status == 404
    async with client.get("/version") as response:
        assert set(await response.json()) == {"version"}
