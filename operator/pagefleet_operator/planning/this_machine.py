"""What the machine at hand offers, as the planner takes it."""

import os
import shutil
import subprocess
from pathlib import Path

from pagefleet_memory import NodeGroup
from pagefleet_operator.planning.inventory import cpu_group, gpu_group
from pagefleet_operator.spec import InferenceDeploymentSpec

# Left to the rest of the machine when an engine takes the whole of it.
KEPT_FREE_PERCENT = 20
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_CPU_FLAGS = ("avx512_bf16", "amx_bf16")


def local_groups(spec: InferenceDeploymentSpec) -> tuple[NodeGroup, ...]:
    """One group of one node, or none where the machine has no such accelerator."""
    if spec.hardware_or_default.kind == "CPU":
        return (cpu_group(memory_bytes(), nodes=1, bf16=fast_bf16()),)
    return local_gpus()


def memory_bytes() -> int:
    """Memory that an engine may have here."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    text = _CGROUP_LIMIT.read_text().strip() if _CGROUP_LIMIT.exists() else ""
    limit = min(total, int(text)) if text.isdigit() else total
    return limit * (100 - KEPT_FREE_PERCENT) // 100


def fast_bf16() -> bool:
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().split()) if info.exists() else set()
    return any(flag in flags for flag in _CPU_FLAGS)


def local_gpus() -> tuple[NodeGroup, ...]:
    """The GPUs that nvidia-smi lists; the first one's product stands for all."""
    if shutil.which("nvidia-smi") is None:
        return ()
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    result = subprocess.run(query, capture_output=True, text=True, check=False)
    rows = [line.split(",") for line in result.stdout.splitlines() if "," in line]
    if result.returncode or not rows:
        return ()
    product = rows[0][0].strip().replace(" ", "-")
    same = sum(1 for row in rows if row[0].strip().replace(" ", "-") == product)
    return (gpu_group(product, gpus=same, nodes=1, memory_mib=int(rows[0][1])),)
