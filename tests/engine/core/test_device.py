"""What the engine reads of its machine: memory limits of both cgroup versions, bf16, threads."""

import mmap
from pathlib import Path

import pytest
import torch

from pagefleet_engine.device import (
    ProcessMemory,
    cpu_threads,
    has_fast_bf16,
    memory_limit_bytes,
    open_device,
)

GIB = 1 << 30


def machine(root: Path, *, groups: str, files: dict[str, str] | None = None) -> Path:
    """A fake root with 8 GiB of memory."""
    texts = {
        "proc/meminfo": f"MemTotal: {8 * GIB // 1024} kB\n",
        "proc/self/cgroup": groups,
        **(files or {}),
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_without_a_limit_the_physical_memory_counts(tmp_path: Path) -> None:
    root = machine(tmp_path, groups="0::/\n", files={"sys/fs/cgroup/memory.max": "max\n"})
    assert memory_limit_bytes(root) == 8 * GIB


def test_version_2_limits_count_at_every_level(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/pod/memory.max": f"{2 * GIB}\n",
        "sys/fs/cgroup/pod/engine/memory.max": "max\n",
    }
    root = machine(tmp_path, groups="0::/pod/engine\n", files=files)
    assert memory_limit_bytes(root) == 2 * GIB


def test_in_a_container_the_group_is_the_mounted_root(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup/memory.max": f"{GIB}\n"}
    root = machine(tmp_path, groups="0::/kubepods/unseen/here\n", files=files)
    assert memory_limit_bytes(root) == GIB


def test_version_1_limits_count_and_its_huge_number_does_not(tmp_path: Path) -> None:
    files = {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": f"{3 * GIB}\n",
    }
    root = machine(tmp_path, groups="4:cpu:/pod\n3:memory:/pod\n", files=files)
    assert memory_limit_bytes(root) == 3 * GIB


@pytest.mark.parametrize(
    ("flags", "fast"),
    [("sse avx2", False), ("avx512f avx512_bf16", True), ("amx_bf16 amx_tile", True)],
)
def test_bf16_is_fast_only_where_the_processor_says_so(
    tmp_path: Path, flags: str, fast: bool
) -> None:
    cpuinfo = f"model name\t: x\nflags\t\t: {flags}\n"
    root = machine(tmp_path, groups="0::/\n", files={"proc/cpuinfo": cpuinfo})
    assert has_fast_bf16(root) is fast


def test_threads_follow_the_cpu_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    files = {"sys/fs/cgroup/cpu.max": "50000 100000\n"}
    assert cpu_threads(machine(tmp_path, groups="0::/\n", files=files)) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert cpu_threads(tmp_path) == 3


def test_process_memory_sees_what_is_allocated() -> None:
    memory = ProcessMemory()
    before = memory.used_bytes()
    with mmap.mmap(-1, 64 << 20) as ballast:  # from the kernel: malloc may hold as much unused
        ballast.write(b"\1" * len(ballast))
        assert memory.used_bytes() - before > 48 << 20
        assert memory.peak_bytes() >= memory.used_bytes() - (8 << 20)


def test_the_cpu_device_takes_a_stated_memory_size() -> None:
    device = open_device("cpu", memory_bytes=5 * GIB)
    assert device.accelerator.memory_bytes == 5 * GIB
    assert device.torch_device == torch.device("cpu")
