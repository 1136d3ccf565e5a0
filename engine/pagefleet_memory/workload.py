"""What a plan is asked for: the workload, the pinned settings and the nodes at hand."""

from dataclasses import dataclass

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.dtypes import dtype_bytes, resolve_kv_dtype
from pagefleet_memory.errors import LimitError
from pagefleet_memory.limits import check_count, check_flag, check_share


@dataclass(frozen=True, slots=True)
class TokenDistribution:
    """Tokens per request: median and 95th percentile."""

    p50: int
    p95: int

    def __post_init__(self) -> None:
        check_count("p50", self.p50, minimum=1)
        check_count("p95", self.p95, minimum=1)
        if self.p95 < self.p50:
            raise LimitError(f"{self.p95} is below p50 {self.p50}", field="p95", value=self.p95)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The requests one replica is sized for; None where the user does not say."""

    max_model_len: int | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    input_tokens: TokenDistribution | None = None
    output_tokens: TokenDistribution | None = None
    shared_prefix_tokens: int = 0

    def __post_init__(self) -> None:
        _check_optional_counts(self, ("max_model_len", "concurrency"))
        check_count("shared_prefix_tokens", self.shared_prefix_tokens, minimum=0)
        prefix, longest = self.shared_prefix_tokens, self.max_model_len
        if longest is not None and prefix >= longest:
            raise LimitError(
                f"{prefix} leave no room in max_model_len {longest}",
                field="shared_prefix_tokens",
                value=prefix,
                hint=f"at most {longest - 1} works",
            )
        rate = self.request_rate
        if rate is not None and (type(rate) not in (int, float) or not 0 < rate < 1e9):
            raise LimitError(f"must be above 0, not {rate!r}", field="request_rate", value=rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Settings the user fixed: kept and checked; None is derived."""

    dtype: str | None = None
    kv_cache_dtype: str | None = None
    block_size: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    enforce_eager: bool | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    gpu_memory_utilization: float | None = None
    swap_space_bytes: int | None = None
    # Bounds of the search.
    products: tuple[str, ...] = ()
    max_gpus: int | None = None
    min_kv_tokens: int | None = None
    # CPU only: the container's memory limit; None derives the smallest sensible one.
    device_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        _check_optional_counts(self, _PINNED_COUNTS)
        if self.swap_space_bytes is not None:
            check_count("swap_space_bytes", self.swap_space_bytes, minimum=0)
        if self.enforce_eager is not None:
            check_flag("enforce_eager", self.enforce_eager)
        if self.dtype is not None and self.dtype != "auto":
            dtype_bytes(self.dtype)
        _check_products(self.products)
        if self.kv_cache_dtype is not None:
            resolve_kv_dtype(self.kv_cache_dtype, "bfloat16")
        if self.gpu_memory_utilization is not None:
            check_share("gpu_memory_utilization", self.gpu_memory_utilization)


_PINNED_COUNTS = (
    "block_size",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "max_gpus",
    "min_kv_tokens",
    "device_memory_bytes",
)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal nodes of one accelerator. On CPU the accelerator is the largest node's free memory."""

    name: str
    accelerator: Accelerator
    accelerators_per_node: int
    nodes: int
    nvlink: bool = False

    def __post_init__(self) -> None:
        check_count("accelerators_per_node", self.accelerators_per_node, minimum=1)
        check_count("nodes", self.nodes, minimum=1)

    @property
    def total(self) -> int:
        """Accelerators of all its nodes."""
        return self.accelerators_per_node * self.nodes


def _check_products(products: object) -> None:
    valid = isinstance(products, tuple | list) and all(isinstance(p, str) for p in products)
    if not valid:
        raise LimitError(
            f"must be a sequence of product names, not {products!r}",
            field="products",
            value=products,
        )


def _check_optional_counts(owner: object, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(owner, name)
        if value is not None:
            check_count(name, value, minimum=1)
