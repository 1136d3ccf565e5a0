"""`kubectl apply` of an InferenceDeployment ends in a chat answer through its Service."""

import json

from e2e.support.chat import RefusedRequest, chat, get_text, post, stream_chat
from e2e.support.fleet import Fleet, engine_args, is_ready

QUESTION = "What is the capital of France?"


def test_applied_deployment_is_planned_ready_and_answers(fleet: Fleet) -> None:
    fleet.apply_on_cpu("smol", replicas=1)
    item = fleet.wait_ready("smol")

    plan = item["status"]["plan"]
    assert plan["chosen"]["tensorParallelSize"] == 1
    for rank in plan["ledger"]:
        assert sum(term["bytes"] for term in rank["terms"]) == rank["budgetBytes"]

    (pod,) = fleet.pods("smol")
    assert is_ready(pod)
    _check_engine_runs_the_plan(fleet, engine_args(pod), plan)
    _check_answers(fleet.url("smol"))
    _check_bad_requests_are_refused(fleet.url("smol"))


def _check_engine_runs_the_plan(
    fleet: Fleet, args: dict[str, str], plan: dict[str, object]
) -> None:
    chosen = plan["chosen"]
    assert isinstance(chosen, dict)
    assert int(args["--max-num-seqs"]) == chosen["maxNumSeqs"]
    assert int(args["--max-model-len"]) == chosen["maxModelLen"]
    ledger = json.loads(get_text(f"{fleet.url('smol')}/ledger"))
    assert sum(term["predictedBytes"] for term in ledger["terms"]) == ledger["budgetBytes"]
    assert ledger["kv"]["capacityTokens"] >= chosen["maxModelLen"]


def _check_answers(url: str) -> None:
    whole = chat(url, "smol", QUESTION)
    text = whole["choices"][0]["message"]["content"]
    assert "Paris" in text
    assert "".join(stream_chat(url, "smol", QUESTION)) == text
    assert whole["usage"]["completion_tokens"] > 0
    assert json.loads(get_text(f"{url}/v1/models"))["data"][0]["id"] == "smol"
    metrics = get_text(f"{url}/metrics")
    assert "pagefleet_kv_cache_usage_ratio" in metrics
    assert "vllm:num_requests_running" in metrics


def _check_bad_requests_are_refused(url: str) -> None:
    body = {"model": "smol", "prompt": "x", "max_tokens": 4}
    cases: list[tuple[object, int, str]] = [
        (body | {"model": "other"}, 404, "other"),
        (body | {"prompt": "word " * 5000}, 400, "1024"),
        (body | {"tempratur": 1}, 400, "tempratur"),
        (b"{not json", 400, "JSON"),
    ]
    for sent, status, named in cases:
        error = _refusal(f"{url}/v1/completions", sent)
        assert error.status == status, error
        assert named in error.body["error"]["message"], error
    assert post(f"{url}/v1/completions", body)["usage"]["completion_tokens"] == 4


def _refusal(url: str, body: object) -> RefusedRequest:
    try:
        post(url, body)
    except RefusedRequest as error:
        return error
    raise AssertionError(f"{body!r} was accepted")
