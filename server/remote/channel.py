"""The connection between a frontend process and the engine process, for messages and arrays.

A message is a tuple of numbers, strings, bytes, lists, dicts and None, in the format of Python's
module marshal. This is the fastest format, and loading it creates only objects of these types. Both
ends run the same version of Python, as the format requires. Large arrays are not part of a message:
they are written to shared memory, and the message has their offsets.
"""

import marshal
import math
import os
import socket
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from server.remote.arena import Arena, map_memory
from server.servables.servable import Array
from server.tensors.dtypes import BY_DTYPE, BY_NUMBER

Message: TypeAlias = tuple[Any, ...]
"""The kind of the message, the number of the call, freed blocks of shared memory, and values."""

PackedArray: TypeAlias = tuple[int, tuple[int, ...], Any]
"""The number of the dtype, the shape and the content of an array.

The content is a list of strings, the bytes of a small array, or the offset of the bytes in the
shared memory of the sender.
"""

ARENA_BYTES = 256 << 20
"""The size of the shared memory in each direction. Only pages that were used take memory."""

_LENGTH = struct.Struct("=Q")
# Arrays with fewer bytes than this are copied into the message itself, which takes less time than
# managing blocks of shared memory.
_MIN_SHARED_BYTES = 16 << 10
_RECEIVE_BYTES = 256 << 10
_HANDSHAKE_SECONDS = 60


class Channel:
    """One end of the connection between a frontend process and the engine process.

    All methods except `receive` are thread-safe, and no method blocks.

    A large received array uses shared memory of the sender. When this process has no reference to
    the array any more, its next message to the sender says that the memory is free.
    """

    def __init__(self, connection: socket.socket, arena_bytes: int = ARENA_BYTES) -> None:
        """Create a channel, and exchange shared memory with the other end.

        The constructor waits until the other end does the same.

        Args:
          connection: a connected UNIX stream socket, which the channel closes.
          arena_bytes: the size of the shared memory for the arrays that this end sends.

        Raises:
          OSError: the other process has ended.
        """
        self._socket = connection
        self._arena = Arena(arena_bytes)
        try:
            connection.settimeout(_HANDSHAKE_SECONDS)
            socket.send_fds(connection, [b"\0"], [self._arena.descriptor])
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
            if not descriptors:
                raise ConnectionResetError("the other process has closed the connection")
            try:
                self._peer_memory = map_memory(descriptors[0])
            finally:
                os.close(descriptors[0])
            connection.setblocking(False)
        except BaseException:
            connection.close()
            raise
        finally:
            self._arena.close()
        self._freed: deque[int] = deque()
        self._send_lock = threading.Lock()
        self._unsent: deque[memoryview] = deque()
        self._on_blocked: Callable[[], None] = lambda: None
        self._buffer = bytearray(_RECEIVE_BYTES)
        self._received = bytearray()

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self._socket.fileno()

    def on_blocked(self, callback: Callable[[], None]) -> None:
        """Set the function to call when the socket's buffer is full, so that `flush` is needed."""
        self._on_blocked = callback

    def send(self, kind: int, number: int, *values: Any) -> None:
        """Send a message.

        If the socket's buffer is full, the rest of the message is queued until `flush` is called.

        Messages that are already queued, for example by `send_later`, are sent first.

        Args:
          kind: the kind of the message, a constant of `server.remote.protocol`.
          number: the number of the call to which the message belongs.
          values: the contents of the message: numbers, strings, bytes, and containers of them.

        Raises:
          OSError: the connection is closed.
        """
        data = self._encode(kind, number, values)
        with self._send_lock:
            if not self._unsent:
                data = data[self._send_now(data) :]
                if not data:
                    return
            self._unsent.append(data)
        self._on_blocked()

    def send_later(self, kind: int, number: int, *values: Any) -> None:
        """Queue a message until `flush` is called, which sends all queued messages together.

        The arguments are those of `send`.
        """
        data = self._encode(kind, number, values)
        with self._send_lock:
            self._unsent.append(data)

    def flush(self) -> bool:
        """Send queued messages until the socket's buffer is full; return whether all were sent.

        Raises:
          OSError: the connection is closed.
        """
        with self._send_lock:
            if len(self._unsent) > 1:
                joined = memoryview(b"".join(self._unsent))
                self._unsent.clear()
                self._unsent.append(joined)
            while self._unsent:
                data = self._unsent[0]
                sent = self._send_now(data)
                if sent < len(data):
                    self._unsent[0] = data[sent:]
                    return False
                self._unsent.popleft()
        return True

    def receive(self) -> list[Message]:
        """Return the messages that have arrived, without waiting for more.

        Raises:
          OSError: the connection is closed.
        """
        try:
            size = self._socket.recv_into(self._buffer)
        except (BlockingIOError, InterruptedError):
            return []
        if not size:
            raise ConnectionResetError("the other process has closed the connection")
        is_continued = bool(self._received)
        if is_continued:
            self._received += memoryview(self._buffer)[:size]
        messages, position, end = [], 0, len(self._received) if is_continued else size
        data = memoryview(self._received if is_continued else self._buffer)
        while end - position >= _LENGTH.size:
            start = position + _LENGTH.size
            stop = start + _LENGTH.unpack_from(data, position)[0]
            if stop > end:
                break
            message = marshal.loads(data[start:stop])
            for offset in message[2]:
                self._arena.free(offset)
            messages.append(message)
            position = stop
        rest = b"" if is_continued else bytes(data[position:end])
        data.release()
        if is_continued:
            del self._received[:position]
        else:
            self._received += rest
        return messages

    def pack(self, arrays: Mapping[str, Array]) -> dict[str, PackedArray]:
        """Return arrays in a form that a message can hold.

        Large arrays are copied to the shared memory of this end, where they stay until the other
        end does not use them any more.

        Args:
          arrays: name → array of any shape, with a dtype of TensorFlow. Strings are object arrays
            of bytes.

        Returns:
          Name → packed array.
        """
        return {name: self._pack_array(array) for name, array in arrays.items()}

    def unpack(self, packed: Mapping[str, PackedArray]) -> dict[str, Array]:
        """Return the arrays of a received message, which `pack` has packed.

        Args:
          packed: name → packed array.

        Returns:
          Name → array, with the shape and the dtype of the packed array. It must not be written to.
        """
        return {name: self._unpack_array(*parts) for name, parts in packed.items()}

    @property
    def shared_bytes(self) -> int:
        """The number of bytes of this end's shared memory that the other end still uses."""
        return self._arena.allocated_bytes

    def close(self) -> None:
        """Close the connection to the other process."""
        self._socket.close()

    def _encode(self, kind: int, number: int, values: Message) -> memoryview:
        freed = []
        while self._freed:
            freed.append(self._freed.popleft())
        body = marshal.dumps((kind, number, freed, *values))
        return memoryview(_LENGTH.pack(len(body)) + body)

    def _send_now(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            return 0

    def _pack_array(self, array: Array) -> PackedArray:
        number = BY_DTYPE[array.dtype].number
        if array.dtype.hasobject:
            return number, array.shape, array.reshape(-1).tolist()
        if array.nbytes >= _MIN_SHARED_BYTES:
            offset = self._arena.allocate(array.nbytes)
            if offset is not None:
                shared = np.ndarray(array.shape, array.dtype, self._arena.memory, offset)
                np.copyto(shared, array)
                return number, array.shape, offset
        return number, array.shape, array.tobytes()

    def _unpack_array(self, number: int, shape: tuple[int, ...], content: Any) -> Array:
        dtype = BY_NUMBER[number].dtype
        if isinstance(content, bytes):
            return np.frombuffer(content, dtype).reshape(shape)
        if isinstance(content, list):
            strings = np.empty(len(content), object)
            strings[:] = content
            return strings.reshape(shape)
        size = math.prod(shape) * dtype.itemsize
        owner: Array = np.ndarray((size,), np.uint8, self._peer_memory, content)
        # `owner` is an array over a block of shared memory. The received array and all its views
        # keep `owner` alive. When `owner` is freed, record that the other process may reuse the
        # block.
        weakref.finalize(owner, self._freed.append, content).atexit = False
        array: Array = owner.view(dtype).reshape(shape)
        return array
