"""The gRPC face as something to start and stop."""

import threading
import time
from concurrent import futures
from pathlib import Path

import grpc

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.config.settings import Settings
from server.config.tls import TlsConfig
from server.dataplane import DataPlane
from server.frontends.grpc import server_config
from server.frontends.grpc.auth_interceptor import ApiKeyInterceptor
from server.frontends.grpc.executor import call_executor
from server.frontends.grpc.observability import CallObserver
from server.frontends.grpc.services import health, profiler, reflection, serving_services
from server.metrics import Metrics
from server.process import ports
from server.request_log.access_log import AccessLog

# For what is seldom asked and may take long.
_ADMIN_THREADS = 8
# From the last request to the end of accepting.
_HOLD_SECONDS = 0.05


class GrpcServer:
    """Serves a data plane on a port, a UNIX socket or both.

    Attributes:
      address: of the port, "127.0.0.1:8500".
    """

    def __init__(
        self,
        dataplane: DataPlane,
        host: str,
        port: int,
        grace_seconds: float,
        settings: Settings | None = None,
        *,
        tls: TlsConfig | None = None,
        keys: ApiKeys | None = None,
        admission: AdmissionController | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """Takes what to serve, where and to whom.

        Args:
          port: 0 for none, where the settings have a socket.
          grace_seconds: how long requests in flight may take once `stop` is called.
          settings: None for the defaults.
          tls: None to serve in plain text.
          keys: None to serve everybody.
          limits: of predictions in flight; None where the data plane has them.
          metrics: where requests are counted, and a reload finds the counters it is asked for.
        """
        self.address = ports.format_address(host, port)
        self._grace_seconds = grace_seconds
        self._stopped: threading.Event | None = None
        self._tls = tls
        self._admission = admission
        self._addresses = [self.address] if port else []
        # The models of these are the data plane's matter.
        chosen = Settings(Path("/models")) if settings is None else settings
        if chosen.grpc_socket_path:
            self._addresses.append(f"unix:{chosen.grpc_socket_path}")
        self._threads = call_executor.make(chosen.grpc_max_threads)
        self._admin = futures.ThreadPoolExecutor(_ADMIN_THREADS, thread_name_prefix="grpc-admin")
        # One thread: they wait for nothing, and must not for what does.
        self._refusals = futures.ThreadPoolExecutor(1, thread_name_prefix="grpc-refusals")
        self._observer = CallObserver(metrics, AccessLog() if chosen.access_log else None)
        self._server = grpc.server(
            self._threads,
            interceptors=self._interceptors(keys, chosen),
            options=server_config.options(chosen.max_request_bytes, chosen.grpc_channel_arguments),
            # With limits a call counts from its arrival on; without them something must bound
            # the calls that wait for a thread.
            maximum_concurrent_rpcs=(chosen.max_requests_in_flight or None)
            if admission is None
            else None,
        )
        self._health: health.Health | None = None
        self._profiler: profiler.Profiler | None = None
        self._add_services(dataplane, chosen, admission, metrics)

    def start(self) -> None:
        """Begins to accept.

        Raises:
          RuntimeError: the port is taken.
        """
        server_config.listen(self._server, self._addresses, self._tls)
        self._threads.start(self._server)

    def drain(self) -> None:
        """Says to who asks for health that nothing is served any more; before `stop`, if at all."""
        if self._health is not None:
            self._health.drain()
        self._reflection.drain()

    def stop(self) -> None:
        """Stops accepting, and lets the requests in flight finish meanwhile."""
        self.drain()
        told = threading.Event()
        if self._admission is not None and self._admission.is_draining:
            # A call that arrives in the moment that gRPC stops is ended as cancelled, which no
            # client takes for a reason to ask another server. Who is refused at once may send
            # the next one just then; so the last are refused when their clients know of the end.
            self._refusals.submit(told.wait)
            time.sleep(_HOLD_SECONDS)
        try:
            self._stopped = self._server.stop(self._grace_seconds)
        finally:
            told.set()

    def join(self) -> None:
        """Waits until the last request is answered, after `stop`."""
        if self._stopped is not None:
            self._stopped.wait()
        if self._profiler is not None:
            self._profiler.close()
        self._threads.shutdown()
        self._reflection.close()
        for each in (self._admin, self._refusals):
            each.shutdown(wait=False)

    def _add_services(
        self,
        dataplane: DataPlane,
        settings: Settings,
        admission: AdmissionController | None,
        metrics: Metrics | None,
    ) -> None:
        own, admin = self._threads, self._admin
        names = [serving_services.PREDICTION_SERVICE, serving_services.MODEL_SERVICE]
        handlers: list[grpc.GenericRpcHandler] = [
            serving_services.PredictionService(
                dataplane,
                own,
                self._refusals,
                self._observer,
                admission,
                as_content=settings.enable_serialization_as_tensor_content,
                max_tensor_bytes=settings.max_request_bytes,
            ),
            serving_services.ModelService(dataplane, own, admin, self._observer, metrics),
        ]
        if settings.enable_profiler:
            self._profiler = profiler.Profiler(own, admin)
            handlers.append(self._profiler)
            names.append(profiler.SERVICE_NAME)
        if settings.enable_grpc_healthcheck_service:
            self._health = health.Health(own, admin, self._observer)
            handlers.append(self._health.handler())
            names.append(health.SERVICE_NAME)
        self._reflection = reflection.Reflection(names, own)
        handlers += self._reflection.handlers()
        self._server.add_generic_rpc_handlers(tuple(handlers))

    def _interceptors(
        self, keys: ApiKeys | None, settings: Settings
    ) -> list[grpc.ServerInterceptor]:
        if keys is None:
            return []
        return [
            ApiKeyInterceptor(
                keys, self._refusals, self._observer, open_health=settings.open_health
            )
        ]
