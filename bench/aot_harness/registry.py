"""Every variant that is compiled ahead of time."""

from bench.aot_harness import (
    attention,
    block_copy,
    elementwise,
    kv_write,
    matmul,
    sampling,
    split_reduction,
)
from bench.aot_harness.variant import Variant

SOURCES = (block_copy, attention, split_reduction, kv_write, elementwise, sampling, matmul)


def all_variants() -> list[Variant]:
    """In the order of the results; a name stands once."""
    variants = [variant for module in SOURCES for variant in module.variants()]
    names = [(each.kernel, each.variant) for each in variants]
    twice = {name for name in names if names.count(name) > 1}
    assert not twice, f"two variants are called {twice}"
    return variants
