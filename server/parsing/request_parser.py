"""Parses JSON request bodies, in this process or in a parse process."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from server.admission import nonblocking
from server.codec import json_parser, requests
from server.codec.infer_request import InferInput, InferRequest, decode_infer_request
from server.codec.json_parser import Json
from server.codec.requests import Arrays
from server.parsing import parse_process
from server.parsing.parse_process import Buffer, Header, ParseProcess
from server.parsing.parsed_request import LocalRequest, ParsedRequest, merge_context
from server.parsing.process_pool import ParseProcessPool
from server.request import RequestContext
from tpuserve.errors import MemoryBudgetExceeded, RequestTooLarge, TpuserveError, Unavailable
from tpuserve.saved_model.signature import Signature

# The memory that parsing takes, in bytes: a fixed part, a part for each byte of the body, because a
# body is copied a few times, and a part for each JSON token.
_FIXED_BYTES = 4 << 20
_BYTES_PER_BYTE = 14
_BYTES_PER_TOKEN = {",": 60, ":": 60, "[": 90, "{": 540, '"': 36}
_CHUNK_BYTES = 1 << 20


def worst_memory_bytes(size: int) -> int:
    """Return an upper bound of the memory, in bytes, for parsing any body of `size` bytes."""
    return _FIXED_BYTES + 250 * size


def estimate_memory_bytes(body: bytes) -> int:
    """Return an upper bound of the memory, in bytes, for parsing and decoding a body.

    The memory of the body itself is not included.
    """
    octets = np.frombuffer(body, np.uint8)
    total = _FIXED_BYTES + _BYTES_PER_BYTE * len(body)
    for start in range(0, len(body), _CHUNK_BYTES):
        chunk = octets[start : start + _CHUNK_BYTES]
        for token, num_bytes in _BYTES_PER_TOKEN.items():
            total += num_bytes * int(np.count_nonzero(chunk == ord(token)))
    return total


class ProcessRequest:
    """A `ParsedRequest` that a parse process parses. `close` returns the process to its pool.

    If the request is cancelled, as at its deadline, the process is killed, because a parser
    cannot be interrupted. A later request then starts a new process.
    """

    def __init__(
        self, process: ParseProcess, processes: ParseProcessPool, context: RequestContext
    ) -> None:
        self._process = process
        self._processes = processes
        self._context = context
        self._estimated_bytes = 0
        self.is_closed = False
        self.signature_name = ""
        self.is_row_format = False

    @property
    def pid(self) -> int:
        """The ID of the parse process."""
        return self._process.pid

    def parse(self, body: bytes) -> None:
        """Parse the JSON body of the request, and set the attributes of `ParsedRequest`."""
        self._reserve_for_parsing(body)
        answer, _ = self._call("parse", [body])
        self.signature_name = answer["signature_name"]
        self.is_row_format = answer["is_row_format"]

    def decode_inputs(self, signature: Signature) -> Arrays:
        """Decode the inputs of a predict request, as in `ParsedRequest.decode_inputs`."""
        dtypes = {alias: spec.dtype for alias, spec in signature.inputs.items()}
        answer, buffers = self._call("inputs", dtypes=dtypes)
        return self._receive_arrays(answer["arrays"], buffers)

    def decode_infer_request(self, body: bytes) -> InferRequest:
        """Parse and decode an infer request of the Open Inference Protocol, and close the request.

        Raises:
          TpuserveError: The body is invalid; the errors are those of
            `RequestParser.parse_infer_request`.
        """
        self._reserve_for_parsing(body)
        answer, buffers = self._call("infer", [body])
        request = InferRequest(**answer["request"])
        return request._replace(
            inputs=tuple(
                InferInput(name, datatype, tuple(shape), num_bytes)
                for name, datatype, shape, num_bytes in request.inputs
            ),
            arrays=self._receive_arrays(answer["arrays"], buffers),
        )

    def decode_examples(self) -> list[bytes]:
        """Decode the examples of a request, as in `ParsedRequest.decode_examples`."""
        _, (context, *buffers) = self._call("examples")
        separate = parse_process.unpack_strings(buffers)
        merged = merge_context(bytes(context), separate, self._context)
        self.close()
        return merged

    def close(self) -> None:
        """Free the parsed values in the process, and return the process to its pool."""
        if self.is_closed:
            return
        try:
            self._call("drop")
        except TpuserveError:
            return  # The parse process has ended, so `_call` has closed this request already.
        self._close(self._process)

    def _reserve_for_parsing(self, body: bytes) -> None:
        if self._context.memory is not None:
            # Reserve memory for the body too, because the parse process gets a copy of it.
            estimated_bytes = len(body) + estimate_memory_bytes(body)
            self._context.reserve(estimated_bytes)
            self._estimated_bytes = estimated_bytes

    def _receive_arrays(
        self, descriptions: Mapping[str, Header], buffers: list[bytearray]
    ) -> Arrays:
        arrays = {
            alias: parse_process.unpack_array(description, buffers)
            for alias, description in descriptions.items()
        }
        self._context.reserve(requests.count_bytes(arrays))
        self.close()
        return arrays

    def _call(
        self, operation: str, buffers: Sequence[Buffer] = (), **arguments: object
    ) -> tuple[Header, list[bytearray]]:
        process, cancellation = self._process, self._context.cancellation
        cancellation.add_callback(process.kill)
        try:
            return process.call(operation, buffers, **arguments)
        except (EOFError, OSError) as error:
            process.close()
            self._close(None)
            cancellation.raise_if_cancelled()
            raise Unavailable(
                "the process that parsed the request has ended. Send the request again."
            ) from error
        finally:
            cancellation.remove_callback(process.kill)

    def _close(self, process: ParseProcess | None) -> None:
        self.is_closed = True
        self._processes.release(process)
        if self._context.memory is not None:
            self._context.memory.shrink(self._estimated_bytes)
            self._estimated_bytes = 0


Decoded = TypeVar("Decoded")

# The largest size, in bytes, of a body that is parsed without waiting for other bodies and without
# a memory reservation, because parsing it takes less than a millisecond and little memory.
_MAX_TINY_BYTES = 4 << 10
MAX_LOCAL_BYTES = 128 << 10
"""The largest size, in bytes, of a body that is always parsed in this process. The parser may hold
Python's GIL for some milliseconds, in which no other request and no health check is answered."""
MAX_LOCAL_NUMERIC_BYTES = 4 << 20
"""The largest size, in bytes, of a body that is parsed in this process if it holds arrays of
numbers and little else. Such a body is parsed an order of magnitude faster than other JSON."""


class RequestParser:
    """Parses request bodies so that no body delays other requests for long.

    Small bodies, and larger bodies that consist mostly of arrays of numbers, are parsed in this
    process.

    Args:
      max_processes: The largest number of parse processes. None for half of the processors.
    """

    def __init__(self, max_processes: int | None = None) -> None:
        self._processes = ParseProcessPool(max_processes or max(1, (os.cpu_count() or 1) // 2))
        # The thread that parses a body in this process holds this lock, because a parser holds
        # Python's GIL: parsing several bodies at the same time would not be faster, but other
        # threads would wait longer for the GIL.
        self._local_lock = threading.Lock()

    def parse(
        self,
        body: bytes,
        context: RequestContext,
    ) -> ParsedRequest:
        """Parse a request body.

        Raises:
          WouldBlock: Another thread parses a body, and the calling thread must not wait.
        """
        if len(body) <= _MAX_TINY_BYTES:
            # Parse a tiny body without the lock and without a reservation: this holds Python's GIL
            # for less than a millisecond, and takes far less memory than the connection.
            return LocalRequest(json_parser.parse_json(body))
        if len(body) <= MAX_LOCAL_NUMERIC_BYTES:
            with self._local_turn():
                context.check()
                parsed = _parse_locally(body, context, LocalRequest)
                if parsed is not None:
                    request, estimated_bytes = parsed
                    request.hold_memory(context, estimated_bytes)
                    return request
        child = ProcessRequest(self._processes.acquire(context), self._processes, context)
        try:
            child.parse(body)
        except BaseException:
            child.close()
            raise
        return child

    def parse_infer_request(
        self,
        body: bytes,
        context: RequestContext,
    ) -> InferRequest:
        """Parse and decode the JSON of an infer request of the Open Inference Protocol.

        Raises:
          WouldBlock: Another thread parses a body, and the calling thread must not wait.
        """
        if len(body) <= _MAX_TINY_BYTES:
            return decode_infer_request(json_parser.parse_json(body))
        if len(body) <= MAX_LOCAL_NUMERIC_BYTES:
            with self._local_turn():
                context.check()
                parsed = _parse_locally(body, context, decode_infer_request)
                if parsed is not None:
                    request, estimated_bytes = parsed
                    _give_back(context, estimated_bytes)
                    context.reserve(requests.count_bytes(request.arrays))
                    return request
        child = ProcessRequest(self._processes.acquire(context), self._processes, context)
        try:
            return child.decode_infer_request(body)
        except BaseException:
            child.close()
            raise

    def close(self) -> None:
        """End the idle parse processes. A process in use ends after its request."""
        self._processes.close()

    @contextmanager
    def _local_turn(self) -> Iterator[None]:
        if not self._local_lock.acquire(blocking=nonblocking.blocking_allowed()):
            raise nonblocking.WouldBlock
        try:
            yield
        finally:
            self._local_lock.release()


def _parse_locally(
    body: bytes, context: RequestContext, decode: Callable[[Json], Decoded]
) -> tuple[Decoded, int] | None:
    """Parse and decode a body in this process, unless this could take too long."""
    estimated_bytes = _reserve_for_parsing(body, context)
    try:
        if len(body) <= MAX_LOCAL_BYTES:
            return decode(json_parser.parse_json(body)), estimated_bytes
        document = json_parser.parse_numeric_json(body, MAX_LOCAL_BYTES)
        if document is not None:
            return decode(document), estimated_bytes
    except BaseException:
        _give_back(context, estimated_bytes)
        raise
    _give_back(context, estimated_bytes)
    return None


def _reserve_for_parsing(body: bytes, context: RequestContext) -> int:
    """Reserve memory for the parsed values of a body, and return the number of bytes."""
    if context.memory is None:
        return 0
    num_bytes = worst_memory_bytes(len(body))
    try:
        context.memory.grow(num_bytes)
    except (MemoryBudgetExceeded, RequestTooLarge):
        # The upper bound for any body of this size exceeds the memory budget. Count the tokens of
        # the body, which takes longer, to get a tighter upper bound.
        num_bytes = estimate_memory_bytes(body)
        context.memory.grow(num_bytes)
    return num_bytes


def _give_back(context: RequestContext, num_bytes: int) -> None:
    if context.memory is not None:
        context.memory.shrink(num_bytes)
