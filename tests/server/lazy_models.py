"""A manager of lazily loaded fake models, with the queues in which their requests wait."""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from server.models.manager import Manager
from server.models.residency import Residency
from server.request import RequestContext
from server.scheduling.request_queues import RequestQueues
from server.scheduling.run_limits import RunLimits
from server.scheduling.ticket import RunPool, Ticket
from server.servables.servable import Servable, State
from tests.server.fakes import FakeModel
from tpuserve.errors import TpuserveError

SECONDS = 20


class Request(Ticket):
    """A request that only records whether it runs or was refused."""

    def __init__(self, model: str, pool: RunPool) -> None:
        super().__init__(RequestContext(model=model), pool)
        self.is_started = threading.Event()
        self.is_over = threading.Event()
        self.error: TpuserveError | None = None

    def start(self) -> None:
        self.is_started.set()
        self.is_over.set()

    def refuse(self, error: TpuserveError) -> None:
        self.error = error
        self.is_over.set()


class LazyModels:
    """Version 1 of models of 4 bytes each, which requests load.

    Attributes:
      loads: the names of the models in the order of their loads, failed ones included.
      failures: model name → the error of its loads.
      gates: model name → an event for which its loads wait; none for most models.
      sizes: model name → bytes, of the models that have not 4.
    """

    def __init__(
        self, names: Collection[str], limit_bytes: int, sizes: Mapping[str, int], **options: Any
    ) -> None:
        self.loads: list[str] = []
        self.failures: dict[str, TpuserveError] = {}
        self.gates: dict[str, threading.Event] = {}
        self.sizes = sizes
        self.residency = Residency(limit_bytes, estimate=self._estimate, **options)
        self.queues = RequestQueues(lambda name: RunLimits(), loads=self.residency)
        self.residency.attach(self.queues)
        self.manager = Manager(self._load, residency=self.residency)
        self.pool = RunPool(8)
        self.residency.configure(names)
        for name in names:
            self.list_versions(name, 1)
        self.wait(lambda: all(map(self.manager.is_converged, names)))

    def list_versions(self, name: str, *versions: int) -> None:
        directories = {version: Path(f"/models/{name}/{version}") for version in versions}
        self.manager.set_aspired_versions(name, directories)

    def send(self, name: str) -> Request:
        """Send a request, which runs until `finish`, or waits."""
        request = Request(name, self.pool)
        if self.queues.submit(request):
            request.start()
        return request

    def begin(self, name: str) -> Request:
        """Send a request, and wait until it runs."""
        request = self.send(name)
        assert request.is_over.wait(SECONDS)
        assert request.error is None
        return request

    def finish(self, request: Request) -> None:
        """End a request that runs, and start the one that its thread runs next."""
        following = self.queues.finish(request)
        if following is not None:
            following.start()

    def use(self, name: str) -> None:
        """Send a request, and wait until it has run."""
        self.finish(self.begin(name))

    def error_of(self, name: str) -> str:
        """Send a request, and return the text of its error."""
        request = self.send(name)
        assert request.is_over.wait(SECONDS)
        assert request.error is not None
        return str(request.error)

    def states(self) -> Mapping[str, State]:
        return {name: self.manager.status(name)[0].state for name in self.manager.names()}

    def loaded(self) -> set[str]:
        return {name for name, state in self.states().items() if state is State.AVAILABLE}

    def wait(self, is_done: Callable[[], bool]) -> None:
        assert self.manager.wait(is_done, SECONDS)

    def _estimate(self, servable: Servable) -> int:
        return self.sizes.get(servable.name, 4)

    def _load(self, directory: Path) -> FakeModel:
        name = directory.parent.name
        self.loads.append(name)
        if name in self.gates:
            assert self.gates[name].wait(SECONDS)
        if name in self.failures:
            raise self.failures[name]
        return FakeModel()


@contextmanager
def lazy_models(
    names: Collection[str],
    limit_bytes: int = 0,
    sizes: Mapping[str, int] = MappingProxyType({}),
    **options: Any,
) -> Iterator[LazyModels]:
    """Yield listed and checked models of which none is loaded."""
    models = LazyModels(names, limit_bytes, sizes, **options)
    try:
        yield models
    finally:
        for gate in models.gates.values():
            gate.set()
        models.manager.close(SECONDS)
