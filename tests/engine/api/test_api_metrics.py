"""The exported series: their names and types, and that they reconcile with what was done."""

import asyncio
from collections.abc import Callable

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

LABELS = {"model_name"}
GOLDEN = {
    ("pagefleet_requests_running", "gauge"): LABELS,
    ("pagefleet_requests_waiting", "gauge"): LABELS,
    ("pagefleet_waiting_prompt_tokens", "gauge"): LABELS,
    ("pagefleet_oldest_waiting_age_seconds", "gauge"): LABELS,
    ("pagefleet_kv_cache_usage_ratio", "gauge"): LABELS,
    ("pagefleet_kv_cache_capacity_tokens", "gauge"): LABELS,
    ("pagefleet_kv_cache_used_tokens", "gauge"): LABELS,
    ("pagefleet_kv_cache_blocks", "gauge"): {*LABELS, "state"},
    ("pagefleet_prefill_capacity_tokens_per_second", "gauge"): LABELS,
    ("pagefleet_engine_last_step_timestamp_seconds", "gauge"): LABELS,
    ("pagefleet_engine_state", "gauge"): {*LABELS, "state"},
    ("pagefleet_memory_ledger_bytes", "gauge"): {*LABELS, "term", "source"},
    ("pagefleet_kv_cache_token_seconds", "counter"): LABELS,
    ("pagefleet_preemptions", "counter"): {*LABELS, "mode"},
    ("pagefleet_prompt_tokens", "counter"): LABELS,
    ("pagefleet_prompt_tokens_computed", "counter"): LABELS,
    ("pagefleet_generation_tokens", "counter"): LABELS,
    ("pagefleet_prefix_cache_queries", "counter"): LABELS,
    ("pagefleet_prefix_cache_hits", "counter"): LABELS,
    ("pagefleet_requests_finished", "counter"): {*LABELS, "reason"},
    ("pagefleet_time_to_first_token_seconds", "histogram"): {*LABELS, "le"},
    ("pagefleet_inter_token_latency_seconds", "histogram"): {*LABELS, "le"},
    ("pagefleet_request_queue_time_seconds", "histogram"): {*LABELS, "le"},
    ("pagefleet_request_duration_seconds", "histogram"): {*LABELS, "le"},
    ("vllm:num_requests_running", "gauge"): LABELS,
    ("vllm:num_requests_waiting", "gauge"): LABELS,
    ("vllm:kv_cache_usage_perc", "gauge"): LABELS,
    ("vllm:num_preemptions", "counter"): LABELS,
    ("vllm:prompt_tokens", "counter"): LABELS,
    ("vllm:generation_tokens", "counter"): LABELS,
    ("vllm:cache_config_info", "gauge"): {*LABELS, "block_size", "num_gpu_blocks"},
    ("vllm:time_to_first_token_seconds", "histogram"): {*LABELS, "le"},
    ("vllm:inter_token_latency_seconds", "histogram"): {*LABELS, "le"},
}

COMPLETION = {"model": "tiny", "prompt": "hello", "ignore_eos": True}
Samples = dict[str, float]


async def scrape(client: aiohttp.ClientSession) -> Samples:
    """Samples by name and labels other than the model's."""
    async with client.get("/metrics") as response:
        text = await response.text()
    return {
        sample.name
        + "".join(f"/{v}" for k, v in sorted(sample.labels.items()) if k != "model_name"): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def scrape_until(
    client: aiohttp.ClientSession, condition: Callable[[Samples], bool]
) -> Samples:
    while not condition(samples := await scrape(client)):
        await asyncio.sleep(0.02)
    return samples


async def test_names_types_and_labels_are_the_promised_ones(client: aiohttp.ClientSession) -> None:
    async with client.get("/metrics") as response:
        text = await response.text()
    families = list(text_string_to_metric_families(text))
    assert {
        (family.name, family.type): {key for sample in family.samples for key in sample.labels}
        for family in families
    } == GOLDEN


async def test_counters_reconcile_with_what_was_done(client: aiohttp.ClientSession) -> None:
    before = await scrape(client)
    for number in range(3):
        body = {**COMPLETION, "max_tokens": 5, "n": 2, "prompt": [7, 8, 9 + number]}
        async with client.post("/v1/completions", json=body) as response:
            assert response.status == 200
    after = await scrape_until(client, lambda s: s["pagefleet_requests_running"] == 0)
    grown = {name: after[name] - before[name] for name in after}
    assert grown["pagefleet_requests_finished_total/length"] == 6
    assert sum(v for k, v in grown.items() if k.startswith("pagefleet_requests_finished")) == 6
    assert grown["pagefleet_generation_tokens_total"] == 30
    assert grown["pagefleet_prompt_tokens_total"] == 18
    assert grown["pagefleet_request_duration_seconds_count"] == 6
    assert grown["pagefleet_time_to_first_token_seconds_count"] == 6
    assert grown["pagefleet_inter_token_latency_seconds_count"] == 24
    assert grown["vllm:generation_tokens_total"] == 30


async def test_refused_request_is_not_counted(client: aiohttp.ClientSession) -> None:
    before = await scrape(client)
    async with client.post("/v1/completions", json={**COMPLETION, "n": 0}) as response:
        assert response.status == 400
    after = await scrape(client)
    finished = [name for name in after if name.startswith("pagefleet_requests_finished")]
    assert [after[name] for name in finished] == [before[name] for name in finished]


async def test_gauges_fall_when_all_clients_go_away(client: aiohttp.ClientSession) -> None:
    before = await scrape(client)
    body = {**COMPLETION, "stream": True, "temperature": 0}
    streams = [await client.post("/v1/completions", json=body) for _ in range(4)]
    for stream in streams:
        await stream.content.readline()
    busy = await scrape(client)
    assert busy["pagefleet_requests_running"] == 4
    assert busy["pagefleet_kv_cache_usage_ratio"] > 0
    for stream in streams:
        stream.close()
    idle = await scrape_until(
        client,
        lambda s: s["pagefleet_requests_running"] == 0 and s["pagefleet_kv_cache_usage_ratio"] == 0,
    )
    aborted = "pagefleet_requests_finished_total/abort"
    assert idle[aborted] - before[aborted] == 4
    assert idle["pagefleet_kv_cache_blocks/used"] == 0


async def test_client_that_leaves_before_the_answer_ends_its_request(
    client: aiohttp.ClientSession,
) -> None:
    before = await scrape(client)
    asked = asyncio.create_task(client.post("/v1/completions", json=COMPLETION))
    await scrape_until(client, lambda s: s["pagefleet_requests_running"] == 1)
    asked.cancel()
    aborted = "pagefleet_requests_finished_total/abort"
    after = await scrape_until(client, lambda s: s["pagefleet_requests_running"] == 0)
    assert after[aborted] - before[aborted] == 1


async def test_stop_string_counts_as_stop_not_as_abort(client: aiohttp.ClientSession) -> None:
    body = {**COMPLETION, "temperature": 0}
    async with client.post("/v1/completions", json={**body, "max_tokens": 30}) as response:
        text = (await response.json())["choices"][0]["text"]
    before = await scrape(client)
    async with client.post("/v1/completions", json={**body, "stop": text[5:8]}) as response:
        assert (await response.json())["choices"][0]["finish_reason"] == "stop"
    after = await scrape(client)
    for reason, grown in (("stop", 1), ("abort", 0)):
        name = f"pagefleet_requests_finished_total/{reason}"
        assert after[name] - before[name] == grown
