"""The table of NVIDIA products: what a GPU's label says about its memory, speed and links."""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Product:
    """One row; memory that a process sees is below what the label's memory says."""

    label: str  # family prefix of nvidia.com/gpu.product
    label_mib: int  # nvidia.com/gpu.memory
    visible_gib: float | None  # as logged by running engines; None where no log was seen
    bandwidth_gbps: int
    bf16_tflops: float  # dense; fp16 where the card has no bf16
    fp8_tflops: float | None
    nvlink_gbps: int  # total, both directions; 0 where there is none
    compute_capability: float
    processors: int  # streaming multiprocessors
    nvlink_pairs: bool = False  # a bridge joins two cards, not all cards of a node


# Sources: GPU logs collected 2024-2026 (memory), vendors' data sheets (speeds, and processors as
# CUDA cores over those of one); processors of A10G, H20, GB200, B300 and GB300 as CUDA reports them
# in public logs. As of 2026-11.
PRODUCTS: tuple[Product, ...] = (
    Product("Tesla-T4", 15360, 14.56, 320, 65, None, 0, 7.5, 40),
    Product("Tesla-V100-SXM2-16GB", 16384, None, 900, 125, None, 300, 7.0, 80),
    Product("Tesla-V100-SXM2-32GB", 32768, 31.74, 900, 125, None, 300, 7.0, 80),
    Product("NVIDIA-A10G", 23028, 22.06, 600, 70, None, 0, 8.6, 80),
    Product("NVIDIA-A10", 23028, 22.06, 600, 125, None, 0, 8.6, 72),
    Product("NVIDIA-L4", 23034, 22.05, 300, 121, 242, 0, 8.9, 58),
    Product("NVIDIA-A40", 46068, None, 696, 150, None, 112, 8.6, 84, nvlink_pairs=True),
    Product("NVIDIA-RTX-A6000", 49140, 47.50, 768, 155, None, 112, 8.6, 84, nvlink_pairs=True),
    Product("NVIDIA-L40S", 46068, 44.31, 864, 362, 733, 0, 8.9, 142),
    Product("NVIDIA-L40", 46068, 44.31, 864, 181, 362, 0, 8.9, 142),
    Product("NVIDIA-A100-SXM4-40GB", 40960, 39.38, 1555, 312, None, 600, 8.0, 108),
    Product("NVIDIA-A100-SXM4-80GB", 81920, 79.15, 2039, 312, None, 600, 8.0, 108),
    Product(
        "NVIDIA-A100-PCIE-40GB", 40960, 39.38, 1555, 312, None, 600, 8.0, 108, nvlink_pairs=True
    ),
    Product(
        "NVIDIA-A100-80GB-PCIe", 81920, 79.15, 1935, 312, None, 600, 8.0, 108, nvlink_pairs=True
    ),
    Product("NVIDIA-H100-80GB-HBM3", 81559, 79.11, 3350, 989, 1978, 900, 9.0, 132),
    Product("NVIDIA-H100-PCIe", 81559, 79.11, 2000, 757, 1513, 600, 9.0, 114, nvlink_pairs=True),
    Product("NVIDIA-H100-NVL", 95830, None, 3938, 835, 1671, 600, 9.0, 132, nvlink_pairs=True),
    Product("NVIDIA-H20", 97871, 95.0, 4000, 148, 296, 900, 9.0, 78),
    Product("NVIDIA-H200", 143771, 139.81, 4800, 989, 1978, 900, 9.0, 132),
    Product("NVIDIA-B200", 183359, 178.36, 7700, 2250, 4500, 1800, 10.0, 148),
    Product("NVIDIA-GB200", 189471, 184.31, 8000, 2500, 5000, 1800, 10.0, 152),
    Product("NVIDIA-B300", 275040, None, 7750, 2250, 4500, 1800, 10.3, 148),
    Product("NVIDIA-GB300", 284208, None, 8000, 2500, 5000, 1800, 10.3, 152),
    Product(
        "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 97887, 95.0, 1792, 468, 936, 0, 12.0, 188
    ),
    Product(
        "NVIDIA-GeForce-RTX-3090", 24576, 23.58, 936, 71, None, 112, 8.6, 82, nvlink_pairs=True
    ),
    Product("NVIDIA-GeForce-RTX-4090", 24564, 23.53, 1008, 165, 330, 0, 8.9, 128),
    Product("NVIDIA-GeForce-RTX-5090", 32607, 31.37, 1792, 210, 419, 0, 12.0, 170),
)


_MEMORY_TOLERANCE = 0.06  # drivers and firmware differ by a few percent
# What catalogues add to a name without meaning another card.
_SPELLING = re.compile(r"(\d+gb|hbm\w*|gddr\w*|sxm\w*|pcie)?")


def find_product(label: str) -> Product | None:
    """The product whose label is the longest whole-word prefix of this one."""
    matches = [row for row in PRODUCTS if f"{label.lower()}-".startswith(f"{row.label.lower()}-")]
    return max(matches, key=lambda row: len(row.label), default=None)


def most_processors() -> int:
    """Of the largest product: no fewer than a card that the table does not have is likely to."""
    return max(row.processors for row in PRODUCTS)


def has_memory_of(row: Product, memory_mib: int) -> bool:
    """Whether a node's memory can be this product's."""
    return abs(memory_mib - row.label_mib) <= _MEMORY_TOLERANCE * row.label_mib


def is_spelling_of(row: Product, label: str) -> bool:
    """Whether a label that begins as the row's means the row, not another card of the family.

    NVIDIA-H200-141GB-HBM3 is an H200; NVIDIA-GeForce-RTX-4090-Laptop-GPU is no RTX 4090.
    """
    words = label[len(row.label) :].lower().split("-")
    return all(_SPELLING.fullmatch(word) for word in words)
