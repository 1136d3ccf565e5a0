"""EngineLimits: the settings that decide what an engine holds in memory."""

from dataclasses import dataclass

from pagefleet_memory.dtypes import dtype_bytes, resolve_kv_dtype
from pagefleet_memory.errors import LimitError


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Concrete settings of one engine; names are the engine's flags."""

    dtype: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    kv_cache_dtype: str = "auto"
    block_size: int = 16
    enforce_eager: bool = False
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    gpu_memory_utilization: float = 0.90
    swap_space_bytes: int = 0

    def __post_init__(self) -> None:
        dtype_bytes(self.dtype)
        resolve_kv_dtype(self.kv_cache_dtype, self.dtype)
        for name in _POSITIVE:
            check_count(name, getattr(self, name), minimum=1)
        check_flag("enforce_eager", self.enforce_eager)
        check_count("swap_space_bytes", self.swap_space_bytes, minimum=0)
        check_share("gpu_memory_utilization", self.gpu_memory_utilization)

    @property
    def resolved_kv_dtype(self) -> str:
        """The KV dtype with `auto` replaced by the compute dtype."""
        return resolve_kv_dtype(self.kv_cache_dtype, self.dtype)

    @property
    def world_size(self) -> int:
        """Accelerators of one replica."""
        return self.tensor_parallel_size * self.pipeline_parallel_size


_POSITIVE = (
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "tensor_parallel_size",
    "pipeline_parallel_size",
)
_LARGEST = 1 << 50


def check_count(name: str, value: object, *, minimum: int) -> None:
    """Refuse what is not an integer of at least `minimum`."""
    if type(value) is not int or not minimum <= value <= _LARGEST:
        raise LimitError(f"must be an integer >= {minimum}, not {value!r}", field=name, value=value)


def check_flag(name: str, value: object) -> None:
    """Refuse what is neither true nor false."""
    if not isinstance(value, bool):
        raise LimitError(f"must be true or false, not {value!r}", field=name, value=value)


def check_share(name: str, value: object) -> None:
    """Refuse what is not a number in (0, 1]."""
    if type(value) not in (int, float) or not 0 < float(str(value)) <= 1:
        raise LimitError(f"must be above 0 and at most 1, not {value!r}", field=name, value=value)
