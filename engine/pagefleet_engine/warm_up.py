"""Warm-up: steps that reach every kernel variant of a configuration before the first request.

Compiled during a request, a variant would stall all that run. Attention is launched by the tokens
of a sequence (up to 8 decode, rounded up to a power of two) and by how often a sequence's keys are
split, at most once per 1024 and most often where it is alone.
"""

from array import array

from pagefleet_engine.executor import StepInputs
from pagefleet_memory import EngineLimits

DECODING_TOKENS = (1, 2, 4, 8)
SPLIT_TOKENS = 1024


def warm_up_steps(limits: EngineLimits, *, num_blocks: int) -> list[StepInputs]:
    """Steps of one sequence each, and one of as many as may run."""
    block_size, most_tokens = limits.block_size, limits.max_num_batched_tokens
    longest = min(limits.max_model_len, num_blocks * block_size)
    steps = [
        _step(1, count, seq_len, block_size)
        for count in sorted({*DECODING_TOKENS, min(most_tokens, longest)})
        for seq_len in _lengths(longest)
        if count <= min(seq_len, most_tokens)
    ]
    return [*steps, _step(min(limits.max_num_seqs, num_blocks, most_tokens), 1, 1, block_size)]


def _lengths(longest: int) -> list[int]:
    """Up to the longest: 1, a length in no need of splits, and its doubles."""
    lengths = {1, longest}
    length = SPLIT_TOKENS
    while length < longest:
        lengths.add(length)
        length *= 2
    return sorted(lengths)


def _step(num_seqs: int, num_tokens: int, seq_len: int, block_size: int) -> StepInputs:
    """The last tokens of sequences of one length, in blocks of their own from the first on."""
    blocks = -(-seq_len // block_size)
    return StepInputs(
        token_ids=[0] * (num_seqs * num_tokens),
        num_computed=[seq_len - num_tokens] * num_seqs,
        num_tokens=[num_tokens] * num_seqs,
        block_tables=[
            array("q", range(index * blocks, (index + 1) * blocks)) for index in range(num_seqs)
        ],
        rows=[(index + 1) * num_tokens - 1 for index in range(num_seqs)],
    )
