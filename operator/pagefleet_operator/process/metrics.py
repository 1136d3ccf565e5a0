"""The operator's own metrics, on a registry that is passed in."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from pagefleet_operator.kube.apply import ApplyResult

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class OperatorMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.reconcile_seconds = Histogram(
            "pagefleet_operator_reconcile_duration_seconds",
            "Time of one reconcile.",
            buckets=_SECONDS,
            registry=registry,
        )
        self.reconcile_failures = Counter(
            "pagefleet_operator_reconcile_failures_total",
            "Reconciles that ended in an error and will be tried again.",
            registry=registry,
        )
        self.api_requests = Counter(
            "pagefleet_operator_api_requests_total",
            "Requests to the API server; status 0 is no answer.",
            ["method", "status"],
            registry=registry,
        )
        self.child_writes = Counter(
            "pagefleet_operator_child_writes_total",
            "Children written, by what happened to them.",
            ["action"],
            registry=registry,
        )
        self.missed_events = Counter(
            "pagefleet_operator_missed_watch_events_total",
            "Objects that a periodic listing found different from what the watches had shown.",
            registry=registry,
        )
        self.queue_depth = Gauge(
            "pagefleet_operator_queue_depth", "Keys waiting to be reconciled.", registry=registry
        )
        self.is_leader = Gauge(
            "pagefleet_operator_leader", "1 on the replica that reconciles.", registry=registry
        )

    def observe_request(self, method: str, status: int) -> None:
        self.api_requests.labels(method=method, status=str(status)).inc()

    def count_writes(self, applied: ApplyResult) -> None:
        for action in ("created", "configured", "pruned"):
            count = len(getattr(applied, action))
            if count:
                self.child_writes.labels(action=action).inc(count)

    def observe_reconcile(self, seconds: float, failed: bool) -> None:
        self.reconcile_seconds.observe(seconds)
        if failed:
            self.reconcile_failures.inc()
