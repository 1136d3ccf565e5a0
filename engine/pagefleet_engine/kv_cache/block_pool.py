"""BlockPool: reference counts, the free list, and the index of cached content.

Every block is in exactly one state:

    used    ref_count > 0                  some block table holds it
    cached  ref_count = 0, hash set        in the free list; its content can still be hit
    free    ref_count = 0, no hash         in the free list; its content is worth nothing

The free list runs from the next block to hand out to the most recently released cached one.
Free blocks are put at its front and cached ones at its back, so content is overwritten only when
nothing worthless is left, and then the least recently used first.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


class Block:
    """One block's bookkeeping; `previous` and `next` link it while it is in the free list."""

    __slots__ = ("block_hash", "block_id", "next", "previous", "ref_count")

    def __init__(self, block_id: int) -> None:
        self.block_id = block_id
        self.ref_count = 0
        self.block_hash: bytes | None = None
        self.previous: Block = self
        self.next: Block = self


class FreeList:
    """A doubly linked list through the blocks themselves: every operation is O(1)."""

    __slots__ = ("_ends", "length")

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._ends = Block(-1)  # a sentinel: next is the front, previous the back
        self.length = 0
        for block in blocks:
            self.append(block)

    def append(self, block: Block) -> None:
        self._insert(block, before=self._ends)

    def prepend(self, block: Block) -> None:
        self._insert(block, before=self._ends.next)

    def pop_front(self) -> Block:
        block = self._ends.next
        assert block is not self._ends, "no free block"
        self.remove(block)
        return block

    def remove(self, block: Block) -> None:
        block.previous.next = block.next
        block.next.previous = block.previous
        self.length -= 1

    def _insert(self, block: Block, *, before: Block) -> None:
        block.previous, block.next = before.previous, before
        before.previous.next = block
        before.previous = block
        self.length += 1

    def __iter__(self) -> Iterator[Block]:
        block = self._ends.next
        while block is not self._ends:
            yield block
            block = block.next


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """How many blocks are in each state."""

    used: int
    cached: int
    free: int


class BlockPool:
    """The only owner of blocks: everybody else holds ids and gives them back."""

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks > 0, "a pool needs at least one block"
        self.num_blocks = num_blocks
        self._blocks = [Block(block_id) for block_id in range(num_blocks)]
        self._free = FreeList(self._blocks)
        self._by_hash: dict[bytes, Block] = {}
        self._num_cached = 0

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated now, cached ones included."""
        return self._free.length

    def counts(self) -> BlockCounts:
        free_length = self._free.length
        return BlockCounts(
            used=self.num_blocks - free_length,
            cached=self._num_cached,
            free=free_length - self._num_cached,
        )

    def allocate(self, count: int) -> list[int]:
        """Take `count` blocks with undefined content; the caller checked `num_free`."""
        return [self._take_front() for _ in range(count)]

    def find(self, block_hash: bytes) -> int | None:
        """The block with this content, if there is one."""
        block = self._by_hash.get(block_hash)
        return None if block is None else block.block_id

    def is_referenced(self, block_id: int) -> bool:
        return self._blocks[block_id].ref_count > 0

    def touch(self, block_id: int) -> None:
        """Add a reference to a block with known content."""
        block = self._blocks[block_id]
        if block.ref_count == 0:
            self._free.remove(block)
            self._num_cached -= 1
        block.ref_count += 1

    def register(self, block_id: int, block_hash: bytes) -> None:
        """Say what a referenced block contains; a second block of equal content stays unnamed."""
        block = self._blocks[block_id]
        assert block.ref_count > 0, f"block {block_id} is registered while nobody holds it"
        if block.block_hash is None and block_hash not in self._by_hash:
            block.block_hash = block_hash
            self._by_hash[block_hash] = block

    def release(self, block_ids: Iterable[int]) -> None:
        """Drop one reference each, in the order in which content may be lost."""
        for block_id in block_ids:
            block = self._blocks[block_id]
            assert block.ref_count > 0, f"block {block_id} is released while nobody holds it"
            block.ref_count -= 1
            if block.ref_count == 0:
                self._put_back(block)

    def forget(self, block_ids: Iterable[int]) -> None:
        """Drop the names of referenced blocks: their content must not be found again."""
        for block_id in block_ids:
            assert self._blocks[block_id].ref_count > 0, f"block {block_id} is not held"
            self._unname(self._blocks[block_id])

    def check_integrity(self) -> None:
        """Raise AssertionError unless the states, the list and the index agree."""
        listed = [block.block_id for block in self._free]
        idle = [block.block_id for block in self._blocks if block.ref_count == 0]
        assert len(listed) == self._free.length == len(set(listed)), "the free list lost its count"
        assert sorted(listed) == idle, "the free list is not the set of unreferenced blocks"
        cached = [block for block in self._free if block.block_hash is not None]
        assert len(cached) == self._num_cached, "the number of cached blocks is wrong"
        named = [block for block in self._blocks if block.block_hash is not None]
        assert len(named) == len(self._by_hash), "the index and the blocks' names differ"
        assert all(self._by_hash[h].block_hash == h for h in self._by_hash), "a wrong name"

    def _take_front(self) -> int:
        block = self._free.pop_front()
        if block.block_hash is not None:
            self._num_cached -= 1
            self._unname(block)
        block.ref_count = 1
        return block.block_id

    def _put_back(self, block: Block) -> None:
        if block.block_hash is None:
            self._free.prepend(block)
        else:
            self._free.append(block)
            self._num_cached += 1

    def _unname(self, block: Block) -> None:
        if block.block_hash is not None:
            del self._by_hash[block.block_hash]
            block.block_hash = None
