"""Simulated GPU nodes look like those that GPU feature discovery has labelled."""

import pytest

from e2e.cluster.gpu_nodes import PRODUCTS, gpu_node


@pytest.mark.parametrize("product", sorted(PRODUCTS))
def test_node_says_the_same_in_labels_and_capacity(product: str) -> None:
    node = gpu_node("a", PRODUCTS[product], gpus=4)
    assert node["metadata"]["labels"]["nvidia.com/gpu.count"] == "4"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == PRODUCTS[product].label


def test_system_pods_stay_off() -> None:
    node = gpu_node("a", PRODUCTS["NVIDIA-H100-80GB-HBM3"], gpus=8)
    taints = [(taint["key"], taint["value"], taint["effect"]) for taint in node["spec"]["taints"]]
    assert taints == [("nvidia.com/gpu", "present", "NoSchedule")]


def test_all_label_values_are_strings() -> None:
    labels = gpu_node("a", PRODUCTS["NVIDIA-L4"], gpus=1)["metadata"]["labels"]
    assert all(isinstance(value, str) for value in labels.values())
