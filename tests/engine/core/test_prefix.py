"""The hash chain: what must share content and what must not."""

from pagefleet_engine.kv_cache.prefix import block_hash, extend_hashes, root_hash


def chain(tokens: list[int], *, salt: str = "", adapter: str = "") -> list[bytes]:
    hashes: list[bytes] = []
    extend_hashes(hashes, tokens, root=root_hash(salt=salt, adapter=adapter), block_size=2)
    return hashes


def test_only_full_blocks_have_a_hash() -> None:
    assert len(chain([1])) == 0
    assert len(chain([1, 2, 3])) == 1


def test_equal_beginnings_share_hashes_up_to_the_first_difference() -> None:
    left, right = chain([1, 2, 3, 4, 5, 6]), chain([1, 2, 3, 9, 5, 6])
    assert left[0] == right[0]
    assert left[1] != right[1]
    assert left[2] != right[2], "equal tokens after a difference must not match"


def test_salt_and_adapter_keep_equal_prompts_apart() -> None:
    roots = [("", ""), ("a", ""), ("", "a"), ("ab", "c"), ("a", "bc")]
    firsts = {chain([1, 2], salt=salt, adapter=adapter)[0] for salt, adapter in roots}
    assert len(firsts) == len(roots)


def test_extending_continues_where_it_stopped() -> None:
    hashes = chain([1, 2])
    extend_hashes(hashes, [1, 2, 3, 4, 5], root=root_hash(), block_size=2)
    assert hashes == chain([1, 2, 3, 4])


def test_a_hash_is_sha256_of_parent_and_tokens() -> None:
    assert len(block_hash(root_hash(), [0, 1])) == 32
    assert block_hash(root_hash(), [0, 1]) != block_hash(root_hash(), [1, 0])
