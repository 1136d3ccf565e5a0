"""spec.sizing: how a model is laid out on its accelerators; each field absent = derived."""

from typing import Annotated, Literal

from pydantic import Field

from pagefleet_operator.spec.fields import Count, Fraction, Quantity, SpecPart

Degree = Annotated[int, Field(strict=True, ge=1, le=64)]


class Parallelism(SpecPart):
    """Over how many GPUs one replica is spread."""

    tensor: Degree | None = Field(
        default=None, description="GPUs that share each layer (inside one node). Absent: derived."
    )
    pipeline: Degree | None = Field(
        default=None, description="Stages that the layers are cut into. Absent: derived."
    )


class KVCache(SpecPart):
    """The store of keys and values of past tokens."""

    dtype: Literal["auto", "fp8_e4m3", "int8", "int8k_int4v", "int4"] | None = Field(
        default=None,
        description="Number format of the cache; an 8-bit format halves the memory per token and "
        "costs a little accuracy. int8 works everywhere, fp8_e4m3 on CPUs and on GPUs of compute "
        "capability 8.9 and above. int8k_int4v keeps keys in 8 bits and values in 4. int4 rounds "
        "both to 4 bits: answers change, most of all those of models below 7 billion parameters "
        "and over long contexts, so measure yours first. Absent or auto: that of the computation; "
        "where int8 would save a GPU, status.plan.rejected says so.",
    )
    block_size: Literal[8, 16, 32, 64, 128] | None = Field(
        default=None, description="Tokens in one block. Absent: 16."
    )
    swap_space: Quantity | None = Field(
        default=None,
        description="Host memory for the blocks of preempted requests. This version recomputes "
        "them: only 0 works. Absent: none, preempted requests are recomputed.",
    )


class SizingLimits(SpecPart):
    """What a plan may not exceed or fall below."""

    max_gpus: Annotated[int, Field(strict=True, ge=1, le=512)] | None = Field(
        default=None,
        alias="maxGPUs",
        description="Most GPUs that one replica may use. Absent: no limit.",
    )
    min_kv_tokens: Count | None = Field(
        default=None,
        alias="minKVTokens",
        description="Fewest tokens that the KV cache of one replica must hold. Absent: those of "
        "one request of maxModelLen.",
    )


class Sizing(SpecPart):
    """Pins and aims of the plan. What is set is kept and checked; what is absent is derived."""

    mode: Literal["Auto", "PlanOnly"] | None = Field(
        default=None, description="PlanOnly computes status.plan and starts nothing. Absent: Auto."
    )
    objective: Literal["MinGPUs", "Throughput", "Latency"] | None = Field(
        default=None, description="What to prefer among plans that fit. Absent: MinGPUs."
    )
    gpu_memory_utilization: Fraction | None = Field(
        default=None,
        description='GPU only: share of a GPU\'s memory that the engine may use, such as "0.91". '
        "Absent: all but 3 percent, or all but 0.5 GiB where that is more.",
    )
    max_num_seqs: Annotated[int, Field(strict=True, ge=1, le=65536)] | None = Field(
        default=None,
        description="Most requests that run in one step. Absent: as many as the KV cache holds "
        "with the lengths of spec.workload.",
    )
    max_num_batched_tokens: Count | None = Field(
        default=None,
        description="Most tokens that one step computes. Absent: what a GPU computes in 0.2 s, a "
        "power of two from 512 to 8192 (2048 on a GPU whose speed is not known), 512 on a CPU, and "
        "not below maxNumSeqs.",
    )
    parallelism: Parallelism | None = Field(
        default=None, description="Over how many GPUs one replica is spread."
    )
    kv_cache: KVCache | None = Field(
        default=None, alias="kvCache", description="The store of keys and values of past tokens."
    )
    limits: SizingLimits | None = Field(
        default=None, description="What a plan may not exceed or fall below."
    )
