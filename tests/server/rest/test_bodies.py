"""Bodies are held within bounds: each, and all together."""

import asyncio
import gzip
from typing import Any

import pytest

from server.rest.bodies import Bodies, inflate
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


def test_pieces_are_joined() -> None:
    assert asyncio.run(Bodies(6).read(Client(b"ab", b"cd", b"ef"), 6)) == b"abcdef"


@pytest.mark.parametrize("declared", [None, 7])
def test_more_than_one_may_have_is_refused(declared: int | None) -> None:
    with pytest.raises(RequestTooLarge, match="more than 6 bytes"):
        asyncio.run(Bodies(6).read(Client(b"abcd", b"efg"), declared))
    with pytest.raises(RequestTooLarge):
        asyncio.run(Bodies(6).read(Client(b"abcdefg"), declared))


def test_client_that_goes_away_is_cancelled() -> None:
    with pytest.raises(Cancelled):
        asyncio.run(Bodies(6).read(Client(b"abcd", None), None))


def test_all_together_are_bounded_and_make_room_when_they_are_read() -> None:
    bodies = Bodies(4, 5)

    async def both() -> list[bytes | BaseException]:
        clients = [Client(b"ab", b"cd"), Client(b"ab", b"cd")]
        return await asyncio.gather(
            *(bodies.read(each, None) for each in clients), return_exceptions=True
        )

    for _ in range(2):
        first, second = asyncio.run(both())
        assert isinstance(first, TooManyRequests)
        assert second == b"abcd"


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
    assert inflate(body, 6) == expected
