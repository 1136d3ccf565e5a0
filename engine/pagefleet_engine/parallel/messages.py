"""The typed messages between the leading rank and the others, and their form on a socket.

A frame is two lengths, a JSON object, and for a step its numbers as 64-bit integers. Nothing is
unpickled: a stranger on the network could otherwise run code here.
"""

import json
import struct
from array import array
from dataclasses import asdict, dataclass
from typing import Protocol

from pagefleet_engine.executor import StepInputs

_LENGTHS = struct.Struct("!II")


class ByteStream(Protocol):
    """A file, buffered or not."""

    def read(self, size: int, /) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Hello:
    """The first word of a rank to the leader."""

    rank: int


@dataclass(frozen=True, slots=True)
class Load:
    """Load your part; the leader alone fills in what was left to the engine."""

    limits: dict[str, object]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The part is in memory."""


@dataclass(frozen=True, slots=True)
class RunProfile:
    """Take part in the first forwards."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a rank holds beside its KV cache, in bytes."""

    stage: int
    device_memory_bytes: int
    weights_bytes: int
    rope_and_buffers_bytes: int
    workspace_bytes: int
    context_bytes: int


@dataclass(frozen=True, slots=True)
class Allocate:
    """Allocate the KV cache."""

    num_blocks: int


@dataclass(frozen=True, slots=True)
class Allocated:
    """Steps can come."""


@dataclass(frozen=True, slots=True)
class Step:
    """Compute one step."""

    inputs: StepInputs


@dataclass(frozen=True, slots=True)
class Stop:
    """End without an error."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A rank's last word."""

    reason: str
    message: str


Message = (
    Hello | Load | Loaded | RunProfile | Measurement | Allocate | Allocated | Step | Stop | Failed
)

_KINDS = {
    kind.__name__: kind
    for kind in (
        Hello,
        Load,
        Loaded,
        RunProfile,
        Measurement,
        Allocate,
        Allocated,
        Stop,
        Failed,
    )
}


def encode(message: Message) -> bytes:
    """The frame of a message."""
    if isinstance(message, Step):
        return _frame({"kind": "Step"}, _pack(message.inputs))
    return _frame({"kind": type(message).__name__, **asdict(message)}, b"")


def read_message(stream: ByteStream) -> Message:
    """The next message; EOFError where the other side has ended."""
    header_size, payload_size = _LENGTHS.unpack(_read(stream, _LENGTHS.size))
    fields = json.loads(_read(stream, header_size))
    payload = _read(stream, payload_size)
    kind = fields.pop("kind")
    if kind == "Step":
        return Step(_unpack(array("q", payload)))
    message: Message = _KINDS[kind](**fields)
    return message


def _frame(fields: dict[str, object], payload: bytes) -> bytes:
    header = json.dumps(fields).encode()
    return _LENGTHS.pack(len(header), len(payload)) + header + payload


def _read(stream: ByteStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = stream.read(size - len(data))
        if not chunk:
            raise EOFError("the connection has ended")
        data += chunk
    return data


def _pack(inputs: StepInputs) -> bytes:
    """Counts first, then every list in turn, then the block tables end to end."""
    lengths = [len(table) for table in inputs.block_tables]
    numbers = array("q", [len(lengths), len(inputs.token_ids), len(inputs.rows)])
    for part in (inputs.num_computed, inputs.num_tokens, lengths, inputs.token_ids, inputs.rows):
        numbers.extend(part)
    for table in inputs.block_tables:
        numbers.extend(table)
    return numbers.tobytes()


def _unpack(numbers: "array[int]") -> StepInputs:
    place = 3
    num_sequences, num_tokens, num_rows = numbers[:place]

    def take(count: int) -> "array[int]":
        nonlocal place
        place += count
        return numbers[place - count : place]

    num_computed, counts, lengths = (take(num_sequences) for _ in range(3))
    token_ids, rows = take(num_tokens), take(num_rows)
    return StepInputs(
        token_ids=token_ids.tolist(),
        num_computed=num_computed.tolist(),
        num_tokens=counts.tolist(),
        block_tables=[take(length) for length in lengths],
        rows=rows.tolist(),
    )
