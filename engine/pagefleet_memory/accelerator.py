"""Accelerators: the GPU that a node's labels name, or the CPU memory of a container."""

import re
from dataclasses import dataclass
from typing import Literal

from pagefleet_memory.errors import AcceleratorError
from pagefleet_memory.products import Product, find_product
from pagefleet_memory.units import GIB, MIB

# Where no log tells, a process sees this share of what the label says: 0.3 to 0.75 GiB are the
# driver's on every card in the table.
VISIBLE_SHARE_PERCENT = 98

_MIG = re.compile(r"-MIG-(\d+g\.\d+gb.*)$", re.IGNORECASE)
_LARGEST_MIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device that holds weights and KV cache; speeds are None where unknown."""

    kind: Literal["GPU", "CPU"]
    name: str  # the node's product label, or "CPU"
    memory_bytes: int  # what the process can use in total
    bf16: bool  # bf16 arithmetic is fast
    fp8: bool = False
    bandwidth_gbps: float | None = None
    bf16_tflops: float | None = None
    fp8_tflops: float | None = None
    nvlink_gbps: int = 0
    compute_capability: float | None = None


def accelerator_from_labels(product: str, memory_mib: int | None) -> Accelerator:
    """The GPU that GPU-feature-discovery labels describe; shared and sliced GPUs are refused."""
    if not isinstance(product, str) or not product:
        raise AcceleratorError("must be a product label", field="nvidia.com/gpu.product")
    _refuse_sharing(product)
    _check_memory(product, memory_mib)
    row = find_product(product, memory_mib)
    if row is not None:
        return _from_product(row, product)
    if memory_mib is None:
        raise AcceleratorError(
            f"{product} is not in the product table and its memory is not stated",
            field="nvidia.com/gpu.memory",
            hint="label the node with nvidia.com/gpu.memory in MiB",
        )
    visible = memory_mib * MIB * VISIBLE_SHARE_PERCENT // 100
    return Accelerator(kind="GPU", name=product, memory_bytes=visible, bf16=True)


def cpu_accelerator(memory_bytes: int, *, bf16: bool) -> Accelerator:
    """CPU inference inside a container's memory limit; `bf16` where the processor has it fast."""
    if isinstance(memory_bytes, bool) or not isinstance(memory_bytes, int) or memory_bytes <= 0:
        raise AcceleratorError(
            f"must be a positive number of bytes, not {memory_bytes!r}",
            field="memory_bytes",
            value=memory_bytes,
        )
    return Accelerator(kind="CPU", name="CPU", memory_bytes=memory_bytes, bf16=bf16)


def _refuse_sharing(product: str) -> None:
    slice_name = _MIG.search(product)
    if slice_name:
        raise AcceleratorError(
            f"{product} is a MIG slice ({slice_name[1]}), which is not planned",
            field="nvidia.com/gpu.product",
            value=product,
            hint="use nodes with whole GPUs (nvidia.com/mig.config=all-disabled)",
        )
    if product.upper().endswith("-SHARED"):
        raise AcceleratorError(
            f"{product} is time-shared: other pods take memory that no plan can count",
            field="nvidia.com/gpu.product",
            value=product,
            hint="use nodes without time-slicing",
        )


def _check_memory(product: str, memory_mib: int | None) -> None:
    if memory_mib is None:
        return
    valid = isinstance(memory_mib, int) and not isinstance(memory_mib, bool)
    if not valid or not 0 < memory_mib < _LARGEST_MIB:
        raise AcceleratorError(
            f"{memory_mib!r} is not a memory size in MiB",
            field="nvidia.com/gpu.memory",
            value=memory_mib,
            hint=f"{product} needs a positive number",
        )


def _from_product(row: Product, label: str) -> Accelerator:
    visible = (
        int(row.visible_gib * GIB)
        if row.visible_gib is not None
        else row.label_mib * MIB * VISIBLE_SHARE_PERCENT // 100
    )
    return Accelerator(
        kind="GPU",
        name=label,
        memory_bytes=visible,
        bf16=row.compute_capability >= 8.0,
        fp8=row.compute_capability >= 8.9,
        bandwidth_gbps=row.bandwidth_gbps,
        bf16_tflops=row.bf16_tflops,
        fp8_tflops=row.fp8_tflops,
        # A bridge between two cards is an option of the node, which no label tells.
        nvlink_gbps=0 if row.nvlink_pairs else row.nvlink_gbps,
        compute_capability=row.compute_capability,
    )
