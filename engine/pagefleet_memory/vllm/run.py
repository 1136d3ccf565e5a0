"""Run: the settings of one vLLM server, with its defaults for what is not stated."""

from dataclasses import dataclass

from pagefleet_memory.units import GIB
from pagefleet_memory.vllm.release import Release

_LARGE_CARD = 70 * GIB
_SMALLEST_FAST_CAPABILITY = 8.0
_UNCHUNKED_LENGTH = 32768


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Settings as a log prints them; sizes of a rank follow from them."""

    release: Release
    max_model_len: int
    memory_bytes: int | None = None  # visible to a process; None where the GPU is not known
    compute_capability: float = 9.0
    joined_by_nvlink: bool = True
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    expert_parallel: bool = False
    decode_context_parallel_size: int = 1
    gpu_memory_utilization: float = 0.9
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    block_size: int = 16
    enforce_eager: bool = False
    text_only: bool = False
    draft_tokens: int = 0

    @property
    def is_large_card(self) -> bool:
        """Data-centre cards of 80 GB and more, which get other defaults."""
        return (self.memory_bytes or 0) >= _LARGE_CARD

    @property
    def is_hopper(self) -> bool:
        """H100, H200, H20."""
        return 9.0 <= self.compute_capability < 10.0

    @property
    def is_blackwell(self) -> bool:
        """B200 and B300; the consumer cards of the name count as small ones."""
        return 10.0 <= self.compute_capability < 11.0

    @property
    def is_first_engine(self) -> bool:
        """V0: all releases below 0.8, and older cards until it was removed in 0.11."""
        if self.release < Release(0, 8):
            return True
        old_card = self.compute_capability < _SMALLEST_FAST_CAPABILITY
        return old_card and self.release < Release(0, 11)

    @property
    def profiled_tokens(self) -> int:
        """Tokens of the forward that is profiled; V0 ran whole prompts up to 32768 tokens."""
        if self.is_first_engine and self.max_model_len <= _UNCHUNKED_LENGTH:
            return max(self.max_model_len, 2048)
        return self.max_num_batched_tokens

    @property
    def profiles_sampler(self) -> bool:
        """V0 with chunked prefill (contexts beyond 32768) profiled no sampling."""
        return not self.is_first_engine or self.max_model_len <= _UNCHUNKED_LENGTH


def default_batch(release: Release, memory_bytes: int | None, capability: float) -> tuple[int, int]:
    """Sequences and tokens of a step where a run states none, for the API server."""
    large = (memory_bytes or 0) >= _LARGE_CARD and capability >= 9.0
    if large and release >= Release(0, 8):
        return 1024, 8192
    return 256, 2048
