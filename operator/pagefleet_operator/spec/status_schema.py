"""The shape of status, for the CRD: the API server prunes what is not described here."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, WithJsonSchema

from pagefleet_operator.spec.fields import SpecPart

Bytes = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
Number = Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
Word = Annotated[str, StringConstraints(max_length=256)]
Sentence = Annotated[str, StringConstraints(max_length=4096)]
Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time", "maxLength": 64})]
Free = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
]


class Condition(SpecPart):
    """One answer about the fleet, with its reason."""

    type: Annotated[str, StringConstraints(max_length=64, pattern=r"^[A-Z][A-Za-z]*$")] = Field(
        description="What is answered: Ready, ModelResolved, MemoryFits, CapacityAvailable, "
        "WorkloadReady, Progressing, AbleToScale, ScalingActive, ScalingLimited or SLOAttainable."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="The answer.")
    reason: Annotated[str, StringConstraints(max_length=128, pattern=r"^[A-Z][A-Za-z0-9]*$")] = (
        Field(description="Why, in one CamelCase word.")
    )
    message: Sentence = Field(description="Why, for a reader, with numbers.")
    observed_generation: Number | None = Field(
        default=None, description="Generation of the spec that was looked at."
    )
    last_transition_time: Time = Field(description="When status last changed.")


class ModelStatus(SpecPart):
    """What the inspection of the model found."""

    uri: Word | None = Field(default=None, description="The uri that was inspected.")
    revision: Word | None = Field(default=None, description="Commit or digest it resolved to.")
    key: Word | None = Field(
        default=None, description="Identity of the inspection that gave the shape."
    )
    shape: Free | None = Field(default=None, description="Sizes read from the model's headers.")


class PlanAccelerator(SpecPart):
    """The device chosen."""

    kind: Literal["GPU", "CPU"] = Field(description="GPU or CPU.")
    product: Word = Field(description="Product, as in the label nvidia.com/gpu.product; or CPU.")
    memory_bytes: Bytes = Field(description="Memory of one device that a process sees.")
    per_replica: Number = Field(description="Devices of one replica.")
    pods_per_replica: Number = Field(description="Pods of one replica.")
    cpu: Word | None = Field(default=None, description="Cores of one CPU engine pod.")


class PlanChosen(SpecPart):
    """The engine's settings."""

    tensor_parallel_size: Number = Field(description="GPUs that share each layer.")
    pipeline_parallel_size: Number = Field(description="Stages that the layers are cut into.")
    gpu_memory_utilization: Word = Field(description="Share of the memory that is budgeted.")
    dtype: Word = Field(description="Number format of weights and computation.")
    kv_cache_dtype: Word = Field(description="Number format of the KV cache.")
    block_size: Number = Field(description="Tokens in one block of the KV cache.")
    max_model_len: Number = Field(description="Longest request, in tokens.")
    max_num_seqs: Number = Field(description="Most requests in one step.")
    max_num_batched_tokens: Number = Field(description="Most tokens in one step.")
    swap_space_bytes: Bytes = Field(description="Host memory for preempted requests.")


class LedgerTermStatus(SpecPart):
    """One use of the memory."""

    name: Word = Field(description="What uses it.")
    bytes: Bytes = Field(description="How many bytes.")


class LedgerStatus(SpecPart):
    """The budget of one device, divided without remainder."""

    stage: Number = Field(description="Pipeline stage, from 0.")
    budget_bytes: Bytes = Field(description="What there is to divide.")
    terms: tuple[LedgerTermStatus, ...] = Field(
        max_length=16, description="The division; it sums to budgetBytes exactly."
    )


class RejectedStatus(SpecPart):
    """A plan that was considered and not chosen."""

    option: Word = Field(description="The plan, as product and parallelism.")
    reason: Word = Field(description="Why not, in one word.")
    message: Sentence = Field(description="Why not, with numbers.")
    short_by_bytes: Bytes | None = Field(default=None, description="What it lacks.")


class BackoffStatus(SpecPart):
    """What the plan gave up because engines ran out of memory."""

    steps: Number = Field(description="How often gpuMemoryUtilization was lowered; at most twice.")
    engine_image: Sentence = Field(
        description="The engine's image that it holds for; another one starts without."
    )
    message: Sentence = Field(description="What the engine said that ran out last.")


class PlanStatus(SpecPart):
    """How the model is laid out, and where every byte goes."""

    hash: Word = Field(description="Identity of all that restarts an engine when it changes.")
    inputs_hash: Word | None = Field(
        default=None,
        description="Identity of what was asked; while it is unchanged the plan is kept.",
    )
    accelerator: PlanAccelerator = Field(description="The device chosen.")
    chosen: PlanChosen = Field(description="The engine's settings.")
    ledger: tuple[LedgerStatus, ...] = Field(
        max_length=64, description="The memory budget of each stage."
    )
    kv_tokens: Number = Field(description="Tokens that the KV cache of one replica holds.")
    kv_blocks: Number = Field(description="Blocks of the KV cache.")
    max_full_length_sequences: Word = Field(
        description="Requests of maxModelLen that fit at once, as a decimal."
    )
    host_memory_bytes: Bytes = Field(description="Memory of one engine pod.")
    shm_bytes: Bytes = Field(description="Size of /dev/shm of one engine pod.")
    startup_seconds: Number = Field(description="Seconds that a start may take.")
    predicted_decode_tokens_per_second: Number | None = Field(
        default=None,
        description="Answer tokens of one replica with every slot in use, by roofline; absent "
        "where the speed of the device is not known, and so are the next two.",
    )
    predicted_step_milliseconds: Word | None = Field(
        default=None, description="Time between two tokens of an answer then, as a decimal."
    )
    predicted_prefill_tokens_per_second: Number | None = Field(
        default=None, description="Prompt tokens of one replica, for prompts of the mean length."
    )
    notes: tuple[Sentence, ...] = Field(
        default=(), max_length=16, description="What a reader should know."
    )
    rejected: tuple[RejectedStatus, ...] = Field(
        default=(), max_length=16, description="Plans considered and not chosen."
    )
    backoff: BackoffStatus | None = Field(
        default=None, description="What the plan gave up because engines ran out of memory."
    )


class RefusalStatus(SpecPart):
    """Why there is no plan."""

    reason: Word = Field(description="Why, in one word, as in the condition MemoryFits.")
    message: Sentence = Field(description="Why, with numbers, and what would fit.")
    nearest: tuple[Sentence, ...] = Field(
        default=(),
        max_length=16,
        description="Changes, each of which alone would give a plan; each was tried.",
    )
    rejected: tuple[RejectedStatus, ...] = Field(
        default=(), max_length=16, description="Plans that were considered."
    )


class ScalingEvent(SpecPart):
    """One change of the number of replicas."""

    at: Time | None = Field(default=None, description="When.")
    from_: Number | None = Field(default=None, alias="from", description="Replicas before.")
    to: Number | None = Field(default=None, description="Replicas after.")
    reason: Word | None = Field(default=None, description="Why, in one word.")
    message: Sentence | None = Field(default=None, description="Why, with numbers.")


class AutoscalingStatus(SpecPart):
    """What the autoscaler wants, and why."""

    desired_replicas: Number | None = Field(default=None, description="Replicas wanted.")
    reason: Word | None = Field(default=None, description="Why, in one word.")
    message: Sentence | None = Field(default=None, description="Why, with numbers.")
    last_scale_time: Time | None = Field(default=None, description="When the number last changed.")
    history: tuple[ScalingEvent, ...] = Field(
        default=(), max_length=5, description="The last changes, newest first."
    )


class MeasuredTermStatus(SpecPart):
    """One use of the memory, as measured."""

    name: Word = Field(description="What uses it.")
    bytes: Bytes = Field(description="How many bytes.")
    predicted_bytes: Bytes | None = Field(
        default=None, description="How many the memory model had predicted."
    )


class MeasuredStatus(SpecPart):
    """What the engines report of the same budget."""

    kv_tokens: Number | None = Field(default=None, description="Tokens the KV cache holds.")
    kv_blocks: Number | None = Field(default=None, description="Blocks of the KV cache.")
    peak_bytes: Bytes | None = Field(default=None, description="Most memory in use so far.")
    terms: tuple[MeasuredTermStatus, ...] = Field(
        default=(), max_length=16, description="The ledger as measured."
    )
    error_percent: Word | None = Field(
        default=None,
        description="Measured against predicted, of all terms that were measured but kv_pool, "
        "which takes what the others leave.",
    )
    at: Time | None = Field(default=None, description="When it was read.")


class InferenceDeploymentStatus(SpecPart):
    """What the operator knows; nobody else writes it."""

    observed_generation: Number | None = Field(
        default=None, description="Generation of the spec that this status answers."
    )
    replicas: Number | None = Field(default=None, description="Replicas that exist.")
    ready_replicas: Number | None = Field(default=None, description="Replicas that serve.")
    updated_replicas: Number | None = Field(
        default=None, description="Replicas of the present plan."
    )
    selector: Annotated[str, StringConstraints(max_length=512)] | None = Field(
        default=None, description="Label selector of the engine pods, for /scale."
    )
    url: Word | None = Field(default=None, description="Address of the API inside the cluster.")
    conditions: tuple[Condition, ...] = Field(
        default=(),
        max_length=16,
        description="Answers about the fleet.",
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
    )
    model: ModelStatus | None = Field(
        default=None, description="What the inspection of the model found."
    )
    plan: PlanStatus | None = Field(
        default=None, description="How the model is laid out, and where every byte goes."
    )
    refusal: RefusalStatus | None = Field(
        default=None, description="Why there is no plan; absent while there is one."
    )
    autoscaling: AutoscalingStatus | None = Field(
        default=None, description="What the autoscaler wants, and why."
    )
    measured: MeasuredStatus | None = Field(
        default=None, description="What the engines report of the same budget."
    )
