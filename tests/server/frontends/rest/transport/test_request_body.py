"""Request bodies stay within the bound of one body and the memory budget of all requests."""

import asyncio
import gzip
from typing import Any

import pytest

from server.admission.memory_budget import MemoryBudget
from server.frontends.rest.transport.request_body import RequestBodyReader, gunzip, join_chunks
from server.parsing.request_parser import MAX_LOCAL_BYTES
from tpuserve.errors import Cancelled, MemoryBudgetExceeded, RequestTooLarge


class Client:
    """Returns one chunk of the body for each ASGI receive call. None stands for a disconnect."""

    def __init__(self, *chunks: bytes | None) -> None:
        self._chunks = list(chunks)

    async def __call__(self) -> dict[str, Any]:
        chunk = self._chunks.pop(0)
        await asyncio.sleep(0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": bool(self._chunks)}


def read_body(
    client: Client,
    declared_bytes: int | None = None,
    *,
    max_bytes: int = 6,
    budget: MemoryBudget | None = None,
) -> bytes:
    reader = RequestBodyReader(max_bytes)
    with (budget or MemoryBudget(1000)).reserve() as reservation:
        chunks = asyncio.run(reader.read(client, declared_bytes, reservation))
        return join_chunks(chunks, reservation)


def test_chunks_are_joined() -> None:
    assert read_body(Client(b"ab", b"cd", b"ef"), 6) == b"abcdef"


def test_small_chunks_are_not_kept_apart() -> None:
    reader = RequestBodyReader(10_000)
    client = Client(*[b"ab"] * 4096)
    chunks = asyncio.run(reader.read(client, None, MemoryBudget(10_000).reserve()))
    assert [len(chunk) for chunk in chunks] == [4096, 4096]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (gzip.compress(b"abcdef", mtime=0), b"abcdef"),
        (gzip.compress(b"abc", mtime=0)[:-1], b""),
        (b"abc", b""),
        (b"", b""),
        (gzip.compress(bytes(MAX_LOCAL_BYTES), mtime=0), bytes(MAX_LOCAL_BYTES)),
        (gzip.compress(bytes(MAX_LOCAL_BYTES + 1), mtime=0), None),
    ],
)
def test_only_small_bodies_are_decompressed_at_once(body: bytes, expected: bytes | None) -> None:
    assert RequestBodyReader(1 << 20).gunzip_small([body]) == expected


@pytest.mark.parametrize("declared", [None, 7])
def test_body_beyond_the_bound_is_refused(declared: int | None) -> None:
    with pytest.raises(RequestTooLarge, match="more than 6 bytes"):
        read_body(Client(b"abcd", b"efg"), declared)
    with pytest.raises(RequestTooLarge):
        read_body(Client(b"abcdefg"), declared)


def test_request_of_a_client_that_disconnects_is_cancelled() -> None:
    with pytest.raises(Cancelled):
        read_body(Client(b"abcd", None))


@pytest.mark.parametrize("chunks", [(b"efg",), (b"ef", b"g")])
def test_bodies_in_flight_stay_within_the_memory_budget(chunks: tuple[bytes, ...]) -> None:
    budget = MemoryBudget(6)
    with budget.reserve(4):
        with pytest.raises(MemoryBudgetExceeded, match="Send the request again later"):
            read_body(Client(*chunks), budget=budget)
        assert budget.reserved_bytes == 4
    assert read_body(Client(*chunks), budget=budget) == b"efg"
    assert budget.reserved_bytes == 0


def test_decompressed_bytes_count_against_the_memory_budget() -> None:
    budget = MemoryBudget(5 << 20)
    small = gzip.compress(bytes(1 << 21), mtime=0)
    first, second = budget.reserve(), budget.reserve()
    # Two chunks of a megabyte each, and as much again for the joined body.
    assert len(gunzip(small, 1 << 22, first.grow)) == 1 << 21
    assert budget.reserved_bytes == 4 << 20
    with pytest.raises(MemoryBudgetExceeded):
        gunzip(small, 1 << 22, second.grow)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (gzip.compress(b"abcdef", mtime=0), b"abcdef"),
        (gzip.compress(b"", mtime=0), b""),
        (gzip.compress(b"abcdefg", mtime=0), b""),
        (gzip.compress(b"abc", mtime=0)[:-1], b""),
        (b"abc", b""),
        (b"", b""),
    ],
)
def test_gzip_is_decompressed_up_to_its_bound(body: bytes, expected: bytes) -> None:
    assert gunzip(body, 6) == expected
