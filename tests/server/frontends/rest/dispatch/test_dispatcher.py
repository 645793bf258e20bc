"""The time limit of a request counts from when its body is complete."""

import asyncio
import time

from server.batching.tasks import BatchTask
from server.frontends.rest.dispatch.dispatcher import Dispatcher
from server.frontends.rest.rest_config import RestConfig
from server.frontends.rest.transport.responses import Response
from server.servables.pending import Pending


def test_the_time_before_the_wait_for_a_batch_counts_against_the_limit() -> None:
    dispatcher = Dispatcher((), RestConfig(timeout_ms=50_000, is_batched=True))
    # The batch of this task never runs.
    pending = Pending(BatchTask({}, 1, 0.0, None), lambda: Response(200, b""))

    async def wait() -> Response:
        future = dispatcher._finish_later(pending, None, "half", time.monotonic() - 60)
        return await asyncio.wait_for(future, 10)

    response = asyncio.run(wait())
    assert response.status == 504
    assert b"not answered within 50000 ms" in response.body
    dispatcher.close()
