"""One request, from its beginning to what came of it."""

import time
from types import TracebackType

from server.metrics import Metrics
from tpuserve.errors import Code, TpuserveError


class Recorded:
    """A block that answers one request; how it ends and how long it took is counted."""

    # A class, since a generator's context manager costs three times as much a request.
    __slots__ = ("_api", "_entrypoint", "_metrics", "_model", "_started")

    def __init__(self, metrics: Metrics, model: str, api: str, entrypoint: str) -> None:
        """Takes where to count it; api is "Predict", "Classify" or "Regress"."""
        self._metrics = metrics
        self._model = model
        self._api = api if entrypoint == "GRPC" else api.lower()
        self._entrypoint = entrypoint

    def __enter__(self) -> None:
        self._started = time.perf_counter_ns()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        latency_us = (time.perf_counter_ns() - self._started) // 1000
        self._metrics.request_done(
            self._model, self._api, self._entrypoint, _status(error), latency_us
        )


def _status(error: BaseException | None) -> str:
    if error is None:
        return "OK"
    return error.code.name if isinstance(error, TpuserveError) else Code.INTERNAL.name
