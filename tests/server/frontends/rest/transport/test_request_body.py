"""Request bodies stay within the bound of one body and the bound of all bodies."""

import asyncio
import gzip
from typing import Any

import pytest

from server.frontends.rest.transport.request_body import RequestBodyReader, gunzip
from tpuserve.errors import Cancelled, RequestTooLarge, TooManyRequests


class Client:
    """Sends one chunk for each call. None stands for a disconnect."""

    def __init__(self, *chunks: bytes | None) -> None:
        self._chunks = list(chunks)

    async def __call__(self) -> dict[str, Any]:
        chunk = self._chunks.pop(0)
        await asyncio.sleep(0)
        if chunk is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": chunk, "more_body": bool(self._chunks)}


def read_body(
    bodies: RequestBodyReader, client: Client, declared_bytes: int | None = None
) -> bytes:
    reservation = bodies.reserve()
    try:
        return asyncio.run(bodies.read(client, declared_bytes, reservation))
    finally:
        reservation.release()


def assert_free(bodies: RequestBodyReader, free_bytes: int) -> None:
    """Check that exactly so many bytes can be reserved."""
    bodies.acquire(free_bytes)
    with pytest.raises(TooManyRequests):
        bodies.acquire(1)
    bodies.release(free_bytes)


def test_chunks_are_joined() -> None:
    assert read_body(RequestBodyReader(6), Client(b"ab", b"cd", b"ef"), 6) == b"abcdef"


@pytest.mark.parametrize("declared", [None, 7])
def test_body_beyond_the_bound_is_refused(declared: int | None) -> None:
    with pytest.raises(RequestTooLarge, match="more than 6 bytes"):
        read_body(RequestBodyReader(6), Client(b"abcd", b"efg"), declared)
    with pytest.raises(RequestTooLarge):
        read_body(RequestBodyReader(6), Client(b"abcdefg"), declared)


def test_request_of_a_client_that_disconnects_is_cancelled() -> None:
    bodies = RequestBodyReader(6, 6)
    with pytest.raises(Cancelled):
        read_body(bodies, Client(b"abcd", None))
    assert_free(bodies, 6)


def test_all_bodies_together_are_bounded_until_they_are_answered() -> None:
    bodies = RequestBodyReader(4, 5)
    first = bodies.reserve()
    assert asyncio.run(bodies.read(Client(b"ab", b"cd"), None, first)) == b"abcd"
    for client in (Client(b"ef"), Client(b"e", b"f")):
        with pytest.raises(TooManyRequests, match="Send the request again later"):
            read_body(bodies, client)
    assert_free(bodies, 1)
    first.release()
    assert read_body(bodies, Client(b"ef")) == b"ef"
    assert_free(bodies, 5)


def test_decompressed_bytes_count_against_the_bound_of_all_bodies() -> None:
    bodies = RequestBodyReader(1 << 22, 5 << 20)
    small = gzip.compress(bytes(1 << 21), mtime=0)
    first, second = bodies.reserve(), bodies.reserve()
    # Two chunks of a megabyte, and once more both while they are joined.
    assert len(bodies.gunzip(small, first)) == 1 << 21
    assert_free(bodies, 1 << 20)
    with pytest.raises(TooManyRequests):
        bodies.gunzip(small, second)
    first.release()
    second.release()
    assert_free(bodies, 5 << 20)


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
