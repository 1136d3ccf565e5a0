"""Fill in the settings that were left to the engine."""

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.errors import ConfigError
from pagefleet_memory import (
    Accelerator,
    EngineLimits,
    MemoryModelError,
    ModelShape,
    check_kv_dtype,
    resolve_dtype,
)
from pagefleet_memory.engine_split import stage_problem, tensor_problem, tensor_sizes

DEFAULT_NUM_SEQS = {"CPU": 64, "GPU": 256}
# A step's tokens are what a decoding request waits for: 256 is about 0.4 s of a small CPU model.
DEFAULT_BATCHED_TOKENS = {"CPU": 256, "GPU": 8192}


def resolve_limits(
    config: EngineConfig, *, shape: ModelShape, accelerator: Accelerator
) -> EngineLimits:
    """The concrete limits; what was stated is kept and checked."""
    longest = shape.max_position_embeddings
    stated = config.max_model_len
    if stated is not None and stated > longest:
        raise ConfigError("max_model_len", stated, f"the model was made for at most {longest}")
    kind = accelerator.kind
    try:
        check_split(config, shape)
        check_kv_dtype(accelerator, config.kv_cache_dtype)
        return EngineLimits(
            dtype=resolve_dtype(shape, accelerator, config.dtype),
            max_model_len=stated or longest,
            max_num_seqs=config.max_num_seqs or DEFAULT_NUM_SEQS[kind],
            max_num_batched_tokens=config.max_num_batched_tokens or DEFAULT_BATCHED_TOKENS[kind],
            kv_cache_dtype=config.kv_cache_dtype,
            block_size=config.block_size,
            enforce_eager=config.enforce_eager,
            gpu_memory_utilization=config.gpu_memory_utilization,
            tensor_parallel_size=config.tensor_parallel_size,
            pipeline_parallel_size=config.pipeline_parallel_size,
        )
    except MemoryModelError as error:
        raise ConfigError(error.field, error.value, str(error)) from error


def check_split(config: EngineConfig, shape: ModelShape) -> None:
    """Refuse numbers of ranks and stages that the model cannot be cut into."""
    stages = config.pipeline_parallel_size
    problem = stage_problem(shape, stages)
    if problem is not None:
        raise ConfigError("pipeline_parallel_size", stages, problem)
    size = config.tensor_parallel_size
    problem = tensor_problem(shape, size)
    if problem is not None:
        works = ", ".join(map(str, tensor_sizes(shape, shape.num_attention_heads)))
        raise ConfigError("tensor_parallel_size", size, f"{problem}; {works} work")
