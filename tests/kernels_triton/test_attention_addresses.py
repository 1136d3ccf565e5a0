"""Addresses past 2**31: an offset of 32 bits would wrap, and the process would die or read garbage.

Covered: blocks at the end of a large pool, written and read; partial results of many splits.
Memory is mapped when it is touched, so these take little of it. Left out: CUDA.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

FAR_BLOCK = """
from tests.support import triton_interpreter
triton_interpreter.install()
import torch
from pagefleet_kernels import AttentionMetadata, KVLayout, LayerKVShape
from pagefleet_kernels.gpu.attention import paged_attention
from pagefleet_kernels.gpu.store import store_kv
from pagefleet_kernels.kv_pool import layer_cache
layer = LayerKVShape(num_kv_heads=1, head_dim=64, v_head_dim=64)
layout = KVLayout(mode="{mode}", block_size=8, layers=(layer,))
far = (1 << 31) // layout.record_bytes + 5
records = torch.empty(far + 1, layout.record_bytes, dtype=torch.uint8)
cache = layer_cache(records, layout, 0)
key, value = torch.randn(2, 5, 1, 64).bfloat16().unbind()
store_kv(key, value, cache, far * 8 + torch.arange(5), debug=True)
metadata = AttentionMetadata((0, 1), (5,), torch.tensor([[far]]), torch.tensor([0]))
query = torch.randn(1, 2, 64).bfloat16()
found = paged_attention(query, cache, metadata, scale=0.125, debug=True)
weights = (query[0].float() @ key[:, 0].float().T * 0.125).softmax(-1)
torch.testing.assert_close(found[0].float(), weights @ value[:, 0].float(), atol=0.3, rtol=0.3)
"""

MANY_SPLITS = """
from tests.support import triton_interpreter
triton_interpreter.install()
import torch
from pagefleet_kernels.gpu import attention
from pagefleet_kernels.gpu.launch import SplitLaunch, decode_tile
from pagefleet_kernels.gpu.scratch import Scratch, partial_bytes
from tests.support.attention_problems import lengths, problem
given = problem([(1, 40)], heads=(24, 1), mode="bfloat16")
splits = (1 << 31) // (23 * 64) + 1  # the last head's result lies past 2**31 elements
far = SplitLaunch(splits=splits, split_tokens=1024)
call = attention._Call(
    query=given.query, out=given.blank(), cache=given.cache, metadata=given.metadata,
    lengths=lengths([(1, 40)], 40), shape=attention.shape_of(24, torch.bfloat16, given.cache),
    traits=attention.traits_of(torch.device("cpu")), scale=0.125, window=None, softcap=None,
    sinks=None, alibi_slopes=None,
)
rows = (1, 1, 24, splits)
scratch = Scratch(partial_bytes(rows, width=64, itemsize=2), torch.device("cpu"))
partial = attention._Partial(*scratch.partials(rows, width=64, dtype=torch.bfloat16), far)
tile = decode_tile(call.shape, query_len=1)
attention._attend(call, (1, 1, 1), tile, bounds=(1, 1), partial=partial)
expected = attention.paged_attention(given.query, given.cache, given.metadata, **given.options)
assert torch.equal(partial.values[0, 0, :, 0], expected[0])
assert partial.stats[0, 0, :, 0].isfinite().all()
"""


def run(source: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'kernels'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("mode", ["bfloat16", "int8k_int4v", "int4"])
def test_blocks_past_two_gibibytes_are_written_and_read(mode: str) -> None:
    run(FAR_BLOCK.format(mode=mode))


def test_partial_results_past_two_to_the_31_are_where_the_reduction_looks() -> None:
    run(MANY_SPLITS)
