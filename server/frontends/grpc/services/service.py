"""The base classes of gRPC services.

To add a service, write a subclass and add it to `registry.SERVICE_TYPES`. Health checks, server
reflection and the request metrics read the class attributes of the service.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import grpc

from server.admission.admission import AdmissionController
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.grpc.executor.call_admission import CallAdmission
from server.frontends.grpc.executor.call_executor import CallExecutor
from server.frontends.grpc.observability import CallObserver
from server.frontends.grpc.services import call_handler
from server.frontends.grpc.services.call_handler import CallEnvironment, UnaryMethod
from server.metrics import Metrics
from server.process.thread_pool import ThreadPool
from tpuserve.errors import Unavailable


@dataclass(frozen=True)
class ServiceContext:
    """The objects that all gRPC services of a server share.

    Attributes:
      admin_pool: the thread pool for calls that are rare and can take long, such as reloads.
      admission: limits the calls in flight; None for no limit.
      metrics: the registry of the server's metrics; None for no metrics.
    """

    dataplane: DataPlane
    settings: Settings
    environment: CallEnvironment
    admin_pool: ThreadPool
    rejection_pool: ThreadPool
    admission: AdmissionController | None
    metrics: Metrics | None
    service_types: Sequence[type["GrpcService"]]

    @property
    def executor(self) -> CallExecutor:
        """The thread pool that runs the handlers of calls."""
        return self.environment.executor

    @property
    def observer(self) -> CallObserver:
        """The object that records finished calls in metrics, traces and the access log."""
        return self.environment.observer


class GrpcService(ABC):
    """The base class of gRPC services.

    Attributes:
      names: the full names of the service, such as "tensorflow.serving.PredictionService". A
        service with several versions has several names.
      counted_apis: the names of the methods whose calls are counted in the request metrics, such as
        "Predict". The name becomes the value of the metrics' label "API".
      descriptor_module: the name of the generated protobuf module that server reflection imports to
        describe the service. None if reflection need not import a module, for example because the
        Python module of the service class imports it.
    """

    names: ClassVar[tuple[str, ...]]
    health_names: ClassVar[tuple[str, ...]] = ()
    counted_apis: ClassVar[tuple[str, ...]] = ()
    descriptor_module: ClassVar[str | None] = None

    @abstractmethod
    def __init__(self, context: ServiceContext) -> None:
        """Create the service."""

    @classmethod
    def is_enabled(cls, settings: Settings) -> bool:
        """Return whether a server with the given settings offers the service."""
        return True

    @abstractmethod
    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """Return the handlers of the service's methods, to be added to the gRPC server."""

    def report_health(self, is_serving: bool) -> None:  # noqa: B027
        """Set whether health checks report that the server answers requests."""

    def drain(self) -> None:  # noqa: B027
        """End the open streams of the service, because the server is about to stop."""

    def close(self) -> None:  # noqa: B027
        """Release the service's threads and connections. The gRPC server must have stopped."""


class UnaryService(GrpcService, grpc.GenericRpcHandler):
    """A service whose methods all have one request message and one response message.

    Attributes:
      is_admission_controlled: whether the admission controller limits the number of calls in
        flight.
    """

    is_admission_controlled: ClassVar[bool] = False

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._admission = context.admission if self.is_admission_controlled else None
        admission = CallAdmission(
            self._admission, context.environment.memory_budget, context.rejection_pool
        )
        self._handlers = {
            name: call_handler.build_unary_handler(
                name,
                method,
                context.environment,
                # If the service has no admission control, set no limits for its quick methods,
                # such as GetModelStatus: they must be answered even if other requests use the whole
                # memory budget.
                None if method.is_quick and self._admission is None else admission,
            )
            for name, method in self._methods_by_full_name().items()
        }

    @abstractmethod
    def methods(self) -> Mapping[str, UnaryMethod]:
        """Return the methods of the service by their names, such as "Predict"."""

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """Return the service itself, which is the handler of its methods."""
        return [self]

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of a call; while the server drains, a handler that rejects the call.

        Returns:
          The handler; None for a method of another service.
        """
        name: str = details.method
        handler = self._handlers.get(name)
        if handler is None or self._admission is None:
            return handler
        try:
            self._admission.raise_if_draining()
        except Unavailable as error:
            return call_handler.build_rejecting_handler(
                name, error, self._context.observer, self._context.rejection_pool
            )
        return handler

    def _methods_by_full_name(self) -> dict[str, UnaryMethod]:
        return {
            f"/{service}/{name}": method
            for service in self.names
            for name, method in self.methods().items()
        }


def counted_methods(service_types: Iterable[type[GrpcService]]) -> dict[str, str]:
    """Return the methods whose calls are counted in metrics.

    Returns:
      The full name of each method → the value of the label "API".
    """
    return {
        f"/{name}/{api}": api
        for service_type in service_types
        for name in service_type.names
        for api in service_type.counted_apis
    }
