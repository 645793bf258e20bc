"""Requests that wait for a document share its build, and builds leave time to predictions."""

import asyncio
import threading
import time
from functools import partial

from server.frontends.rest.transport.shared_builds import SharedBuilds


def test_requests_at_the_same_time_share_a_build() -> None:
    builds: list[str] = []

    async def run() -> list[int]:
        shared: SharedBuilds[int] = SharedBuilds()

        def build(key: str) -> int:
            builds.append(key)
            return len(builds)

        keys = 100 * ["a"] + 100 * ["b"]
        return await asyncio.gather(*(shared.get(key, partial(build, key)) for key in keys))

    assert asyncio.run(run()) == 100 * [1] + 100 * [2]
    assert builds == ["a", "b"]


def test_request_during_a_build_gets_the_next_document() -> None:
    has_begun, may_end = threading.Event(), threading.Event()
    documents = iter(["old", "new"])

    def build() -> str:
        document = next(documents)
        has_begun.set()
        assert may_end.wait(60)
        return document

    async def run() -> tuple[str, str]:
        shared: SharedBuilds[str] = SharedBuilds()
        first = asyncio.create_task(shared.get("", build))
        assert await asyncio.to_thread(has_begun.wait, 60)
        second = asyncio.create_task(shared.get("", build))
        await asyncio.sleep(0)
        may_end.set()
        return await first, await second

    assert asyncio.run(run()) == ("old", "new")


def test_builds_pause_for_nine_times_their_duration() -> None:
    starts: list[float] = []

    def build() -> None:
        starts.append(time.monotonic())
        time.sleep(0.02)

    async def run() -> None:
        shared: SharedBuilds[None] = SharedBuilds()
        for _ in range(3):
            await shared.get("", build)

    asyncio.run(run())
    assert starts[1] - starts[0] >= 0.2
    assert starts[2] - starts[1] >= 0.2


def test_client_that_leaves_ends_no_build_of_others() -> None:
    async def run() -> str:
        shared: SharedBuilds[str] = SharedBuilds()
        leaves = asyncio.create_task(shared.get("", lambda: "document"))
        stays = asyncio.create_task(shared.get("", lambda: "document"))
        await asyncio.sleep(0)
        leaves.cancel()
        return await stays

    assert asyncio.run(run()) == "document"


def test_error_of_a_build_reaches_all_and_the_next_build_begins() -> None:
    def fail() -> str:
        raise ValueError("no document")

    async def run() -> str:
        shared: SharedBuilds[str] = SharedBuilds()
        errors = await asyncio.gather(
            *(shared.get("", fail) for _ in range(3)), return_exceptions=True
        )
        assert list(map(str, errors)) == 3 * ["no document"]
        return await shared.get("", lambda: "document")

    assert asyncio.run(run()) == "document"
