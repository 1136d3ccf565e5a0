"""status.measured from an engine's ledger: each term beside its prediction, and one error."""

from typing import Any

import pytest

from pagefleet_operator.fleet.measure import ledger_to_status


def term(name: str, predicted: int, measured: int | None) -> dict[str, Any]:
    return {"name": name, "predictedBytes": predicted, "measuredBytes": measured}


def status(*terms: dict[str, Any]) -> dict[str, Any]:
    kv = {"blockSize": 16, "numBlocks": 10, "capacityTokens": 160}
    return ledger_to_status({"terms": list(terms), "kv": kv, "peakBytes": 7}, now=0.0)


def test_the_pool_takes_what_others_leave_and_hides_no_error() -> None:
    found = status(term("weights", 1000, 1100), term("kv_pool", 5000, 4900))
    assert found["errorPercent"] == "10.0"
    assert [entry["name"] for entry in found["terms"]] == ["weights", "kv_pool"]


def test_what_was_not_measured_is_left_out() -> None:
    found = status(term("weights", 1000, 1000), term("context", 300, None))
    assert found["terms"] == [{"name": "weights", "bytes": 1000, "predictedBytes": 1000}]


@pytest.mark.parametrize(
    ("measured", "text"), [(99_999, "0.0"), (100_001, "0.0"), (99_000, "-1.0")]
)
def test_nothing_has_no_sign(measured: int, text: str) -> None:
    assert status(term("weights", 100_000, measured))["errorPercent"] == text


def test_without_a_measurement_there_is_no_error() -> None:
    assert "errorPercent" not in status(term("weights", 1000, None), term("kv_pool", 10, 10))
