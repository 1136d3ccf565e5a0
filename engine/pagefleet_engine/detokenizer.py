"""From generated token ids to text, piece by piece: incremental decoding and stop strings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

INCOMPLETE = "\ufffd"  # what a decoder shows for bytes that are not (yet) a character
NUM_CONTEXT_TOKENS = 6
MAX_WINDOW_TOKENS = 64

Decode = Callable[[Sequence[int]], str]


class IncrementalDetokenizer:
    """Emits text as tokens arrive; the pieces joined equal the text decoded at once.

    A window of tokens is decoded each time: some that were already emitted, which give the
    decoder its context (whether a leading space stays), then the pending ones.

        ids:    context: already emitted | pending
                                         ^ context_end

    Text that ends inside a character is held back until the character is complete.
    """

    def __init__(self, decode: Decode, prompt_token_ids: Sequence[int]) -> None:
        self._decode = decode
        self._ids, self._emitted = self._context(list(prompt_token_ids[-NUM_CONTEXT_TOKENS:]))
        self._context_end = len(self._ids)

    def push(self, token_ids: Sequence[int]) -> str:
        """Add tokens and return the text that became certain."""
        self._ids += token_ids
        text = self._decode(self._ids)
        stable = text.rstrip(INCOMPLETE)
        if len(stable) < len(text) and len(self._ids) < MAX_WINDOW_TOKENS:
            return self._emit(stable) if stable.startswith(self._emitted) else ""
        piece = self._emit(text)
        self._advance()
        return piece

    def flush(self) -> str:
        """Return what was held back, incomplete characters included."""
        return self._emit(self._decode(self._ids))

    def _context(self, ids: list[int]) -> tuple[list[int], str]:
        """The part of the prompt's end that begins with a whole character, and its text.

        The prompt may end inside a character: those bytes come out with what completes them.
        """
        if not self._decode(ids):
            return ids, ""
        for end in range(len(ids), 0, -1):
            for start in range(end):
                text = self._decode(ids[start:end])
                if text and INCOMPLETE not in (text[0], text[-1]):
                    return ids[start:], text
        return [], ""

    def _emit(self, text: str) -> str:
        if not text.startswith(self._emitted):
            # A byte-fallback decoder turns a whole run of bytes into replacement characters
            # once the run ends badly; its good part was already emitted.
            return self._decode(self._ids[self._context_end :])
        piece = text[len(self._emitted) :]
        self._emitted = text
        return piece

    def _advance(self) -> None:
        """Make the pending tokens the new context, unless they show nothing (special tokens)."""
        context = self._decode(self._ids[self._context_end :])
        if context:
            self._ids = self._ids[self._context_end :]
            self._emitted = context
        self._context_end = len(self._ids)


@dataclass(frozen=True, slots=True)
class StopMatch:
    """The text before (or including) the stop string, and which one it was."""

    text: str
    stop: str


class StopStrings:
    """Watches a stream of text for stop strings, also across the borders of its pieces.

    Text that may be the beginning of a stop string is held back. The stop string that ends
    first wins; of two that end together, the longer.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        self._stops = tuple(stops)
        self._include = include
        self._held = ""

    def push(self, text: str) -> str | StopMatch:
        """Return the text that is safe to show, or the match that ends the answer."""
        self._held += text
        if (found := self._find()) is not None:
            end, stop = found
            kept = end if self._include else end - len(stop)
            return StopMatch(self._held[:kept], stop)
        safe = len(self._held) - self._num_open()
        shown, self._held = self._held[:safe], self._held[safe:]
        return shown

    def flush(self) -> str:
        shown, self._held = self._held, ""
        return shown

    def _find(self) -> tuple[int, str] | None:
        """(end, stop) of the match that ends first."""
        found = [
            (start + len(stop), stop)
            for stop in self._stops
            if (start := self._held.find(stop)) >= 0
        ]
        return min(found, key=lambda item: (item[0], -len(item[1])), default=None)

    def _num_open(self) -> int:
        """Length of the longest tail that begins some stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(self._held)), 0, -1):
            tail = self._held[-length:]
            if any(stop.startswith(tail) for stop in self._stops):
                return length
        return 0
