"""The server's side of a parse process: starts the process, and sends it request bodies."""

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from server.servables.servable import Array
from tpuserve import errors
from tpuserve.errors import Code, TpuserveError

Header: TypeAlias = dict[str, Any]
Buffer: TypeAlias = "bytes | bytearray | memoryview"
_LENGTH = struct.Struct("<I")
_SIZES = "sizes"


def send_message(connection: socket.socket, header: Header, buffers: Sequence[Buffer] = ()) -> None:
    """Send a message: a JSON header, followed by buffers of bytes.

    Args:
      buffers: The buffers of bytes that follow the header, such as the data of arrays.
    """
    text = json.dumps({**header, _SIZES: [len(buffer) for buffer in buffers]}).encode()
    connection.sendall(_LENGTH.pack(len(text)) + text)
    for buffer in buffers:
        connection.sendall(buffer)


def receive_message(connection: socket.socket) -> tuple[Header, list[bytearray]]:
    """Wait for a message, and return it."""
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    header = json.loads(_receive(connection, length))
    return header, [_receive(connection, size) for size in header.pop(_SIZES)]


def _receive(connection: socket.socket, size: int) -> bytearray:
    buffer = bytearray(size)
    rest = memoryview(buffer)
    while rest:
        num_received = connection.recv_into(rest)
        if not num_received:
            raise EOFError
        rest = rest[num_received:]
    return buffer


def pack_array(array: Array) -> tuple[Header, list[Buffer]]:
    """Convert an array to a form that a message can hold.

    Args:
      array: an array of any shape and dtype. Strings are an object array of bytes.

    Returns:
      The dtype and the shape of the array, for the header of the message, and the buffers with its
      elements in row-major order: one buffer, or two for strings.
    """
    header: Header = {"dtype": array.dtype.str, "shape": array.shape}
    if array.dtype == object:
        return header, pack_strings(array.reshape(-1).tolist())
    return header, [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data]


def unpack_array(header: Header, buffers: list[bytearray]) -> Array:
    """Return the array of a message that `pack_array` has packed."""
    dtype = np.dtype(header["dtype"])
    array: Array
    if dtype.hasobject:
        array = np.empty(header["shape"], object)
        array.reshape(-1)[:] = unpack_strings(buffers)
        return array
    array = np.frombuffer(buffers.pop(0), dtype).reshape(header["shape"])
    return array


def pack_strings(strings: Iterable[bytes]) -> list[Buffer]:
    """Return strings as two buffers of a message: the lengths and the bytes of all strings."""
    strings = list(strings)
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    return [lengths.view(np.uint8).data, b"".join(strings)]


def unpack_strings(buffers: list[bytearray]) -> list[bytes]:
    """Return the strings of a message that `pack_strings` has packed.

    Their two buffers are removed from the front of `buffers`.
    """
    lengths, text = np.frombuffer(buffers.pop(0), np.int64), bytes(buffers.pop(0))
    ends = np.cumsum(lengths)
    return [
        text[start:end] for start, end in zip((ends - lengths).tolist(), ends.tolist(), strict=True)
    ]


_PROGRAM = Path(__file__).with_name("child.py")


class ParseProcess:
    """A process that parses one request body at a time.

    Only one thread at a time may use the object.
    """

    def __init__(self) -> None:
        self._connection, childs_end = socket.socketpair()
        with childs_end:
            self._process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), str(childs_end.fileno())],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=subprocess.DEVNULL,
                pass_fds=[childs_end.fileno()],
            )

    @property
    def pid(self) -> int:
        """The ID of the process."""
        return self._process.pid

    def call(
        self,
        operation: str,
        buffers: Sequence[Buffer] = (),
        **arguments: object,
    ) -> tuple[Header, list[bytearray]]:
        """Let the process run an operation of `server.parsing.child`, such as parsing a body.

        If the method raises an error that is not a TpuserveError, the caller must close the
        process.
        """
        header = {"operation": operation, **arguments}
        send_message(self._connection, header, buffers)
        answer, results = receive_message(self._connection)
        if "error" in answer:
            raise _make_error(answer)
        return answer, results

    def kill(self) -> None:
        """Send SIGKILL to the process, and do not wait until the process has ended.

        If another thread is in `call`, that call raises EOFError.
        """
        self._process.kill()

    def close(self) -> None:
        """End the process, and wait until it has ended."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._process.kill()
        self._process.wait()


def _make_error(answer: Header) -> TpuserveError:
    # A local variable of the function that raises would keep the body until the next garbage
    # collection.
    error_type: type[TpuserveError] = getattr(errors, answer["error"])
    error = error_type(answer["message"])
    error.code = Code[answer["code"]]
    return error
