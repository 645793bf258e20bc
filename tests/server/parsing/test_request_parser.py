"""A body is parsed alike in this process and in a parse process, within its memory and time."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from server.admission.cancellation import Cancellation
from server.admission.memory_budget import MemoryBudget
from server.admission.nonblocking import NonBlocking, WouldBlock
from server.parsing import request_parser
from server.parsing.parse_process import ParseProcess
from server.parsing.parsed_request import LocalRequest
from server.parsing.process_pool import ParseProcessPool
from server.parsing.request_parser import MAX_LOCAL_BYTES, ProcessRequest, RequestParser
from server.request import RequestContext
from tests.server import contexts
from tests.server.fakes import spec
from tpuserve.errors import (
    Cancelled,
    DeadlineExceeded,
    InvalidJson,
    MemoryBudgetExceeded,
    RequestTooLarge,
    TpuserveError,
    Unavailable,
)
from tpuserve.saved_model.signature import Signature

BLANKS = b" " * MAX_LOCAL_BYTES
STRINGS = b'"%s"' % (b"a" * MAX_LOCAL_BYTES)


@pytest.fixture
def parser() -> Iterator[RequestParser]:
    parser = RequestParser(1)
    yield parser
    parser.close()


def decode(parser: RequestParser, body: bytes, dtype: str = "float32") -> Any:
    try:
        request = parser.parse(body, RequestContext(memory=MemoryBudget(10**10).reserve()))
        with closing(request):
            arrays = request.decode_inputs(Signature({"x": spec(dtype)}, {}))
            assert request.is_closed
    except TpuserveError as error:
        return type(error), str(error)
    return request.signature_name, request.is_row_format, arrays["x"].dtype, arrays["x"].tolist()


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "string"])
@pytest.mark.parametrize(
    "document",
    [
        b'{"instances": [1, 2.5, %s 3]}',
        b'{"signature_name": "other", "inputs": {"x": [[1, 2], %s [3, 4]]}}',
        b'{"inputs": %s true}',
        b'{"instances": ["a", %s "\xff", {"b64": "AAE="}]}',
        b'{"instances": [[1], %s [2, 3]]}',
        b'{"instances": [NaN, %s Inf, 1e400]}',
        b'{"instances": [NaN, %s Inf]}',
        b'{"instances": [1, %s',
        b'{"signature_name": 5 %s}',
        b"[1, %s 2]",
        b'{"instances": [], "inputs": %s []}',
        b'{"inputs": %s {"y": 1}}',
    ],
)
def test_large_body_is_decoded_or_refused_as_a_small_body(
    document: bytes, dtype: str, parser: RequestParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = document % BLANKS
    remote = decode(parser, large, dtype)
    monkeypatch.setattr(request_parser, "MAX_LOCAL_BYTES", len(large))
    assert str(decode(parser, large, dtype)) == str(remote)


def test_large_examples_are_decoded_as_small_examples(parser: RequestParser) -> None:
    body = b'{"context": {"c": "d"}, "examples": [{"a": 1}, %s {"b": [0.5, 1.0]}, {}]}'
    small = parser.parse(body % b"", RequestContext()).decode_examples()
    assert len(small) == 3
    assert parser.parse(body % BLANKS, RequestContext()).decode_examples() == small


def test_large_arrays_of_numbers_need_no_other_process(parser: RequestParser) -> None:
    numbers = np.arange(100_000, dtype=np.float32)
    body = b'{"instances": %s}' % str(numbers.tolist()).encode()
    assert len(body) > MAX_LOCAL_BYTES
    request = parser.parse(body, RequestContext())
    assert isinstance(request, LocalRequest)
    inputs = request.decode_inputs(Signature({"x": spec("float32")}, {}))
    np.testing.assert_array_equal(inputs["x"], numbers)


@pytest.mark.parametrize("body", [b'{"inputs": [1, 2, %s 3]}' % BLANKS, b'{"inputs": 1%s}' % b" "])
def test_memory_of_parsing_is_given_back_but_for_the_tensors(
    body: bytes, parser: RequestParser
) -> None:
    budget = MemoryBudget(10**9)
    reservation = budget.reserve()
    request = parser.parse(body, RequestContext(memory=reservation))
    is_large = len(body) > MAX_LOCAL_BYTES
    assert (budget.reserved_bytes > len(body)) == is_large
    request.decode_inputs(Signature({"x": spec("float32")}, {}))
    assert budget.reserved_bytes == (12 if is_large else 0)


def test_body_beyond_the_memory_budget_is_not_parsed(parser: RequestParser) -> None:
    body = b'{"inputs": [%s1]}' % (b"{}," * 100_000)
    with pytest.raises(RequestTooLarge):
        parser.parse(body, RequestContext(memory=MemoryBudget(20 * len(body)).reserve()))
    budget = MemoryBudget(10**9)
    with budget.reserve(10**9 - 20 * len(body)) as others, pytest.raises(MemoryBudgetExceeded):
        parser.parse(body, RequestContext(memory=budget.reserve()))
    assert others.num_bytes == budget.reserved_bytes == 0


def test_context_that_all_examples_repeat_is_within_the_budget(parser: RequestParser) -> None:
    body = b'{"context": {"a": %s}, "examples": [%s{}]}' % (STRINGS, b"{}," * 100_000)
    request = parser.parse(body, RequestContext(memory=MemoryBudget(10**9).reserve()))
    with pytest.raises(RequestTooLarge):
        request.decode_examples()
    request.close()


def test_time_limit_ends_the_process(parser: RequestParser) -> None:
    body = b'{"inputs": [%s1]}' % (b"{}," * 1_000_000)
    context = contexts.make_context(20)
    with pytest.raises(DeadlineExceeded):
        parser.parse(body, context)
    assert decode(parser, b'{"inputs": 1 %s}' % BLANKS)[3] == 1.0


def test_cancelled_request_ends_the_process(parser: RequestParser) -> None:
    body = b'{"inputs": [%s1]}' % (b"{}," * 10_000_000)
    cancellation = Cancellation()
    canceller = threading.Timer(0.2, cancellation.cancel)
    canceller.start()
    with pytest.raises(Cancelled):
        parser.parse(body, RequestContext(cancellation=cancellation))
    canceller.join()
    assert decode(parser, b'{"inputs": 1 %s}' % BLANKS)[3] == 1.0


def test_process_that_ends_by_itself_is_replaced(parser: RequestParser) -> None:
    request = parser.parse(b'{"inputs": 1 %s}' % BLANKS, RequestContext())
    assert isinstance(request, ProcessRequest)
    os.kill(request.pid, signal.SIGKILL)
    with pytest.raises(Unavailable, match="Send the request again"):
        request.decode_inputs(Signature({"x": spec("float32")}, {}))
    assert decode(parser, b'{"inputs": 1 %s}' % BLANKS)[3] == 1.0


def test_invalid_body_leaves_the_process_to_the_next_request(parser: RequestParser) -> None:
    pids = set()
    for _ in range(3):
        with pytest.raises(InvalidJson):
            parser.parse(b"{%s" % BLANKS, RequestContext())
        request = parser.parse(b'{"inputs": 1 %s}' % BLANKS, RequestContext())
        assert isinstance(request, ProcessRequest)
        pids.add(request.pid)
        request.close()
    assert len(pids) == 1


def test_requests_wait_for_a_process_in_order() -> None:
    pool = ParseProcessPool(1)
    process = pool.acquire(RequestContext())
    late = contexts.make_context(10)
    with pytest.raises(DeadlineExceeded):
        pool.acquire(late)
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(Cancelled):
        pool.acquire(RequestContext(cancellation=cancellation))
    acquired: list[ParseProcess] = []
    waiting = threading.Thread(target=lambda: acquired.append(pool.acquire(RequestContext())))
    waiting.start()
    pool.release(process)
    waiting.join()
    assert acquired == [process]
    pool.close()
    pool.release(process)
    with pytest.raises(OSError, match="Bad file descriptor"):
        process.call("drop")


def test_owners_take_turns_to_get_a_process() -> None:
    pool, order = ParseProcessPool(1), list[str]()
    process = pool.acquire(RequestContext())

    def take(owner: str) -> None:
        taken = pool.acquire(RequestContext(peer=owner))
        order.append(owner)
        pool.release(taken)

    threads = []
    for number, owner in enumerate("aaab", start=1):
        threads.append(threading.Thread(target=take, args=(owner,)))
        threads[-1].start()
        while len(pool._waiting) < number:
            time.sleep(0.001)
    pool.release(process)
    for thread in threads:
        thread.join()
    assert order == list("abaa")
    pool.close()


@pytest.mark.parametrize("method", ["parse", "parse_infer_request"])
def test_the_event_loop_does_not_wait_while_a_thread_parses_a_body(
    parser: RequestParser, method: str
) -> None:
    body = b'{"instances": [%s1]}' % (b"1, " * 2000)
    with parser._local_turn(), NonBlocking(), pytest.raises(WouldBlock):
        getattr(parser, method)(body, RequestContext())
    with NonBlocking():
        parser.parse(body, RequestContext()).close()
