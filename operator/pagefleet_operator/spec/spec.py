"""InferenceDeploymentSpec: the whole spec, its parts named."""

from pydantic import Field

from pagefleet_operator.spec.autoscaling import Autoscaling
from pagefleet_operator.spec.fields import Replicas, SpecPart
from pagefleet_operator.spec.hardware import Hardware
from pagefleet_operator.spec.model import ModelRef
from pagefleet_operator.spec.rollout import DEFAULT_DRAIN_SECONDS, Drain, RolloutStrategy
from pagefleet_operator.spec.sizing import KVCache, Parallelism, Sizing, SizingLimits
from pagefleet_operator.spec.workload import WorkloadSpec


class InferenceDeploymentSpec(SpecPart):
    """What to serve and on what. Absent fields are derived; the results are in status.plan."""

    model: ModelRef = Field(
        description="The model to serve: where its folder lies, and the name that clients ask for."
    )
    hardware: Hardware | None = Field(
        default=None, description="Where engine pods may run, and how large a CPU pod is."
    )
    workload: WorkloadSpec | None = Field(
        default=None,
        description="The expected traffic; decides the memory for the KV cache and the batch size.",
    )
    sizing: Sizing | None = Field(
        default=None,
        description="Pins and aims of the plan. What is set is kept and checked; what is absent "
        "is derived from the memory model.",
    )
    replicas: Replicas | None = Field(
        default=None, description="Number of replicas. Absent: 1. Not together with autoscaling."
    )
    autoscaling: Autoscaling | None = Field(
        default=None,
        description="Keep the number of replicas right from what the engines report. Not together "
        "with replicas.",
    )
    rollout_strategy: RolloutStrategy | None = Field(
        default=None,
        description="How far a rollout may go above or below the wanted number of replicas.",
    )
    drain: Drain | None = Field(default=None, description="How a replica is taken out of service.")
    suspend: bool | None = Field(
        default=None,
        strict=True,
        description="Stop all replicas and keep everything else. Absent: false.",
    )

    @property
    def hardware_or_default(self) -> Hardware:
        return self.hardware or Hardware()

    @property
    def workload_or_default(self) -> WorkloadSpec:
        return self.workload or WorkloadSpec()

    @property
    def sizing_or_default(self) -> Sizing:
        return self.sizing or Sizing()

    @property
    def parallelism(self) -> Parallelism:
        return self.sizing_or_default.parallelism or Parallelism()

    @property
    def kv_cache(self) -> KVCache:
        return self.sizing_or_default.kv_cache or KVCache()

    @property
    def limits(self) -> SizingLimits:
        return self.sizing_or_default.limits or SizingLimits()

    @property
    def drain_seconds(self) -> int:
        timeout = self.drain.timeout_seconds if self.drain else None
        return DEFAULT_DRAIN_SECONDS if timeout is None else timeout

    @property
    def initial_replicas(self) -> int:
        """Replicas to start with: fixed, or the autoscaler's floor, or one; none when suspended."""
        if self.suspend:
            return 0
        if self.autoscaling is not None:
            return self.autoscaling.floor
        return 1 if self.replicas is None else self.replicas

    @property
    def plan_only(self) -> bool:
        return self.sizing_or_default.mode == "PlanOnly"
