"""BlockManager: the block tables of sequences, grown, shared and given back.

tokens        |<------------- num_tokens ------------->|
cached prefix |<-- hits -->|
block_table   [ b0 ][ b1 ][ b2 ][ b3 ][ b4 ]            ceil(tokens / block_size) blocks
hashes        [ h0 ][ h1 ][ h2 ][ h3 ]                  full blocks only
"""

from array import array
from dataclasses import dataclass

from pagefleet_engine.kv_cache.block_pool import BlockPool
from pagefleet_engine.kv_cache.prefix import extend_hashes, root_hash
from pagefleet_engine.sequence import Sequence


@dataclass(slots=True)
class PrefixCacheTotals:
    """Tokens looked up in the prefix cache, and tokens found."""

    queries: int = 0
    hits: int = 0


class BlockManager:
    """Gives sequences the blocks that their tokens need."""

    def __init__(self, *, num_blocks: int, block_size: int, enable_prefix_caching: bool) -> None:
        self.block_size = block_size
        self.pool = BlockPool(num_blocks)
        self.enable_prefix_caching = enable_prefix_caching
        self.prefix_totals = PrefixCacheTotals()
        # Kept free at admission while others run, so that they can grow for some steps.
        self._watermark = num_blocks // 100

    @property
    def capacity_tokens(self) -> int:
        return self.pool.num_blocks * self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def find_cached(self, sequence: Sequence) -> list[int]:
        """The blocks that hold this sequence's beginning, all but its last token at most."""
        if not self.enable_prefix_caching:
            return []
        self._extend_hashes(sequence)
        found: list[int] = []
        for block_hash in sequence.block_hashes[: (sequence.num_tokens - 1) // self.block_size]:
            block_id = self.pool.find(block_hash)
            if block_id is None:
                break
            found.append(block_id)
        return found

    def can_allocate(self, sequence: Sequence, *, others_run: bool, freed: int = 0) -> bool:
        """Whether `allocate` would succeed, had `freed` more blocks been given back."""
        cached = self.find_cached(sequence)
        return self._missing(sequence, cached, others_run=others_run) <= freed

    def allocate(self, sequence: Sequence, *, others_run: bool) -> bool:
        """Give an admitted sequence blocks for all its tokens, or nothing and False.

        The whole sequence must fit: a prompt is never started that could not be finished.
        """
        cached = self.find_cached(sequence)
        if self._missing(sequence, cached, others_run=others_run) > 0:
            return False
        for block_id in cached:
            self.pool.touch(block_id)
        fresh = self.pool.allocate(self.blocks_for(sequence.num_tokens) - len(cached))
        sequence.block_table = array("q", cached + fresh)
        sequence.num_registered_blocks = len(cached)
        sequence.num_computed_tokens = len(cached) * self.block_size
        if self.enable_prefix_caching:
            self.prefix_totals.queries += sequence.num_tokens
            self.prefix_totals.hits += sequence.num_computed_tokens
        return True

    def _missing(self, sequence: Sequence, cached: list[int], *, others_run: bool) -> int:
        """How many blocks short the pool is; a hit that nobody references also leaves the pool."""
        idle_hits = sum(not self.pool.is_referenced(block_id) for block_id in cached)
        fresh = self.blocks_for(sequence.num_tokens) - len(cached)
        spare = self._watermark if others_run else 0
        return fresh + idle_hits + spare - self.pool.num_free

    def grow(self, sequence: Sequence) -> bool:
        """Make the table long enough for all tokens of a running sequence, if there is room."""
        missing = self.blocks_for(sequence.num_tokens) - len(sequence.block_table)
        if missing > self.pool.num_free:
            return False
        if missing > 0:
            sequence.block_table.extend(self.pool.allocate(missing))
        return True

    def register_computed(self, sequence: Sequence, num_computed: int) -> None:
        """Name the full blocks below `num_computed`, so that equal beginnings find them.

        Called when the step that fills them is scheduled: a step writes all its keys and values
        before it reads any, so sequences of the same step can share.
        """
        full = num_computed // self.block_size
        if not self.enable_prefix_caching or full <= sequence.num_registered_blocks:
            return
        self._extend_hashes(sequence)
        for index in range(sequence.num_registered_blocks, full):
            self.pool.register(sequence.block_table[index], sequence.block_hashes[index])
        sequence.num_registered_blocks = full

    def free(self, sequence: Sequence) -> None:
        """Give all blocks back; the tail goes first, since a beginning is shared more often."""
        self.pool.release(reversed(sequence.block_table))
        sequence.block_table = array("q")
        sequence.num_registered_blocks = 0
        sequence.num_computed_tokens = 0

    def free_untrusted(self, sequence: Sequence) -> None:
        """Give all blocks back after a failed step: nobody may reuse their content."""
        self.pool.forget(sequence.block_table)
        self.free(sequence)

    def _extend_hashes(self, sequence: Sequence) -> None:
        if len(sequence.block_hashes) < sequence.num_tokens // self.block_size:
            extend_hashes(
                sequence.block_hashes,
                sequence.token_ids,
                root=root_hash(salt=sequence.request.cache_salt),
                block_size=self.block_size,
            )
