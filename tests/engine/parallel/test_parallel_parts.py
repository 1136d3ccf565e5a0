"""The parts of parallelism that need no process: places, pieces, messages."""

import io
from array import array

import pytest

from pagefleet_engine.config import EngineConfig
from pagefleet_engine.errors import ConfigError
from pagefleet_engine.executor import StepInputs
from pagefleet_engine.parallel.messages import (
    Allocate,
    Failed,
    Measurement,
    Message,
    Step,
    Stop,
    encode,
    read_message,
)
from pagefleet_engine.parallel.pieces import head_share, packed_share, share, vocab_share
from pagefleet_engine.parallel.placement import Node, node_places, read_node

CONFIG = EngineConfig(model="/model", tensor_parallel_size=2, pipeline_parallel_size=2)
GROUP = {"NUM_NODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "leader", "MASTER_PORT": "1234"}


def test_without_variables_there_is_one_node() -> None:
    assert read_node(CONFIG, {}) == Node()


def test_the_variables_of_a_group_place_the_pod() -> None:
    node = read_node(CONFIG, GROUP)
    assert node == Node(rank=1, count=2, master_address="leader", master_port=1234)
    assert [place.rank for place in node_places(CONFIG, node)] == [2, 3]
    assert [place.local_rank for place in node_places(CONFIG, node)] == [0, 1]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"NUM_NODES": "3"}, "NUM_NODES"),
        ({"NUM_NODES": "0"}, "NUM_NODES"),
        ({"NODE_RANK": "2"}, "NODE_RANK"),
        ({"NODE_RANK": "one"}, "NODE_RANK"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR"),
        ({"MASTER_PORT": "x"}, "MASTER_PORT"),
    ],
)
def test_variables_that_cannot_work_are_named(changes: dict[str, str], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_node(CONFIG, GROUP | changes)
    assert caught.value.field == field


def test_the_leading_rank_samples_and_stages_follow_each_other() -> None:
    places = node_places(CONFIG, Node())
    assert places[0].is_last_stage
    assert [(place.stage, place.tensor_rank) for place in places] == [
        (1, 0),
        (1, 1),
        (0, 0),
        (0, 1),
    ]
    assert places[places[3].next_rank].previous_rank == 3


def test_shares_cover_a_dimension_once() -> None:
    assert [share(12, rank, 3) for rank in range(3)] == [(0, 4), (4, 8), (8, 12)]
    assert packed_share(8, 1, 2) == ((2, 4), (6, 8))
    with pytest.raises(ValueError, match="does not divide"):
        share(10, 0, 3)


def test_fewer_heads_than_ranks_are_held_by_neighbours() -> None:
    assert [head_share(16, 2, rank, 4) for rank in range(4)] == [(0, 8), (0, 8), (8, 16), (8, 16)]
    assert [head_share(16, 4, rank, 2) for rank in range(2)] == [(0, 8), (8, 16)]


def test_the_vocabulary_is_padded_to_equal_rows() -> None:
    assert [vocab_share(150, rank, 2) for rank in range(2)] == [((0, 96), 96), ((96, 150), 96)]
    assert vocab_share(65, 3, 4) == ((65, 65), 32), "the last rank has nothing but padding"


STEP = Step(
    StepInputs(
        token_ids=[5, 6, 7, 8],
        num_computed=[0, 9],
        num_tokens=[3, 1],
        block_tables=[array("q", [4]), array("q", [1, 2, 3])],
        rows=[3],
    )
)


@pytest.mark.parametrize(
    "message",
    [Stop(), Allocate(7), Failed("OutOfMemory", "no"), Measurement(1, 2, 3, 4, 5, 6), STEP],
)
def test_a_message_comes_out_as_it_went_in(message: Message) -> None:
    stream = io.BytesIO(encode(message) + encode(Stop()))
    assert read_message(stream) == message
    assert read_message(stream) == Stop()
    with pytest.raises(EOFError):
        read_message(stream)
