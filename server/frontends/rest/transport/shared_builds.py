"""Builds documents in threads, once for all requests that wait for the same document."""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

# After a build, the pause until the next one, in relation to the time of the build and of the
# delivery: they take at most a tenth of a processor from the requests that run models, or half of
# it where many clients wait.
_PAUSE_RATIO = 9
_MAX_PAUSE_SECONDS = 1.0
# The number of requests that are answered at once. Other events of the loop come between.
_DELIVERED_AT_ONCE = 8

Document = TypeVar("Document")


class SharedBuilds(Generic[Document]):
    """Builds documents one after the other, with pauses.

    Admission control does not count the requests for these documents. Without a bound, many clients
    that poll them would take the processor from predictions.
    """

    def __init__(self) -> None:
        """Create a builder, which belongs to the event loop of its first call."""
        # Key → the requests that wait for a build which has not begun.
        self._waiting: dict[Hashable, list[asyncio.Future[Document]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self._pause_end = 0.0

    async def get(self, key: Hashable, build: Callable[[], Document]) -> Document:
        """Return a document whose build begins after this call.

        Args:
          key: Identifies the document.
          build: Builds the document, in a thread. Its errors are raised here.
        """
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = []
            task = asyncio.create_task(self._run(key, build))
            # The event loop holds tasks weakly.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        future: asyncio.Future[Document] = asyncio.get_running_loop().create_future()
        waiting.append(future)
        return await future

    async def _run(self, key: Hashable, build: Callable[[], Document]) -> None:
        async with self._lock:
            await asyncio.sleep(max(0.0, self._pause_end - time.monotonic()))
            waiting = self._waiting.pop(key)
            start = time.monotonic()
            error: Exception | None = None
            try:
                document = await asyncio.to_thread(build)
            except Exception as caught:
                error = caught
            for position, future in enumerate(waiting, 1):
                if not future.done():  # The client may have left.
                    if error is None:
                        future.set_result(document)
                    else:
                        future.set_exception(error)
                if position % _DELIVERED_AT_ONCE == 0:
                    await asyncio.sleep(0)
            end = time.monotonic()
            self._pause_end = end + min(_PAUSE_RATIO * (end - start), _MAX_PAUSE_SECONDS)
