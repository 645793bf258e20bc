"""Creates, starts and stops the frontends of one process, gRPC and REST, together."""

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.admission.memory_budget import MemoryBudget
from server.config import monitoring, tls
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends import base
from server.frontends.base import Frontend
from server.metrics import Metrics
from server.process import memory_limit
from server.process.heap_trimmer import HeapTrimmer
from server.request import CLOCK
from server.scheduling.request_queues import RequestQueues
from server.telemetry.factory import start_tracing


class FrontendGroup:
    """The gRPC and the REST frontend of a process, as far as the settings enable them.

    The group also owns the objects that the frontends share, such as the admission control, which
    limits the number of requests in flight.

    Args:
      on_failure: called with the reason, from any thread, if a frontend ends although `stop`
        was not called.
    """

    def __init__(
        self,
        settings: Settings,
        dataplane: DataPlane,
        metrics: Metrics,
        on_failure: Callable[[str], None],
    ) -> None:
        self._settings = settings
        # The end of the grace period, in seconds of time.monotonic. `drain` sets it.
        self._deadline = 0.0
        self._frontends: list[Frontend] = []
        self._admission = AdmissionController(settings.max_requests_in_flight, settings.peer_limit)
        metrics.watch_in_flight(lambda: self._admission.in_flight)
        metrics.watch_memory(memory_limit.resident_bytes)
        self._heap_trimmer = HeapTrimmer()
        self._rest_socket: socket.socket | None = None
        self._grpc_socket: socket.socket | None = None
        files = read_files(settings)
        residency = dataplane.residency
        queues = RequestQueues(dataplane.run_limits, metrics, loads=residency)
        if residency is not None:
            residency.attach(queues)
        metrics.limit_unknown_models(lambda model: dataplane.run_limits(model) is not None)
        metrics.watch_model_requests(queues.count_in_flight)
        self._context = base.FrontendContext(
            settings=settings,
            dataplane=dataplane,
            metrics=metrics,
            admission=self._admission,
            memory_budget=MemoryBudget(
                # By default, let requests take half of the memory, and leave the other half to
                # TensorFlow and the models.
                settings.max_request_memory_bytes or memory_limit.usable_memory_bytes() // 2,
                self._heap_trimmer.note_large_request,
            ),
            queues=queues,
            keys=files.keys,
            tls=files.tls,
            metrics_path=files.metrics_path,
            tracing=start_tracing(settings.otlp_endpoint),
            on_failure=on_failure,
        )

    def reserve_ports(self, on_error: ExitStack, *, are_shared: bool = False) -> None:
        """Bind the ports, so that no other process takes them before the frontends start.

        Args:
          on_error: an ExitStack that the caller closes if the server fails to start. The bound
            sockets are then closed too.
          are_shared: whether other processes of this server listen on the same ports, so that the
            kernel distributes connections among them.
        """
        settings = self._settings
        self._rest_socket = base.reserve_port(
            on_error,
            settings.host,
            settings.rest_api_port,
            "--rest_api_port",
            is_shared=are_shared,
        )
        self._grpc_socket = base.reserve_port(
            on_error, settings.host, settings.port, "--port", is_shared=are_shared
        )

    def start_rest(self) -> None:
        """Accept REST connections on the port that `reserve_ports` has bound.

        Until `mark_ready` is called, the frontend answers health checks and refuses requests that
        run a model.
        """
        if self._rest_socket is not None:
            base.import_rest_modules()
            self._frontends.append(base.start_rest(self._context, self._rest_socket))

    def start_grpc(self) -> None:
        """Accept gRPC connections on the port that `reserve_ports` has bound."""
        if self._grpc_socket is not None or self._settings.grpc_socket_path:
            frontend = base.start_grpc(self._context, self._grpc_socket)
            self._frontends.append(frontend)
            if self._admission.is_ready:
                frontend.report_health(True)

    def report_startup(self, describe: Callable[[], str]) -> None:
        """Report in readiness checks that the server is starting, until `mark_ready` is called.

        The checks fail during this time, and the responses say what the server is doing.

        Args:
          describe: returns what the server is doing at the time of a check, such as "importing
            TensorFlow".
        """
        self._admission.begin_startup(describe)
        for frontend in self._frontends:
            frontend.report_health(False)

    def mark_ready(self) -> None:
        """Answer requests from now on, and report in readiness checks that the server is ready."""
        CLOCK.start()
        self._context.queues.start()
        self._heap_trimmer.start()
        self._admission.mark_ready()
        for frontend in self._frontends:
            frontend.report_health(True)

    def close_now(self) -> None:
        """Close the frontends at once, because the server has failed to start.

        There is no need to wait for requests: the server has refused all requests that run a model.
        """
        while self._frontends:
            frontend = self._frontends.pop()
            frontend.stop()
            base.join_with_deadline(frontend, time.monotonic())

    def drain(self) -> None:
        """Report in readiness checks that the server is stopping, and refuse new requests.

        Connections stay open, so that requests in flight can be answered. The grace period for
        these requests begins.
        """
        self._deadline = time.monotonic() + self._settings.shutdown_grace_seconds
        self._admission.drain()
        for frontend in self._frontends:
            frontend.drain()

    def wait_until_idle(self) -> bool:
        """After `drain`, wait for the requests in flight, but not longer than the grace period."""
        return self._admission.wait_until_idle(max(0.0, self._deadline - time.monotonic()))

    def stop(self) -> bool:
        """Wait for the requests in flight, and then close the frontends.

        The caller must have called `drain`, so that no new requests are accepted during the wait.

        Returns:
          Whether every request was answered within the grace period.
        """
        is_idle = self.wait_until_idle()
        for frontend in self._frontends:
            frontend.stop()
        is_idle = is_idle and all(
            [base.join_with_deadline(frontend, self._deadline) for frontend in self._frontends]
        )
        self._context.queues.close()
        self._heap_trimmer.close()
        if self._context.tracing is not None:
            self._context.tracing.close()
        return is_idle


class FrontendFiles(NamedTuple):
    """The contents of the config files that concern the frontends.

    Attributes:
      keys: the accepted API keys; None to accept requests without a key.
      tls: the certificate and the keys of TLS; None for plain connections.
      metrics_path: a second URL path at which the REST frontend serves the metrics, besides
        /metrics; None for none.
    """

    keys: ApiKeys | None
    tls: tls.TlsConfig | None
    metrics_path: str | None


def read_files(settings: Settings) -> FrontendFiles:
    """Read and check the config files that concern the frontends."""
    keys, ssl = settings.api_keys_file, settings.ssl_config_file
    metrics = settings.monitoring_config_file
    return FrontendFiles(
        ApiKeys(Path(keys)) if keys else None,
        _read_tls(ssl) if ssl else None,
        monitoring.read_metrics_path(Path(metrics)) if metrics else None,
    )


def _read_tls(path: str) -> tls.TlsConfig:
    from server.frontends.rest.transport import server as rest_tls

    config = tls.read_tls_config(Path(path))
    # Validate the TLS keys here, before a model is loaded: gRPC would refuse an invalid key later,
    # and would not report the reason.
    rest_tls.create_ssl_context(config)
    return config
