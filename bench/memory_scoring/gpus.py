"""The GPU of a row: what its free-text name and its stated memory tell."""

import re
from dataclasses import dataclass

from pagefleet_memory.products import PRODUCTS
from pagefleet_memory.units import GIB, MIB

# Words that name a product in a log or an issue, the first that is found decides.
_NAMES = (
    ("GB200", "NVIDIA-GB200"),
    ("GB300", "NVIDIA-GB300"),
    ("B200", "NVIDIA-B200"),
    ("B300", "NVIDIA-B300"),
    ("H200", "NVIDIA-H200"),
    ("H20", "NVIDIA-H20"),
    ("H100-NVL", "NVIDIA-H100-NVL"),
    ("H100-PCIE", "NVIDIA-H100-PCIe"),
    ("H100", "NVIDIA-H100-80GB-HBM3"),
    ("A100-PCIE-40", "NVIDIA-A100-PCIE-40GB"),
    ("A100-SXM4-40", "NVIDIA-A100-SXM4-40GB"),
    ("A100-40", "NVIDIA-A100-SXM4-40GB"),
    ("A100", "NVIDIA-A100-SXM4-80GB"),
    ("L40S", "NVIDIA-L40S"),
    ("L40", "NVIDIA-L40"),
    ("L4", "NVIDIA-L4"),
    ("A10G", "NVIDIA-A10G"),
    ("A10", "NVIDIA-A10"),
    ("A6000", "NVIDIA-RTX-A6000"),
    ("A40", "NVIDIA-A40"),
    ("V100", "Tesla-V100-SXM2-32GB"),
    ("T4", "Tesla-T4"),
    ("RTX-PRO-6000", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition"),
    ("5090", "NVIDIA-GeForce-RTX-5090"),
    ("4090", "NVIDIA-GeForce-RTX-4090"),
    ("3090", "NVIDIA-GeForce-RTX-3090"),
)
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:GB|GiB)\b")
_VISIBLE = re.compile(r"\(~?(\d+(?:\.\d+)?) GiB")
_VISIBLE_SHARE = 0.983  # of a card's nominal size, where nothing else is said
_MODERN_CAPABILITY = 8.6


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a process on it sees."""

    memory_bytes: int | None
    compute_capability: float
    nvlink: bool


def read_gpu(name: str | None, memory_gib: float | None) -> Gpu:
    """The GPU of a row; its stated memory is taken before the product's."""
    text = (name or "").upper().replace(" ", "-")
    label = next((label for word, label in _NAMES if re.search(rf"\b{word}", text)), None)
    product = next((row for row in PRODUCTS if row.label == label), None)
    stated = int(memory_gib * GIB) if memory_gib else _stated_bytes(name or "")
    if product is None or " + " in (name or ""):
        return Gpu(stated, _MODERN_CAPABILITY, nvlink=False)
    visible = (
        int(product.visible_gib * GIB)
        if product.visible_gib
        else product.label_mib * MIB * 98 // 100
    )
    linked = product.nvlink_gbps > 0 and not product.nvlink_pairs
    own = int(memory_gib * GIB) if memory_gib else visible
    return Gpu(own, product.compute_capability, linked)


def _stated_bytes(name: str) -> int | None:
    visible = _VISIBLE.search(name)
    if visible:
        return int(float(visible[1]) * GIB)
    if "class" in name.lower():  # of a card that is not named
        return None
    sizes = [float(size) for size in _SIZE.findall(name)]
    return int(min(sizes) * _VISIBLE_SHARE * GIB) if sizes else None
