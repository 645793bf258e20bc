"""Bodies are held within bounds: each, and all together."""

import asyncio
import gzip
from typing import Any

import pytest

from server.frontends.rest.transport.request_body import RequestBodyReader, gunzip
from tpuserve.errors import Cancelled, RequestTooLarge, TooManyRequests


class Client:
    """Sends pieces, one whenever it is asked to."""

    def __init__(self, *pieces: bytes | None) -> None:
        self._pieces = list(pieces)

    async def __call__(self) -> dict[str, Any]:
        piece = self._pieces.pop(0)
        await asyncio.sleep(0)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}


def read(bodies: RequestBodyReader, client: Client, declared_bytes: int | None = None) -> bytes:
    with bodies.room() as room:
        return asyncio.run(bodies.read(client, declared_bytes, room))


def test_pieces_are_joined() -> None:
    assert read(RequestBodyReader(6), Client(b"ab", b"cd", b"ef"), 6) == b"abcdef"


@pytest.mark.parametrize("declared", [None, 7])
def test_more_than_one_may_have_is_refused(declared: int | None) -> None:
    with pytest.raises(RequestTooLarge, match="more than 6 bytes"):
        read(RequestBodyReader(6), Client(b"abcd", b"efg"), declared)
    with pytest.raises(RequestTooLarge):
        read(RequestBodyReader(6), Client(b"abcdefg"), declared)


def test_client_that_goes_away_is_cancelled() -> None:
    bodies = RequestBodyReader(6)
    with pytest.raises(Cancelled):
        read(bodies, Client(b"abcd", None))
    assert bodies.held_bytes == 0


def test_all_together_are_bounded_until_they_are_answered() -> None:
    bodies = RequestBodyReader(4, 5)
    with bodies.room() as first:
        assert asyncio.run(bodies.read(Client(b"ab", b"cd"), None, first)) == b"abcd"
        for client in (Client(b"ef"), Client(b"e", b"f")):
            with pytest.raises(TooManyRequests, match="Send the request again later"):
                read(bodies, client)
        assert bodies.held_bytes == 4
    assert read(bodies, Client(b"ef")) == b"ef"
    assert bodies.held_bytes == 0


def test_inflated_bytes_count_among_those_of_all_bodies() -> None:
    bodies = RequestBodyReader(1 << 22, 5 << 20)
    small = gzip.compress(bytes(1 << 21), mtime=0)
    with bodies.room() as first, bodies.room() as second:
        # Pieces of a megabyte, and once more all of them while they are joined.
        assert len(bodies.gunzip(small, first)) == 1 << 21
        assert bodies.held_bytes == 4 << 20
        with pytest.raises(TooManyRequests):
            bodies.gunzip(small, second)
    assert bodies.held_bytes == 0


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
def test_gzip_is_inflated_up_to_its_bound(body: bytes, expected: bytes) -> None:
    assert gunzip(body, 6) == expected
