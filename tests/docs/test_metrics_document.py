"""docs/metrics.md has the metrics of both sides, compared with what they export."""

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from pagefleet_engine.engine_state import EngineView
from pagefleet_engine.lifecycle import Lifecycle
from pagefleet_engine.metrics import EngineCollector
from pagefleet_engine.request import AdmissionLimits, EngineLedgerTerm
from pagefleet_engine.request_metrics import RequestMetrics
from pagefleet_operator.process.health import Health, build_app
from pagefleet_operator.process.metrics import OperatorMetrics
from tests.docs.markdown import codes, document, rows, section
from tests.test_metrics_contract import LEDGER, STATS


def engine_metrics() -> list[Metric]:
    ledger = replace(LEDGER, terms=(EngineLedgerTerm("weights", 1, 1),))
    limits = AdmissionLimits(max_model_len=2048, kv_capacity_tokens=16_384, vocab_size=100)
    collector = EngineCollector(
        model_name="m",
        requests=RequestMetrics(),
        lifecycle=Lifecycle(),
        view=lambda: EngineView(limits=limits, ledger=ledger, stats=STATS, received=0.0),
    )
    return list(collector.collect())


def operator_metrics() -> list[Metric]:
    metrics = OperatorMetrics(CollectorRegistry())
    metrics.observe_request("GET", 200)
    metrics.child_writes.labels(action="created").inc()
    return list(metrics.registry.collect())


def exported(metrics: Iterable[Metric]) -> set[tuple[str, str, tuple[str, ...]]]:
    return {
        (
            f"{metric.name}_total" if metric.type == "counter" else metric.name,
            metric.type,
            tuple(sorted({key for s in metric.samples for key in s.labels} - {"le", "model_name"})),
        )
        for metric in metrics
    }


@pytest.mark.parametrize(
    ("heading", "metrics"), [("Engine", engine_metrics()), ("Operator", operator_metrics())]
)
def test_metrics_document_has_every_metric_and_no_other(
    heading: str, metrics: list[Metric]
) -> None:
    written = {
        (codes(row[0])[0], row[1], tuple(sorted(codes(row[2]))))
        for row in rows(section(document("metrics.md"), heading))
    }
    assert written == exported(metrics)


def test_alerts_name_metrics_that_exist() -> None:
    text = section(document("metrics.md"), "Worth an alert")
    named = set(re.findall(r"pagefleet_\w+", text))
    assert named <= {name for name, *_ in exported([*engine_metrics(), *operator_metrics()])}


def test_operator_endpoints_are_those_of_the_document() -> None:
    router = build_app(Health(), CollectorRegistry()).router
    served = {f"GET {route.resource.canonical}" for route in router.routes() if route.resource}
    written = set(re.findall(r"`(GET /\w+)`", section(document("metrics.md"), "Operator")))
    assert written == served
