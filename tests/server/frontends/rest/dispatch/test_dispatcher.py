"""Requests that wait for a batch end within their time, and delay no other request."""

import asyncio
import threading

import numpy as np

from server.batching.tasks import BatchTask
from server.frontends.rest.dispatch.dispatcher import Dispatcher
from server.frontends.rest.rest_config import RestConfig
from server.frontends.rest.transport.responses import Response
from server.servables.pending import Pending
from tests.server import contexts


def test_a_thread_serialises_each_large_response_whatever_the_last_one_was() -> None:
    dispatcher = Dispatcher((), RestConfig())
    serialising_threads: list[int] = []

    async def answer(size: int) -> None:
        task = BatchTask({}, 1, 0.0, contexts.make_context())

        def finish() -> Response:
            serialising_threads.append(threading.get_ident())
            return Response(200, b"")

        future = dispatcher._finish_later(Pending(task, finish), task.context)
        task.add_part(0, 1, {"y": np.zeros([1, size])})
        async with asyncio.timeout(10):
            await future

    async def answer_all() -> None:
        for size in (10_000, 10, 10_000, 10):
            await answer(size)

    asyncio.run(answer_all())
    is_in_loop = [thread == threading.get_ident() for thread in serialising_threads]
    assert is_in_loop == [False, True, False, True]
    dispatcher.close()
