"""Accelerators: the GPU that a node's labels name, or the CPU memory of a container."""

from dataclasses import dataclass
from typing import Literal

from pagefleet_memory.errors import AcceleratorError
from pagefleet_memory.mig import MigSlice, check_mig_memory, read_mig_label
from pagefleet_memory.products import Product, find_product, has_memory_of, is_spelling_of
from pagefleet_memory.units import GIB, MIB

# Where no log tells, a process sees this share of what the label says: 0.3 to 0.75 GiB are the
# driver's on every card in the table.
VISIBLE_SHARE_PERCENT = 98

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
    processors: int | None = None  # streaming multiprocessors
    mig_profile: str | None = None  # a slice of a GPU; a process can use one, never several


def accelerator_from_labels(product: str, memory_mib: int | None) -> Accelerator:
    """The GPU or MIG slice that GPU-feature-discovery labels describe.

    A product that the table does not know is planned from its memory. Raises AcceleratorError for
    a time-shared GPU, for memory that contradicts the product, and where the memory is not known.
    """
    if not isinstance(product, str) or not product:
        raise AcceleratorError("must be a product label", field="nvidia.com/gpu.product")
    _refuse_sharing(product)
    _check_memory(product, memory_mib)
    part = read_mig_label(product)
    if part is not None:
        return _from_slice(part, product, check_mig_memory(product, part, memory_mib))
    row = _agreeing_product(product, memory_mib)
    if row is not None:
        return _from_product(row, product)
    if memory_mib is None:
        raise AcceleratorError(
            f"{product} is not in the product table and its memory is not stated",
            field="nvidia.com/gpu.memory",
            hint="label the node with nvidia.com/gpu.memory in MiB",
        )
    return Accelerator(kind="GPU", name=product, memory_bytes=_visible(memory_mib), bf16=True)


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


def _agreeing_product(label: str, memory_mib: int | None) -> Product | None:
    """The row that label and memory both name; None for a card of which only memory is known."""
    row = find_product(label)
    if row is None or memory_mib is None or has_memory_of(row, memory_mib):
        return row
    if not is_spelling_of(row, label):
        return None
    raise AcceleratorError(
        f"{memory_mib} MiB contradicts the product {label}, which has {row.label_mib}",
        field="nvidia.com/gpu.memory",
        value=memory_mib,
        hint=f"label the node with {row.label_mib}, or with the product that it has",
    )


def _from_product(row: Product, label: str) -> Accelerator:
    seen = row.visible_gib
    return Accelerator(
        kind="GPU",
        name=label,
        memory_bytes=_visible(row.label_mib) if seen is None else int(seen * GIB),
        bf16=row.compute_capability >= 8.0,
        fp8=row.compute_capability >= 8.9,
        bandwidth_gbps=row.bandwidth_gbps,
        bf16_tflops=row.bf16_tflops,
        fp8_tflops=row.fp8_tflops,
        # A bridge between two cards is an option of the node, which no label tells.
        nvlink_gbps=0 if row.nvlink_pairs else row.nvlink_gbps,
        compute_capability=row.compute_capability,
        processors=row.processors,
    )


def _from_slice(part: MigSlice, label: str, memory_mib: int) -> Accelerator:
    """A slice has its share of the memory and about the same share of the GPU's speed."""
    row = find_product(part.product)
    memory = _visible(memory_mib)
    if row is None:
        return Accelerator("GPU", label, memory, bf16=True, mig_profile=part.profile)
    share = min(1.0, memory_mib / row.label_mib)
    return Accelerator(
        kind="GPU",
        name=label,
        memory_bytes=memory,
        bf16=row.compute_capability >= 8.0,
        fp8=row.compute_capability >= 8.9,
        bandwidth_gbps=row.bandwidth_gbps * share,
        bf16_tflops=row.bf16_tflops * share,
        fp8_tflops=row.fp8_tflops * share if row.fp8_tflops else None,
        compute_capability=row.compute_capability,
        processors=row.processors,  # at most: what a slice has, its profile does not say
        mig_profile=part.profile,
    )


def _visible(memory_mib: int) -> int:
    return memory_mib * MIB * VISIBLE_SHARE_PERCENT // 100
