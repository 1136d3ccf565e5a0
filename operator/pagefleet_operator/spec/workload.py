"""spec.workload: what the fleet will be asked to do, as far as it is known."""

from pydantic import Field

from pagefleet_operator.spec.fields import Count, CountOrZero, DecimalText, SpecPart


class TokenLengths(SpecPart):
    """A length distribution by its median and its tail."""

    p50: Count = Field(description="Half of the requests are at most this long.")
    p95: Count = Field(description="95 of 100 requests are at most this long.")


class WorkloadSpec(SpecPart):
    """The expected traffic. All of it is optional; what is absent is derived from the model."""

    max_model_len: Count | None = Field(
        default=None,
        description="Longest request, prompt plus answer, in tokens. Absent: what the model "
        "supports, on a CPU at most 8192, or less where that does not fit; a note of the plan "
        "says it.",
    )
    concurrency: Count | None = Field(
        default=None,
        description="Requests in progress at once that one replica should hold in memory: the plan "
        "takes as many GPUs as that needs, or those that hold most of them, and a note says so. "
        "Absent: on a GPU as many as fit, at most 256; 8 on a CPU.",
    )
    request_rate: DecimalText | None = Field(
        default=None,
        description='Requests per second over the whole fleet, as a decimal such as "2.5"; bounds '
        "the batch where concurrency is not stated. Absent: not known, so it bounds no batch.",
    )
    input_tokens: TokenLengths | None = Field(
        default=None,
        description="Length of prompts, in tokens. Absent: p50 1020, p95 4083.",
    )
    output_tokens: TokenLengths | None = Field(
        default=None,
        description="Length of answers, in tokens. Absent: p50 129, p95 451.",
    )
    shared_prefix_tokens: CountOrZero | None = Field(
        default=None,
        description="Tokens at the start of a prompt that all requests share, such as a system "
        "prompt; they are kept in memory once. Absent: 0.",
    )
