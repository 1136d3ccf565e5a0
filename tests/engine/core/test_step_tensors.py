"""A step's tensors on the host, and what goes along to a device.

The device is torch's meta device, which keeps shapes and types and no numbers.
"""

from array import array

import torch

from pagefleet_engine.executor import StepInputs
from pagefleet_engine.step_tensors import StepTensors

# 3 tokens of a sequence of 10, and the 17th of another
INPUTS = StepInputs(
    token_ids=[7, 8, 9, 5],
    num_computed=[7, 16],
    num_tokens=[3, 1],
    block_tables=[array("q", [4, 2]), array("q", [1, 0, 3])],
    rows=[3],
)


def test_tokens_have_their_positions_and_slots() -> None:
    step = StepTensors.of(INPUTS, block_size=8)
    assert step.token_ids.tolist() == [7, 8, 9, 5]
    assert step.positions.tolist() == [7, 8, 9, 16]
    assert step.rows.tolist() == [3]
    metadata = step.metadata
    assert metadata.slot_mapping.tolist() == [4 * 8 + 7, 2 * 8, 2 * 8 + 1, 3 * 8]
    assert (metadata.query_starts, metadata.seq_lens) == ((0, 3, 4), (10, 17))
    assert metadata.block_tables.tolist() == [[4, 2, 0], [1, 0, 3]]
    assert metadata.device_lengths is None


def test_a_cpu_keeps_the_step_as_it_is() -> None:
    step = StepTensors.of(INPUTS, block_size=8)
    assert step.to(torch.device("cpu")) is step


def test_lengths_go_to_the_device_with_bounds_that_the_host_knows() -> None:
    moved = StepTensors.of(INPUTS, block_size=8).to(torch.device("meta"))
    lengths = moved.metadata.device_lengths
    assert lengths is not None
    assert (lengths.max_query_len, lengths.max_seq_len) == (3, 17)
    assert (lengths.query_starts.shape, lengths.seq_lens.shape) == ((3,), (2,))
    assert lengths.query_starts.dtype == lengths.seq_lens.dtype == torch.int32
    tensors = (moved.token_ids, moved.positions, moved.rows, moved.metadata.block_tables)
    assert all(each.is_meta for each in (*tensors, moved.metadata.slot_mapping))
    assert moved.metadata.seq_lens == (10, 17)
