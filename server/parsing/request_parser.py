"""Parses JSON request bodies, in this process or in a parse process."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from server.admission import nonblocking
from server.codec import json_parser, requests
from server.codec.json_parser import Json
from server.codec.open_inference.infer_request import InferRequest, decode_infer_request
from server.parsing.memory_estimate import estimate_memory_bytes, worst_memory_bytes
from server.parsing.parsed_request import LocalRequest, ParsedRequest
from server.parsing.process_pool import ParseProcessPool
from server.parsing.remote_request import RemoteRequest
from server.request import RequestContext
from tpuserve.errors import MemoryBudgetExceeded, RequestTooLarge

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
        remote = RemoteRequest(self._processes.acquire(context), self._processes, context)
        try:
            remote.parse(body)
        except BaseException:
            remote.close()
            raise
        return remote

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
        remote = RemoteRequest(self._processes.acquire(context), self._processes, context)
        try:
            return remote.decode_infer_request(body)
        except BaseException:
            remote.close()
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
