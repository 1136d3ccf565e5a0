"""The shipped decide() in the simulated fleet: gates over seeded scenarios of 20-30 minutes.

The published comparison over whole hours is `python -m bench.autoscaling`.
"""

from dataclasses import replace
from functools import cache

from bench.autoscaling_sim import scenarios
from bench.autoscaling_sim.fleet import Fleet, Policy, Scenario
from bench.autoscaling_sim.policies import Clairvoyant, Fixed, HpaOnKvRatio, Pagefleet
from bench.autoscaling_sim.replica import EngineModel, Replica, Sequence
from bench.autoscaling_sim.report import Report
from bench.autoscaling_sim.requests import Request
from pagefleet_operator.autoscaling import FleetSnapshot

HALF_HOUR = 1800.0
TWENTY_MINUTES = 1200.0


def run(scenario: Scenario, policy: Policy | None = None) -> Report:
    return Fleet(scenario, policy or Pagefleet()).run()


@cache
def ramp() -> Scenario:
    return scenarios.chat_ramp(seconds=HALF_HOUR)


@cache
def ours_on_the_ramp() -> Report:
    return run(ramp())


def test_ramp_meets_its_objectives_near_the_cost_of_foresight() -> None:
    scenario, ours = ramp(), ours_on_the_ramp()
    oracle = run(scenario, Clairvoyant(scenario.requests, scenario.model, look_ahead=120))
    assert ours.slo_percent >= 95
    assert ours.replica_hours <= 1.4 * oracle.replica_hours
    assert ours.killed == 0


def test_step_is_absorbed_without_going_back_and_forth() -> None:
    ours = run(scenarios.chat_step(seconds=HALF_HOUR))
    assert ours.slo_percent >= 80
    assert ours.reversals_per_hour <= 1.5
    assert ours.killed == 0


def test_prefill_bound_load_is_seen_where_the_kv_ratio_is_blind() -> None:
    scenario = scenarios.prefill_bound(seconds=TWENTY_MINUTES)
    ours, ratio = run(scenario), run(scenario, HpaOnKvRatio())
    unchanged = run(scenario, Fixed(1))
    assert ours.slo_percent >= 45
    assert ours.slo_percent > 2 * ratio.slo_percent
    assert ours.slo_percent > 10 * unchanged.slo_percent


def test_lost_scrapes_cost_little() -> None:
    whole, lossy = ours_on_the_ramp(), run(replace(ramp(), scrape_loss=0.3))
    assert lossy.slo_percent >= whole.slo_percent - 3
    assert lossy.replica_hours <= 1.25 * whole.replica_hours


def test_preemptions_stay_far_below_those_of_the_kv_ratio() -> None:
    scenario = scenarios.decode_heavy(seconds=TWENTY_MINUTES)
    assert run(scenario).preemptions < run(scenario, HpaOnKvRatio()).preemptions / 3


def test_fleet_without_room_keeps_one_pending_probe_and_still_shrinks() -> None:
    scenario = scenarios.unschedulable(seconds=2400, slots=3)
    report = run(scenario)
    assert max(report.sizes) == 4
    assert report.sizes[-1] == 1


def test_pods_that_never_schedule_do_not_delay_shrinking_even_if_room_is_unknown() -> None:
    scenario = replace(scenarios.unschedulable(seconds=2400, slots=3), tell_free_slots=False)
    report = run(scenario)
    assert max(report.sizes) > 4
    assert report.sizes[-1] == 1


class _Restarting(Pagefleet):
    """Loses its state every four minutes, as after a change of leader."""

    def desired(self, snapshot: FleetSnapshot, now: float) -> int:
        if now % 240 == 0:
            self.restart()
        return super().desired(snapshot, now)


def test_controller_that_keeps_restarting_serves_as_well_and_never_shrinks() -> None:
    report = run(ramp(), _Restarting())
    assert report.slo_percent >= 95
    assert all(resize.change > 0 for resize in report.resizes)


# The model of the engine itself


def test_simulated_engine_finishes_every_token_and_frees_its_pool() -> None:
    replica = Replica(EngineModel(kv_tokens=3_000), clock=0.0)
    for _ in range(40):
        replica.submit(Sequence(Request(0.0, 200, 300), to_prefill=200))
    done = list(replica.advance(10_000.0))
    assert len(done) == 40
    assert replica.preemptions > 0
    assert replica.kv_used == 0 and replica.queued_tokens == 0
    assert replica.generation_tokens == 40 * 300
    assert replica.prompt_tokens > 40 * 200  # preempted ones are computed again


def test_simulated_engine_is_idle_between_arrivals() -> None:
    replica = Replica(EngineModel(), clock=0.0)
    replica.submit(Sequence(Request(50.0, 100, 1), to_prefill=100))
    assert list(replica.advance(49.0)) == []
    (done,) = replica.advance(60.0)
    assert done.first_token_at is not None
    assert 50.0 < done.first_token_at < 50.2
