"""The engine's command line: every setting of the plan, in its own flag."""

from pagefleet_memory import MemoryPlan
from pagefleet_operator.spec import InferenceDeployment

MODEL_FOLDER = "/model"
LISTEN_PORT = 8000


def build_engine_args(infd: InferenceDeployment, memory: MemoryPlan) -> tuple[str, ...]:
    limits = memory.limits
    on_gpu = memory.accelerator.kind == "GPU"
    flags: dict[str, object] = {
        "model": MODEL_FOLDER,
        "served-model-name": infd.served_model_name,
        "host": "0.0.0.0",
        "port": LISTEN_PORT,
        "device": "cuda" if on_gpu else "cpu",
        "dtype": limits.dtype,
        "max-model-len": limits.max_model_len,
        "max-num-seqs": limits.max_num_seqs,
        "max-num-batched-tokens": limits.max_num_batched_tokens,
        "block-size": limits.block_size,
        "kv-cache-dtype": limits.kv_cache_dtype,
        "gpu-memory-utilization": share_text(limits.gpu_memory_utilization),
        "tensor-parallel-size": limits.tensor_parallel_size,
        "pipeline-parallel-size": limits.pipeline_parallel_size,
        "swap-space": limits.swap_space_bytes,
        "drain-timeout": infd.spec.drain_seconds,
    }
    if not on_gpu:
        flags["device-memory-bytes"] = memory.device_memory_bytes
    arguments = [text for name, value in flags.items() for text in (f"--{name}", str(value))]
    return (*arguments, "--enforce-eager") if limits.enforce_eager else tuple(arguments)


def share_text(share: float) -> str:
    """A share of the memory without the noise of a binary fraction."""
    return f"{share:.4f}".rstrip("0").rstrip(".")


def replace_flags(arguments: tuple[str, ...], **values: object) -> tuple[str, ...]:
    """The same arguments with other values of some flags, as `model="/home/me/model"`."""
    changed = list(arguments)
    for name, value in values.items():
        changed[changed.index(f"--{name.replace('_', '-')}") + 1] = str(value)
    return tuple(changed)
