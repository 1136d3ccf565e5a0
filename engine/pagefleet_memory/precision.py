"""The compute dtype that a model runs in on an accelerator."""

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


def _automatic(shape: ModelShape, accelerator: Accelerator) -> str:
    if accelerator.kind == "CPU":
        return "bfloat16" if accelerator.bf16 else "float32"
    wanted = "bfloat16" if shape.dtype == "float32" else shape.dtype
    return wanted if accelerator.bf16 else "float16"
