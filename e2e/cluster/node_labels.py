"""The labels that node-feature-discovery would give this machine's processor."""

from pathlib import Path

from e2e.cluster import layout
from e2e.cluster.kubectl import Kubectl

PREFIX = "feature.node.kubernetes.io/cpu-cpuid."
FEATURES = {
    "amx_bf16": "AMXBF16",
    "amx_int8": "AMXINT8",
    "amx_tile": "AMXTILE",
    "avx2": "AVX2",
    "avx512_bf16": "AVX512BF16",
    "avx512_vnni": "AVX512VNNI",
    "avx512f": "AVX512F",
}


def cpu_labels(cpuinfo: str) -> dict[str, str]:
    """From the text of /proc/cpuinfo."""
    line = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    flags = set(line.partition(":")[2].split())
    return {f"{PREFIX}{name}": "true" for flag, name in FEATURES.items() if flag in flags}


def label_node(kubectl: Kubectl) -> None:
    """The kubelet may not set these itself."""
    labels = cpu_labels(Path("/proc/cpuinfo").read_text())
    pairs = [f"{key}={value}" for key, value in labels.items()]
    if pairs:
        kubectl("label", "--overwrite", "node", layout.NODE_NAME, *pairs)
