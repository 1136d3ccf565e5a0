"""Incremental detokenization equals decoding at once; stop strings work across all borders."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from pagefleet_engine.detokenizer import (
    IncrementalDetokenizer,
    StopMatch,
    StopStrings,
)
from tests.support.tiny_tokenizer import train_tokenizer

TEXTS = [
    "hello world",
    "héllo wörld",
    "你好，世界！",
    "family 👨‍👩‍👧‍👦 and 🏳️‍🌈",
    "x\ufffdy",
    " leading",
    "a\n\n b",
]
BYTE_LEVEL = train_tokenizer()


def byte_fallback_tokenizer() -> Tokenizer:
    """Words with a leading ▁ as sentencepiece has them, everything else as single bytes."""
    vocabulary = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁hello", "▁world", "▁"]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: number for number, token in enumerate(vocabulary)},
            merges=[],
            byte_fallback=True,
            unk_token="<unk>",
        )
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return tokenizer


BYTE_FALLBACK = byte_fallback_tokenizer()


def streamed(tokenizer: Tokenizer, prompt: Sequence[int], pieces: Sequence[Sequence[int]]) -> str:
    detokenizer = IncrementalDetokenizer(lambda ids: str(tokenizer.decode(list(ids))), prompt)
    return "".join([*(detokenizer.push(piece) for piece in pieces), detokenizer.flush()])


def fallback_id(token: str) -> int:
    token_id = BYTE_FALLBACK.token_to_id(token)
    assert token_id is not None
    return token_id


def byte_ids(text: str) -> list[int]:
    return [1 + byte for byte in text.encode()]


@pytest.mark.parametrize("text", TEXTS)
def test_text_split_into_single_bytes_comes_out_whole(text: str) -> None:
    alphabet = [BYTE_LEVEL.encode(text).ids]
    single = [[token_id] for ids in alphabet for token_id in ids]
    prompt = BYTE_LEVEL.encode("prompt").ids
    assert streamed(BYTE_LEVEL, prompt, single) == text


@pytest.mark.parametrize("text", TEXTS)
def test_byte_fallback_tokens_come_out_whole(text: str) -> None:
    prompt = [fallback_id("▁hello")]
    assert streamed(BYTE_FALLBACK, prompt, [[each] for each in byte_ids(text)]) == text


def test_leading_space_of_the_first_word_is_kept_after_a_prompt() -> None:
    hello, world = fallback_id("▁hello"), fallback_id("▁world")
    assert streamed(BYTE_FALLBACK, [hello], [[world], [hello]]) == " world hello"


def test_partial_character_is_never_shown() -> None:
    detokenizer = IncrementalDetokenizer(lambda ids: str(BYTE_FALLBACK.decode(list(ids))), [])
    shown = [detokenizer.push([each]) for each in byte_ids("é😀")]
    assert shown == ["", "é", "", "", "", "😀"]


def test_character_begun_in_the_prompt_does_not_repeat_the_prompt() -> None:
    begun, rest = byte_ids("ab😀")[:4], byte_ids("ab😀")[4:]
    assert streamed(BYTE_FALLBACK, begun, [[each] for each in rest]) == "😀"


def test_context_that_begins_inside_a_character_is_left_out() -> None:
    prompt, rest = byte_ids("你好世界")[:-2], byte_ids("你好世界")[-2:]
    assert streamed(BYTE_FALLBACK, prompt, [[each] for each in rest]) == "界"


def test_bytes_that_never_become_a_character_come_at_the_end() -> None:
    assert streamed(BYTE_LEVEL, [], [BYTE_LEVEL.encode("😀").ids[:1]]) == "\ufffd"


@given(st.lists(st.integers(3, BYTE_LEVEL.get_vocab_size() - 1), max_size=40), st.data())
def test_any_tokens_in_any_pieces_equal_decoding_at_once(
    ids: list[int], data: st.DataObject
) -> None:
    pieces = []
    rest = ids
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        pieces.append(rest[:size])
        rest = rest[size:]
    assert streamed(BYTE_LEVEL, [], pieces) == BYTE_LEVEL.decode(ids)


def watch(
    stops: Sequence[str], pieces: Sequence[str], *, include: bool = False
) -> tuple[str, str | None]:
    watcher = StopStrings(stops, include=include)
    shown = ""
    for piece in pieces:
        found = watcher.push(piece)
        if isinstance(found, StopMatch):
            return shown + found.text, found.stop
        shown += found
    return shown + watcher.flush(), None


@pytest.mark.parametrize(
    ("stops", "text", "include", "expected"),
    [
        (["END"], "one END two", False, ("one ", "END")),
        (["END"], "one END two", True, ("one END", "END")),
        (["\n\n"], "a\nb\n\nc", False, ("a\nb", "\n\n")),
        (["bcd", "c"], "abcde", False, ("ab", "c")),  # ends first
        (["bc", "abc"], "xabc", False, ("x", "abc")),  # end together: the longer
        (["aab"], "aaab", False, ("a", "aab")),
        (["END"], "no en d EN", False, ("no en d EN", None)),
        ([], "plain", False, ("plain", None)),
        (["界！"], "你好世界！", False, ("你好世", "界！")),
    ],
)
def test_stop_strings_in_every_split(
    stops: list[str], text: str, include: bool, expected: tuple[str, str | None]
) -> None:
    for size in range(1, len(text) + 1):
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        assert watch(stops, pieces, include=include) == expected, f"pieces of {size}"


def test_beginning_of_a_stop_string_is_held_back_and_released() -> None:
    watcher = StopStrings(["###"])
    assert [watcher.push(piece) for piece in ("a#", "#", "b")] == ["a", "", "##b"]
