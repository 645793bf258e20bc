"""Messages and arrays arrive as they were sent, and shared memory is given back."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TypeAlias

import ml_dtypes
import numpy as np
import pytest

from server.remote.channel import Channel, Message
from server.servables.servable import Array
from tests.server.remote import in_process_connection

KIND, NUMBER = 1, 7
LARGE = (64, 1024)

Connect: TypeAlias = Callable[..., tuple[Channel, Channel]]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Yield a function that returns the two ends of a new connection."""
    with ExitStack() as stack:

        def create(**options: int) -> tuple[Channel, Channel]:
            channels = in_process_connection.create_channels(**options)
            for channel in channels:
                stack.callback(channel.close)
            return channels

        yield create


def deliver(sender: Channel, receiver: Channel, *values: object) -> Message:
    """Send a message, and return it as the receiver gets it."""
    sender.send(KIND, NUMBER, *values)
    messages: list[Message] = []
    while not messages:
        sender.flush()
        messages = receiver.receive()
    (message,) = messages
    return message


def send_array(sender: Channel, receiver: Channel, array: Array) -> Array:
    packed = deliver(sender, receiver, sender.pack({"x": array}))[3]
    return receiver.unpack(packed)["x"]


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3), LARGE], ids=str)
@pytest.mark.parametrize(
    "dtype",
    [np.float32, np.float64, np.int8, np.uint64, np.bool_, np.complex64, ml_dtypes.bfloat16],
    ids=lambda dtype: np.dtype(dtype).name,
)
def test_numbers_arrive_as_they_were_sent(
    connect: Connect, shape: tuple[int, ...], dtype: type
) -> None:
    array: Array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    received = send_array(*connect(), array)
    assert received.dtype == array.dtype
    assert received.shape == shape
    assert received.tobytes() == array.tobytes()


def test_array_that_is_not_contiguous_arrives(connect: Connect) -> None:
    array = np.arange(200_000, dtype=np.float32).reshape(400, 500).T
    np.testing.assert_array_equal(send_array(*connect(), array), array)


def test_strings_arrive_as_they_were_sent(connect: Connect) -> None:
    array = np.array([[b"", b"\0\xff"], [b"x" * 100_000, b"text"]], object)
    received = send_array(*connect(), array)
    assert received.tolist() == array.tolist()
    assert received.shape == (2, 2)


def test_large_array_is_not_part_of_the_message(connect: Connect) -> None:
    sender, receiver = connect()
    _, _, content = sender.pack({"x": np.zeros(LARGE, np.float32)})["x"]
    assert isinstance(content, int)
    assert isinstance(receiver.pack({"x": np.zeros(3, np.float32)})["x"][2], bytes)


def test_memory_is_given_back_with_the_last_reference(connect: Connect) -> None:
    sender, receiver = connect()
    array = send_array(sender, receiver, np.ones(LARGE, np.float32))
    row = array[3]
    del array
    deliver(receiver, sender)
    assert sender.shared_bytes > 0
    assert row.tolist() == [1] * LARGE[1]
    del row
    deliver(receiver, sender)
    assert sender.shared_bytes == 0


def test_array_without_room_in_shared_memory_arrives_in_the_message(connect: Connect) -> None:
    sender, receiver = connect(arena_bytes=1 << 16)
    array = np.arange(100_000, dtype=np.float32)
    np.testing.assert_array_equal(send_array(sender, receiver, array), array)
    assert sender.shared_bytes == 0


def test_received_array_cannot_be_written_to(connect: Connect) -> None:
    array = send_array(*connect(), np.ones(LARGE, np.float32))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 2


def test_messages_sent_together_arrive_in_their_order(connect: Connect) -> None:
    sender, receiver = connect()
    for number in range(3):
        sender.send_later(KIND, number)
    assert receiver.receive() == []
    assert sender.flush()
    assert [message[1] for message in receiver.receive()] == [0, 1, 2]


def test_message_larger_than_the_buffers_arrives(connect: Connect) -> None:
    body = bytes(range(256)) * (40 << 10)
    assert deliver(*connect(), body)[3] == body


def test_end_of_the_other_process_is_an_error(connect: Connect) -> None:
    sender, receiver = connect()
    sender.close()
    with pytest.raises(ConnectionResetError):
        receiver.receive()
