"""Which number formats an accelerator can work in."""

from pagefleet_memory.accelerator import Accelerator
from pagefleet_memory.dtypes import dtype_bytes
from pagefleet_memory.errors import LimitError
from pagefleet_memory.model_shape import ModelShape


def resolve_dtype(shape: ModelShape, accelerator: Accelerator, dtype: str | None = None) -> str:
    """The concrete dtype for `auto` (or None), and a check of a stated one.

    On CPU `auto` is bf16 only where the processor has it fast, else float32. On a GPU it is the
    stored 16-bit dtype; float32 checkpoints run in bf16, and float16 stands in where bf16 is not
    there.
    """
    if dtype in (None, "auto"):
        return _automatic(shape, accelerator)
    dtype_bytes(str(dtype))
    if dtype == "bfloat16" and accelerator.kind == "GPU" and not accelerator.bf16:
        raise LimitError(
            f"{accelerator.name} has no bfloat16",
            field="dtype",
            value=dtype,
            hint="use float16 or auto",
        )
    return str(dtype)


def check_kv_dtype(accelerator: Accelerator, kv_dtype: str) -> None:
    """Refuse a KV cache dtype that the accelerator is known not to have; int8 runs anywhere."""
    capability = accelerator.compute_capability
    if kv_dtype == "fp8_e4m3" and capability is not None and not accelerator.fp8:
        raise LimitError(
            f"{accelerator.name} (compute capability {capability}) has no fp8, which starts at 8.9",
            field="kv_cache_dtype",
            value=kv_dtype,
            hint="use int8 or auto",
        )


def _automatic(shape: ModelShape, accelerator: Accelerator) -> str:
    if accelerator.kind == "CPU":
        return "bfloat16" if accelerator.bf16 else "float32"
    wanted = "bfloat16" if shape.dtype == "float32" else shape.dtype
    return wanted if accelerator.bf16 else "float16"
