"""Builds documents, such as the OpenAPI document, once for all requests that wait for them."""

import asyncio
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

# The pause after a build is 9 times as long as the build and the delivery of its document, but at
# most `_MAX_PAUSE_SECONDS`.
_PAUSE_RATIO = 9
_MAX_PAUSE_SECONDS = 1.0
# After this number of requests has been answered with a document, the event loop handles other
# events before it answers the next of these requests.
_DELIVERED_AT_ONCE = 8

Document = TypeVar("Document")


class SharedBuilds(Generic[Document]):
    """Builds documents in a thread, one after the other, with pauses.

    The documents are, for example, the metrics and the status for the console. Admission control
    does not limit the requests for them.
    """

    def __init__(self) -> None:
        # Key of a document → futures of the calls that get the result of the document's next build.
        # Calls that get the result of a running build are not included.
        self._waiting: dict[Hashable, list[asyncio.Future[Document]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = asyncio.Lock()
        self._pause_end = 0.0

    async def get(self, key: Hashable, build: Callable[[], Document]) -> Document:
        """Wait for the next build of a document, and return the document.

        All calls that wait for the same build to begin share its result.

        Args:
          build: Builds the document. It is called in a thread, and its exceptions are raised here.
        """
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = []
            task = asyncio.create_task(self._run(key, build))
            # Store a reference to the task, because the event loop has only a weak reference.
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
                if not future.done():  # A future is done already if its client has disconnected.
                    if error is None:
                        future.set_result(document)
                    else:
                        future.set_exception(error)
                if position % _DELIVERED_AT_ONCE == 0:
                    await asyncio.sleep(0)
            end = time.monotonic()
            self._pause_end = end + min(_PAUSE_RATIO * (end - start), _MAX_PAUSE_SECONDS)
