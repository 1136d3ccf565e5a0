"""Addresses that kernels read and write, watched by compute-sanitizer on tiny shapes.

Torch's allocator hands out parts of large blocks, whose other parts a kernel may read unnoticed, so
it is switched off. The tool comes with CUDA's toolkit; without it nothing is watched.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import torch

from bench.gpu.batches import Heads, make_batch
from bench.gpu.rows import Row
from pagefleet_kernels.gpu.attention import paged_attention
from pagefleet_kernels.gpu.block_copy import copy_blocks

STAGE = "sanitizer"
TOOL = "compute-sanitizer"
PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin")
FOUND_ERRORS = 9
HEADS = Heads(num_heads=6, num_kv_heads=2, head_dim=80)
SEQUENCES = ((1, 0), (1, 40), (20, 3))


def rows() -> Iterator[Row]:
    tool = shutil.which(TOOL) or shutil.which(TOOL, path=os.pathsep.join(PLACES))
    name = "memcheck of a KV write, attention and a block copy"
    if tool is None:
        yield Row(stage=STAGE, name=name, note=f"{TOOL} was not found: nothing was watched")
        return
    done = subprocess.run(
        [tool, "--tool", "memcheck", "--error-exitcode", str(FOUND_ERRORS), "--launch-timeout", "0",
         sys.executable, "-m", "bench.gpu.sanitizer"],
        env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
        capture_output=True,
        text=True,
    )  # fmt: skip
    yield outcome(name, done.returncode, done.stdout + done.stderr)


def outcome(name: str, code: int, said: str) -> Row:
    """What the tool found, or why it could not run."""
    lines = [line.strip("= ") for line in said.splitlines() if line.strip("= ")]
    if code == 0:
        return Row(stage=STAGE, name=name, error=0.0, tolerance=0.0, note=(lines or [""])[-1])
    errors = [line for line in lines if line.startswith(("Invalid", "Error"))]
    return Row(stage=STAGE, name=name, failed=f"code {code}: {' '.join((errors or lines)[:2])}")


def main(device: torch.device) -> None:
    for mode in ("bfloat16", "fp8_e4m3", "int4"):
        batch = make_batch(SEQUENCES, mode=mode, heads=HEADS, device=device)
        paged_attention(batch.query, batch.pool.layer(0), batch.metadata, scale=batch.scale)
        copy_blocks(batch.pool.records, torch.tensor([[0, 1], [-1, 2]], device=device))
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(torch.device("cuda"))
