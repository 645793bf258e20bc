"""One request, from its beginning to what came of it."""

import time
from types import TracebackType

from server.dataplane.targets import Target
from server.limits import Limits
from server.manager import Manager
from server.metrics import Metrics
from server.servable import Servable
from tpuserve.errors import Code, TpuserveError


class Recorded:
    """A block that answers one request, with the version that it is addressed to.

    The request is in flight, and the version in use, until the block ends; how it ends and how
    long it took is counted.
    """

    # A class, since a generator's context manager costs three times as much a request; and one
    # for all of it, since each block costs as much as the rest of what is done here.
    __slots__ = ("_api", "_entrypoint", "_limits", "_metrics", "_started", "_target", "_use")

    def __init__(
        self,
        metrics: Metrics,
        limits: Limits | None,
        manager: Manager,
        target: Target,
        api: str,
        entrypoint: str,
    ) -> None:
        """Takes where to count it; api is "Predict", "Classify" or "Regress".

        Args:
          limits: what it is held against; None where a face does so.
        """
        self._metrics = metrics
        self._limits = limits
        self._use = manager.use(target.model, target.version, target.label)
        self._target = target
        self._api = api if entrypoint == "GRPC" else api.lower()
        self._entrypoint = entrypoint

    def __enter__(self) -> Servable:
        self._started = time.perf_counter_ns()
        limits = self._limits
        try:
            if limits is None:
                return self._use.__enter__()
            limits.enter()
            try:
                return self._use.__enter__()
            except BaseException:
                limits.leave()
                raise
        except BaseException as error:
            self._count(_status(error))
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._use.__exit__(kind, error, trace)
        if self._limits is not None:
            self._limits.leave()
        self._count("OK" if error is None else _status(error))

    def _count(self, status: str) -> None:
        latency_us = (time.perf_counter_ns() - self._started) // 1000
        self._metrics.request_done(
            self._target.model, self._api, self._entrypoint, status, latency_us
        )


def _status(error: BaseException) -> str:
    return error.code.name if isinstance(error, TpuserveError) else Code.INTERNAL.name
