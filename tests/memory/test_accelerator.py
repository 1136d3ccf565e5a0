"""Accelerators from node labels: products, suffixes, unknown cards, and what is refused."""

import pytest

from pagefleet_memory import (
    AcceleratorError,
    LimitError,
    accelerator_from_labels,
    cpu_accelerator,
    resolve_dtype,
)
from pagefleet_memory.product_names import resolve_product
from pagefleet_memory.products import PRODUCTS
from tests.memory.memory_builders import GIB, LLAMA_3_8B, MIB, gpu, shape


def test_every_product_of_the_table_is_found_by_its_own_label() -> None:
    for row in PRODUCTS:
        found = accelerator_from_labels(row.label, row.label_mib)
        assert found.bandwidth_gbps == row.bandwidth_gbps, row.label
        assert 0.94 * row.label_mib * MIB < found.memory_bytes < row.label_mib * MIB, row.label


@pytest.mark.parametrize(
    ("label", "memory_mib", "visible_gib"),
    [
        ("NVIDIA-H100-80GB-HBM3", 81559, 79.11),
        ("NVIDIA-H200-141GB-HBM3", 143771, 139.81),  # a catalogue's spelling
        ("NVIDIA-L40", 46068, 44.31),
        ("nvidia-l4", 23034, 22.05),
        ("Tesla-T4", None, 14.56),
    ],
)
def test_labels_match_by_family(label: str, memory_mib: int | None, visible_gib: float) -> None:
    accelerator = accelerator_from_labels(label, memory_mib)
    assert accelerator.memory_bytes / GIB == pytest.approx(visible_gib, abs=0.01)
    assert accelerator.name == label


def test_a_bridge_between_two_cards_is_not_assumed() -> None:
    assert accelerator_from_labels("NVIDIA-A40", 46068).nvlink_gbps == 0
    assert gpu("H100").nvlink_gbps == 900


def test_an_unknown_product_is_planned_from_its_memory() -> None:
    accelerator = accelerator_from_labels("NVIDIA-X900", 100_000)
    assert accelerator.memory_bytes == 98_000 * MIB
    assert accelerator.bandwidth_gbps is None


@pytest.mark.parametrize(
    ("label", "memory_mib", "expected"),
    [
        ("NVIDIA-L4", 48_000, "23034"),
        ("NVIDIA-A100-SXM4-40GB", 81_920, "40960"),
        ("NVIDIA-H200-141GB-HBM3", 81_559, "143771"),
        ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", 40_960, "3g.20gb has"),
    ],
)
def test_memory_that_contradicts_the_label_is_refused_with_what_would_agree(
    label: str, memory_mib: int, expected: str
) -> None:
    with pytest.raises(AcceleratorError, match=expected) as caught:
        accelerator_from_labels(label, memory_mib)
    assert (caught.value.field, caught.value.value) == ("nvidia.com/gpu.memory", memory_mib)


@pytest.mark.parametrize(
    ("label", "memory_mib"),
    [("NVIDIA-GeForce-RTX-4090-Laptop-GPU", 16_376), ("NVIDIA-H20-3e", 143_771)],
)
def test_another_card_of_a_family_is_planned_from_its_memory(label: str, memory_mib: int) -> None:
    accelerator = accelerator_from_labels(label, memory_mib)
    assert accelerator.memory_bytes == memory_mib * MIB * 98 // 100
    assert accelerator.bandwidth_gbps is None


@pytest.mark.parametrize(
    ("label", "memory_mib", "bandwidth"),
    [
        ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", 20_096, 763),
        ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", 9_984, 410),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb.me", 9_728, 242),
    ],
)
def test_a_mig_slice_is_a_small_gpu_with_its_share_of_the_speed(
    label: str, memory_mib: int, bandwidth: int
) -> None:
    part = accelerator_from_labels(label, memory_mib)
    assert part.memory_bytes == memory_mib * MIB * 98 // 100
    assert part.bandwidth_gbps == pytest.approx(bandwidth, abs=1)
    assert (part.nvlink_gbps, part.name) == (0, label)


def test_a_slice_of_an_unknown_gpu_is_planned_from_its_memory() -> None:
    part = accelerator_from_labels("NVIDIA-X900-MIG-1g.24gb", 23_552)
    assert (part.mig_profile, part.bandwidth_gbps) == ("1g.24gb", None)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("H100-80GB", "NVIDIA-H100-80GB-HBM3"),
        ("L4", "NVIDIA-L4"),
        ("a100-80gb", "NVIDIA-A100-SXM4-80GB"),
        ("T4", "Tesla-T4"),
        ("RTX-4090", "NVIDIA-GeForce-RTX-4090"),
        ("L40", "NVIDIA-L40"),
        ("NVIDIA-H200-141GB-HBM3", "NVIDIA-H200-141GB-HBM3"),
    ],
)
def test_short_names_stand_for_products(name: str, label: str) -> None:
    assert resolve_product(name) == label


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("H100", "NVIDIA-H100-80GB-HBM3, NVIDIA-H100-PCIe, NVIDIA-H100-NVL"),
        ("A100", "NVIDIA-A100-SXM4-40GB"),
        ("X900", "Tesla-T4"),
        ("", "Tesla-T4"),
    ],
)
def test_a_name_that_fits_several_or_none_lists_candidates(name: str, candidates: str) -> None:
    with pytest.raises(AcceleratorError, match=candidates):
        resolve_product(name)


@pytest.mark.parametrize(
    ("label", "memory_mib", "named"),
    [
        ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", None, "MIG slice .* is not stated"),
        ("NVIDIA-L4-SHARED", 23034, "time-shared"),
        ("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb-SHARED", 20096, "time-shared"),
        ("NVIDIA-X900", None, "not stated"),
        ("", 1000, "label"),
        ("NVIDIA-L4", 0, "MiB"),
        ("NVIDIA-L4", -5, "MiB"),
    ],
)
def test_what_cannot_be_planned_is_refused_by_name(
    label: str, memory_mib: int | None, named: str
) -> None:
    with pytest.raises(AcceleratorError, match=named):
        accelerator_from_labels(label, memory_mib)


def test_cpu_memory_must_be_positive() -> None:
    with pytest.raises(AcceleratorError):
        cpu_accelerator(0, bf16=False)


def test_auto_is_bf16_on_cpu_only_where_it_is_fast() -> None:
    model = shape(LLAMA_3_8B)
    assert resolve_dtype(model, cpu_accelerator(GIB, bf16=True)) == "bfloat16"
    assert resolve_dtype(model, cpu_accelerator(GIB, bf16=False)) == "float32"
    assert resolve_dtype(model, cpu_accelerator(GIB, bf16=False), "bfloat16") == "bfloat16"


def test_auto_is_float16_on_a_gpu_without_bf16() -> None:
    model = shape(LLAMA_3_8B)
    assert resolve_dtype(model, gpu("T4"), "auto") == "float16"
    assert resolve_dtype(model, gpu("H100")) == "bfloat16"
    assert resolve_dtype(shape(LLAMA_3_8B, torch_dtype="float32"), gpu("H100")) == "bfloat16"
    with pytest.raises(LimitError, match="has no bfloat16"):
        resolve_dtype(model, gpu("T4"), "bfloat16")
