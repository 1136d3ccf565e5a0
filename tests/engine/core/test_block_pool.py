"""The block pool: reference counts, order of reuse, content that stays findable."""

import random

import pytest

from pagefleet_engine.kv_cache.block_pool import BlockCounts, BlockPool


def name(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_blocks_of_a_new_pool_are_free_and_handed_out_in_order() -> None:
    pool = BlockPool(4)
    assert pool.counts() == BlockCounts(used=0, cached=0, free=4)
    assert pool.allocate(3) == [0, 1, 2]
    assert pool.counts() == BlockCounts(used=3, cached=0, free=1)


def test_released_content_stays_findable_until_the_pool_needs_the_block() -> None:
    pool = BlockPool(2)
    (block,) = pool.allocate(1)
    pool.register(block, name(1))
    pool.release([block])
    assert pool.counts() == BlockCounts(used=0, cached=1, free=1)
    assert pool.find(name(1)) == block
    pool.allocate(2)
    assert pool.find(name(1)) is None


def test_worthless_blocks_are_reused_before_cached_ones_and_those_least_recent_first() -> None:
    pool = BlockPool(4)
    blocks = pool.allocate(4)
    for block in blocks[:3]:
        pool.register(block, name(block))
    pool.release([2, 0, 3, 1])
    assert pool.allocate(4) == [3, 2, 0, 1]


def test_a_hit_takes_the_block_out_of_the_middle_of_the_free_list() -> None:
    pool = BlockPool(3)
    blocks = pool.allocate(3)
    for block in blocks:
        pool.register(block, name(block))
    pool.release(blocks)
    pool.touch(1)
    pool.check_integrity()
    assert pool.allocate(2) == [0, 2]
    assert pool.num_free == 0


def test_a_shared_block_is_free_only_when_its_last_holder_leaves() -> None:
    pool = BlockPool(1)
    pool.allocate(1)
    pool.register(0, name(0))
    pool.touch(0)
    pool.release([0])
    assert pool.counts().used == 1
    pool.release([0])
    assert pool.counts() == BlockCounts(used=0, cached=1, free=0)


def test_a_second_block_of_equal_content_stays_unnamed() -> None:
    pool = BlockPool(2)
    pool.allocate(2)
    pool.register(0, name(9))
    pool.register(1, name(9))
    assert pool.find(name(9)) == 0
    pool.release([1, 0])
    assert pool.counts() == BlockCounts(used=0, cached=1, free=1)


def test_forgotten_content_is_never_found_again() -> None:
    pool = BlockPool(1)
    pool.allocate(1)
    pool.register(0, name(0))
    pool.forget([0])
    pool.release([0])
    assert pool.find(name(0)) is None
    assert pool.counts() == BlockCounts(used=0, cached=0, free=1)


def test_releasing_a_block_twice_is_a_bug() -> None:
    pool = BlockPool(1)
    pool.allocate(1)
    pool.release([0])
    with pytest.raises(AssertionError, match="nobody holds it"):
        pool.release([0])


@pytest.mark.parametrize("seed", range(5))
def test_random_use_keeps_every_block_in_exactly_one_state(seed: int) -> None:
    rng = random.Random(seed)
    pool = BlockPool(16)
    held: list[int] = []
    for _ in range(400):
        action = rng.random()
        if action < 0.4 and pool.num_free:
            held += pool.allocate(rng.randint(1, pool.num_free))
        elif action < 0.6 and held:
            pool.register(rng.choice(held), name(rng.randrange(30)))
        elif action < 0.7:
            block = pool.find(name(rng.randrange(30)))
            if block is not None:
                pool.touch(block)
                held.append(block)
        elif held:
            rng.shuffle(held)
            pool.release([held.pop() for _ in range(rng.randint(1, len(held)))])
        pool.check_integrity()
        counts = pool.counts()
        assert counts.used == len(set(held))
        assert counts.used + counts.cached + counts.free == 16
