"""The messages: what a request may ask for, and what crosses the process boundary."""

import pickle
from typing import Any

import pytest

from pagefleet_engine.errors import CapacityError, ContextLengthError, ParameterError
from pagefleet_engine.request import (
    AdmissionLimits,
    EngineLedger,
    EngineLedgerTerm,
    EngineOutput,
    EngineRequest,
    FinishReason,
    SamplingParams,
)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", float("nan")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", float("nan")),
        ("top_k", -2),
        ("min_p", -0.1),
        ("min_p", 1.5),
        ("seed", 2**63),
        ("n", 0),
        ("n", 129),
        ("max_tokens", 0),
        ("min_tokens", -1),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
        ("repetition_penalty", 0.0),
        ("logprobs", 21),
        ("logprobs", -1),
        ("logit_bias", {5: 101.0}),
        ("logit_bias", {-1: 1.0}),
    ],
)
def test_a_parameter_out_of_range_names_field_value_and_range(field: str, value: Any) -> None:
    with pytest.raises(ParameterError) as caught:
        SamplingParams(**{field: value})
    assert caught.value.field == field
    assert field in str(caught.value)


def test_min_tokens_above_max_tokens_is_refused() -> None:
    with pytest.raises(ParameterError, match="min_tokens=5"):
        SamplingParams(max_tokens=4, min_tokens=5)


def test_a_tiny_temperature_means_greedy() -> None:
    assert SamplingParams(temperature=1e-6).is_greedy
    assert not SamplingParams(temperature=0.01).is_greedy


def test_messages_and_errors_survive_the_way_to_another_process() -> None:
    messages = [
        EngineRequest(
            request_id="a",
            prompt_token_ids=(1, 2),
            sampling=SamplingParams(logit_bias={3: 1.0}, stop=("x",)),
            arrival_time=1.5,
        ),
        EngineOutput(request_id="a", new_token_ids=(4,), finish_reason=FinishReason.STOP),
    ]
    assert pickle.loads(pickle.dumps(messages)) == messages
    for kind in (ParameterError, ContextLengthError, CapacityError):
        error = pickle.loads(pickle.dumps(kind("n", 0, "must be positive")))
        assert (type(error), str(error)) == (kind, "n=0: must be positive")


def test_limits_leave_room_for_one_token_when_no_length_is_asked() -> None:
    limits = AdmissionLimits(max_model_len=8, kv_capacity_tokens=64, vocab_size=100)
    limits.check((1,) * 7, SamplingParams())
    with pytest.raises(ContextLengthError) as caught:
        limits.check((1,) * 8, SamplingParams())
    assert caught.value.code == "context_length_exceeded"


def test_the_ledger_is_written_in_the_operators_words() -> None:
    ledger = EngineLedger(
        profile="pagefleet",
        budget_bytes=100,
        terms=(EngineLedgerTerm("weights", 60, 61), EngineLedgerTerm("reserve", 5, None)),
        block_size=16,
        num_blocks=3,
        limits={"dtype": "float32"},
        peak_bytes=90,
    )
    assert ledger.to_json() == {
        "profile": "pagefleet",
        "budgetBytes": 100,
        "terms": [
            {"name": "weights", "predictedBytes": 60, "measuredBytes": 61},
            {"name": "reserve", "predictedBytes": 5, "measuredBytes": None},
        ],
        "kv": {"blockSize": 16, "numBlocks": 3, "capacityTokens": 48},
        "limits": {"dtype": "float32"},
        "peakBytes": 90,
    }
