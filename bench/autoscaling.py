"""Compare scaling policies on the simulated fleet: `python -m bench.autoscaling`."""

import time
from collections.abc import Callable

from bench.autoscaling_sim import scenarios
from bench.autoscaling_sim.fleet import Fleet, Policy, Scenario
from bench.autoscaling_sim.policies import Clairvoyant, Fixed, HpaOnKvRatio, Pagefleet

PolicyFor = Callable[[Scenario], Policy]

SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "ramp": scenarios.chat_ramp,
    "ramp, 30% of scrapes lost": lambda: scenarios.chat_ramp(scrape_loss=0.3),
    "step": scenarios.chat_step,
    "prefill-bound": scenarios.prefill_bound,
    "decode-heavy": scenarios.decode_heavy,
    "4 slots only": scenarios.unschedulable,
}

POLICIES: dict[str, PolicyFor] = {
    "pagefleet": lambda scenario: Pagefleet(),
    "HPA on KV ratio 0.8": lambda scenario: HpaOnKvRatio(target=0.8),
    "HPA on KV ratio 0.6": lambda scenario: HpaOnKvRatio(target=0.6),
    "unchanged": lambda scenario: Fixed(scenario.initial_replicas),
    "clairvoyant": lambda scenario: Clairvoyant(
        scenario.requests, scenario.model, look_ahead=scenario.cold_start_seconds + 60
    ),
}

HEADER = (
    f"{'scenario':<27}{'policy':<21}{'SLO %':>7}{'GPU-h':>7}{'/clairv.':>9}"
    f"{'events/h':>10}{'revers./h':>10}{'preempt.':>9}{'killed':>7}{'max':>5}"
)


def main() -> None:
    started = time.perf_counter()
    print("Simulated fleet of 8B engines on 24 GB GPUs, one replica per GPU, one hour each.")
    print("SLO: first token within 2 s and at most 0.15 s per token.\n")
    print(HEADER)
    for name, build in SCENARIOS.items():
        scenario = build()
        reports = {key: Fleet(scenario, make(scenario)).run() for key, make in POLICIES.items()}
        best = reports["clairvoyant"].replica_hours
        for key, report in reports.items():
            print(
                f"{name:<27}{key:<21}{report.slo_percent:>7.1f}{report.replica_hours:>7.2f}"
                f"{report.replica_hours / best:>9.2f}{report.resizes_per_hour:>10.1f}"
                f"{report.reversals_per_hour:>10.1f}{report.preemptions:>9}{report.killed:>7}"
                f"{max(report.sizes):>5}"
            )
        print()
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
