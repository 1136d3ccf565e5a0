"""The hash chain that names the content of full blocks.

hash(i) = SHA-256(hash(i-1), tokens of block i), and hash(-1) covers what else changes keys and
values or must keep tenants apart: the adapter and the salt. Equal hash means equal content.
"""

import hashlib
import struct
from collections.abc import Sequence


def root_hash(*, adapter: str = "", salt: str = "") -> bytes:
    """The parent of every first block."""
    adapter_bytes = adapter.encode()
    # The length keeps ("ab", "c") and ("a", "bc") apart.
    header = struct.pack("<Q", len(adapter_bytes))
    return hashlib.sha256(header + adapter_bytes + salt.encode()).digest()


def block_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The name of a full block that follows `parent`."""
    return hashlib.sha256(parent + struct.pack(f"<{len(token_ids)}I", *token_ids)).digest()


def extend_hashes(
    hashes: list[bytes], token_ids: Sequence[int], *, root: bytes, block_size: int
) -> None:
    """Append to `hashes` one hash for every full block of `token_ids` that has none yet."""
    for index in range(len(hashes), len(token_ids) // block_size):
        parent = hashes[-1] if hashes else root
        hashes.append(block_hash(parent, token_ids[index * block_size : (index + 1) * block_size]))
