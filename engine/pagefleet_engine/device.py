"""The device that the engine runs on, and how much of it the process may use and does use."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from pagefleet_engine.errors import ConfigError
from pagefleet_memory import Accelerator, cpu_accelerator

FAST_BF16_FLAGS = {"avx512_bf16", "amx_bf16"}


class MemoryMeter(Protocol):
    """What the process holds of its device's memory, in bytes."""

    def used_bytes(self) -> int: ...

    def peak_bytes(self) -> int: ...

    def reset_peak(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Device:
    """Where tensors live, what the memory model knows of it, and how its memory is measured."""

    torch_device: torch.device
    accelerator: Accelerator
    meter: MemoryMeter


def open_device(name: str, *, memory_bytes: int | None) -> Device:
    """The device of this name; `memory_bytes` overrides what it appears to hold."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        return _open_cuda(memory_bytes)
    torch.set_num_threads(cpu_threads())
    accelerator = cpu_accelerator(memory_bytes or memory_limit_bytes(), bf16=has_fast_bf16())
    return Device(torch.device("cpu"), accelerator, ProcessMemory())


def _open_cuda(memory_bytes: int | None) -> Device:
    if not torch.cuda.is_available():
        raise ConfigError("device", "cuda", "no CUDA device is visible here; cpu works")
    device = torch.device("cuda", torch.cuda.current_device())
    properties = torch.cuda.get_device_properties(device)
    major, minor = torch.cuda.get_device_capability(device)
    accelerator = Accelerator(
        kind="GPU",
        name=properties.name.replace(" ", "-"),
        memory_bytes=memory_bytes or properties.total_memory,
        bf16=major >= 8,
        fp8=(major, minor) >= (8, 9),
        compute_capability=major + minor / 10,
        processors=properties.multi_processor_count,
    )
    return Device(device, accelerator, CudaMemory(device))


class ProcessMemory:
    """Resident memory of this process, as Linux counts it against the container's limit."""

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._proc = proc

    def used_bytes(self) -> int:
        return self._field("VmRSS")

    def peak_bytes(self) -> int:
        return self._field("VmHWM")

    def reset_peak(self) -> None:
        """Start a new peak where the kernel allows it; without it the peak only overstates."""
        try:
            (self._proc / "clear_refs").write_text("5")
        except OSError:
            return

    def _field(self, name: str) -> int:
        for line in (self._proc / "status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise KeyError(name)


class CudaMemory:
    """Memory that torch holds on one CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def used_bytes(self) -> int:
        return torch.cuda.memory_allocated(self._device)

    def peak_bytes(self) -> int:
        return torch.cuda.max_memory_allocated(self._device)

    def reset_peak(self) -> None:
        torch.cuda.reset_peak_memory_stats(self._device)


def memory_limit_bytes(root: Path = Path("/")) -> int:
    """The smallest memory limit of this process's control groups, else the physical memory."""
    limits = [_physical_bytes(root)]
    for path in _limit_files(root):
        text = path.read_text().strip() if path.is_file() else "max"
        if text.isdigit():  # version 2 writes "max" for no limit, version 1 a huge number
            limits.append(int(text))
    return min(limits)


def _limit_files(root: Path) -> list[Path]:
    """Limit files of the process's groups and all their ancestors, both cgroup versions."""
    files = []
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        folder = base / group.lstrip("/")
        while folder != base.parent:
            files.append(folder / name)
            folder = folder.parent
    return files


def _physical_bytes(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise KeyError("MemTotal")


def has_fast_bf16(root: Path = Path("/")) -> bool:
    """Whether the processor multiplies bf16 in hardware; elsewhere float32 is faster."""
    for line in (root / "proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return not FAST_BF16_FLAGS.isdisjoint(line.split())
    return False


def cpu_threads(root: Path = Path("/")) -> int:
    """Threads to compute with: OMP_NUM_THREADS, else the CPUs that the container may use."""
    stated = os.environ.get("OMP_NUM_THREADS", "")
    if stated.isdigit() and int(stated) > 0:
        return int(stated)
    cpus = len(os.sched_getaffinity(0))
    quota = root / "sys/fs/cgroup/cpu.max"
    if quota.is_file():
        share, period = quota.read_text().split()
        if share != "max":
            cpus = min(cpus, -(-int(share) // int(period)))
    return max(1, cpus)
