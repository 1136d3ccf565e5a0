"""Log-probabilities in the two shapes that OpenAI's endpoints give them."""

from collections.abc import Callable, Sequence

from pagefleet_engine.detokenizer import INCOMPLETE
from pagefleet_engine.request import TokenLogprobs

Json = dict[str, object]
TokenText = Callable[[int], str]


def completion_logprobs(
    positions: Sequence[TokenLogprobs], token_text: TokenText, *, offset: int
) -> Json:
    """Parallel lists, as `/v1/completions` has them; `offset` is where the text begins."""
    tokens = [token_text(position.token_id) for position in positions]
    offsets = []
    for text in tokens:
        offsets.append(offset)
        offset += len(text)
    return {
        "tokens": tokens,
        "token_logprobs": [position.logprob for position in positions],
        "top_logprobs": [_by_text(position.top, token_text) for position in positions],
        "text_offset": offsets,
    }


def _by_text(top: Sequence[tuple[int, float]], token_text: TokenText) -> dict[str, float]:
    """Alternatives by text; of tokens that look the same (parts of characters) the best stays."""
    found: dict[str, float] = {}
    for token_id, logprob in top:
        found.setdefault(token_text(token_id), logprob)
    return found


def chat_logprobs(positions: Sequence[TokenLogprobs], token_text: TokenText) -> Json:
    """One object for each position, as `/v1/chat/completions` has them."""
    return {
        "content": [
            {
                **_chat_token(token_text(position.token_id), position.logprob),
                "top_logprobs": [
                    _chat_token(token_text(token_id), logprob) for token_id, logprob in position.top
                ],
            }
            for position in positions
        ]
    }


def _chat_token(text: str, logprob: float) -> Json:
    # A token that holds part of a character has bytes that its text cannot show.
    encoded = None if INCOMPLETE in text else list(text.encode())
    return {"token": text, "logprob": logprob, "bytes": encoded}
