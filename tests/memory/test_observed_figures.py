"""The `vllm` profile keeps the accuracy that it was measured with, on figures of real servers."""

from statistics import median

import pytest

from pagefleet_memory.model_shape import ModelShape
from pagefleet_memory.vllm.ledger import stage_ledger
from tests.memory.observed_runs import CONFIGS, GIB, RUNS, ObservedRun

_PRINTED = 0.005  # logs round to hundredths of a GiB


def _predicted(run: ObservedRun, kind: str) -> float:
    predicted = run.predict()
    if kind == "kv_tokens":
        return predicted.kv_tokens or 0
    size = predicted.weights_bytes if kind == "weights_gib" else predicted.kv_cache_bytes
    return (size or 0) / GIB


def _errors(kind: str) -> list[float]:
    """Relative errors of one kind of figure; what rounding hides is no error."""
    slack = 0.0 if kind == "kv_tokens" else _PRINTED
    observed = [(run, getattr(run, kind)) for run in RUNS]
    return sorted(
        max(0.0, abs(_predicted(run, kind) - value) - slack) / value
        for run, value in observed
        if value is not None
    )


@pytest.mark.parametrize(
    ("kind", "count", "middle", "most"),
    [
        ("weights_gib", 21, 0.0005, 0.02),
        ("kv_cache_gib", 19, 0.002, 0.02),
        ("kv_tokens", 20, 0.003, 0.02),
    ],
)
def test_errors_stay_within_what_was_measured(
    kind: str, count: int, middle: float, most: float
) -> None:
    errors = _errors(kind)
    assert len(errors) == count
    assert median(errors) <= middle
    assert errors[-1] <= most


@pytest.mark.parametrize("run", RUNS, ids=[f"{r.model}-{i}" for i, r in enumerate(RUNS)])
def test_every_run_is_told_to_start(run: ObservedRun) -> None:
    predicted = run.predict()
    assert predicted.fits
    assert (predicted.max_model_len or 0) >= run.run().max_model_len


@pytest.mark.parametrize("run", RUNS, ids=[f"{r.model}-{i}" for i, r in enumerate(RUNS)])
def test_the_ledger_of_a_server_sums_to_its_budget(run: ObservedRun) -> None:
    shape, settings = ModelShape.from_config(CONFIGS[run.model]), run.run()
    for stage in range(settings.pipeline_parallel_size):
        ledger = stage_ledger(shape, settings, stage)
        assert ledger.profile == "vllm"
        assert sum(term.bytes for term in ledger.terms) == ledger.budget_bytes


def test_bytes_per_token_are_those_that_pool_and_tokens_imply() -> None:
    for run in RUNS:
        if run.kv_cache_gib and run.kv_tokens and run.kv_cache_gib > 5:
            implied = run.kv_cache_gib * GIB / run.kv_tokens
            assert run.predict().kv_bytes_per_token == pytest.approx(implied, rel=0.002)
