"""The gRPC server, with its thread pools and its services."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.admission.memory_budget import MemoryBudget
from server.config.settings import Settings
from server.config.tls import TlsConfig
from server.dataplane import DataPlane
from server.frontends.grpc.executor.factory import create_call_executor
from server.frontends.grpc.observability import CallObserver
from server.frontends.grpc.services import call_handler
from server.frontends.grpc.services.call_handler import CallEnvironment
from server.frontends.grpc.services.health import HealthService
from server.frontends.grpc.services.registry import SERVICE_TYPES
from server.frontends.grpc.services.service import GrpcService, ServiceContext, counted_methods
from server.metrics import Metrics
from server.process import ports
from server.process.thread_pool import ThreadPool
from server.request_log.access_log import AccessLog
from server.scheduling.request_queues import RequestQueues
from tpuserve.errors import Unauthenticated

if TYPE_CHECKING:
    from server.telemetry.tracing import Tracing

_MAX_MESSAGE_BYTES = 2**31 - 1
# A connection can have this number of HTTP/2 streams beyond the largest number of requests in
# flight from one client.
_EXTRA_STREAMS = 100
_CHANNEL_ARGUMENTS: dict[str, int | str] = {
    # Allow messages up to the largest size that protobuf allows, as TensorFlow Serving does.
    "grpc.max_receive_message_length": _MAX_MESSAGE_BYTES,
    "grpc.max_send_message_length": _MAX_MESSAGE_BYTES,
    # Turn gRPC's decompression off. The server decompresses messages itself, and bounds the
    # decompressed bytes of all calls together.
    "grpc.per_message_decompression": 0,
    # Disable SO_REUSEPORT. Otherwise a second server on the same port would start without an error,
    # and take a share of the clients.
    "grpc.so_reuseport": 0,
    # Send keepalive pings, which detect clients that have disappeared, so that gRPC cancels their
    # calls.
    "grpc.keepalive_time_ms": 60_000,
    "grpc.keepalive_timeout_ms": 20_000,
    # Close a TCP connection if its handshake, for example of TLS, takes longer than 20 seconds.
    "grpc.server_handshake_timeout_ms": 20_000,
}


def channel_arguments(
    max_request_bytes: int | None = None,
    max_requests_per_peer: int = 0,
    user_arguments: Iterable[tuple[str, int | str]] = (),
    max_connections: int = 0,
) -> list[tuple[str, int | str]]:
    """Return the channel arguments of a server.

    Args:
      max_request_bytes: the largest size of a request message in bytes; None for the largest size
        that protobuf allows.
      max_requests_per_peer: the largest number of requests in flight from one client address; 0 for
        no limit.
      max_connections: the largest number of connections to an address; 0 for no limit.
    """
    arguments = dict(_CHANNEL_ARGUMENTS)
    if max_request_bytes is not None:
        arguments["grpc.max_receive_message_length"] = min(max_request_bytes, _MAX_MESSAGE_BYTES)
    if max_requests_per_peer:
        arguments["grpc.max_concurrent_streams"] = max_requests_per_peer + _EXTRA_STREAMS
    if max_connections:
        arguments["grpc.max_allowed_incoming_connections"] = max_connections
    arguments.update(user_arguments)
    return list(arguments.items())


def server_credentials(tls: TlsConfig) -> grpc.ServerCredentials:
    """Create the credentials of a server that uses TLS."""
    return grpc.ssl_server_credentials(
        [(tls.server_key, tls.server_cert)],
        root_certificates=tls.custom_ca or None,
        require_client_auth=tls.client_verify,
    )


def add_listening_addresses(
    server: grpc.Server, addresses: Iterable[str], tls: TlsConfig | None
) -> None:
    """Bind a server to addresses.

    Args:
      addresses: the addresses to listen on, such as "127.0.0.1:8500" or "unix:/tmp/socket".
      tls: the certificate of the server; None for plain connections.
    """
    for address in addresses:
        if tls is None:
            server.add_insecure_port(address)
        else:
            server.add_secure_port(address, server_credentials(tls))


class ApiKeyInterceptor(grpc.ServerInterceptor):
    """Rejects calls without a valid API key, before their messages are read.

    Args:
      open_services: the full names of the services that need no key, such as
        "grpc.health.v1.Health".
    """

    def __init__(
        self,
        keys: ApiKeys,
        rejection_pool: ThreadPool,
        observer: CallObserver,
        *,
        open_services: Iterable[str] = (),
    ) -> None:
        self._keys = keys
        self._rejection_pool = rejection_pool
        self._observer = observer
        self._open_prefixes = tuple(f"/{name}/" for name in open_services)

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: Any
    ) -> grpc.RpcMethodHandler | None:
        """Return the handler of a call; if the key is not valid, a handler that rejects the call.

        Args:
          continuation: returns the handler of the called method, or None for an unknown method.
          handler_call_details: the grpc.HandlerCallDetails of the call.
        """
        method = handler_call_details.method
        if not method.startswith(self._open_prefixes):
            try:
                self._keys.authenticate(_authorization(handler_call_details.invocation_metadata))
            except Unauthenticated as error:
                return call_handler.build_rejecting_handler(
                    method, error, self._observer, self._rejection_pool
                )
        return continuation(handler_call_details)


def _authorization(metadata: Any) -> str | None:
    for key, value in metadata or ():
        if key == "authorization":
            return str(value)
    return None


# The number of threads for tasks that are rare and can take long: reloads of the configuration,
# loads and unloads of models, recordings of profiles, and messages to the clients that watch the
# health status of the server.
_ADMIN_THREADS = 8
# How many seconds `stop` waits before it stops the grpc.Server.
_HOLD_SECONDS = 0.05


class GrpcServer:
    """Answers gRPC calls on a port, on a UNIX socket, or on both.

    Attributes:
      address: the host and port to listen on, such as "127.0.0.1:8500".

    Args:
      port: the port to listen on; 0 to listen on the settings' UNIX socket only.
      grace_seconds: the time that calls in flight get after `stop`. Calls that take longer are
        cancelled.
      tls: the certificate of the server; None for plain connections.
      keys: the accepted API keys; None to accept calls without a key.
      admission: limits the number of requests in flight, and refuses requests while the server
        drains; None for no admission control.
      memory_budget: bounds the memory of all requests together; None for no bound.
      queues: the queue of each model, in which calls wait until they may run; None for queues
        that no other frontend shares.
      allow_direct_polling: whether the server may use grpcio's private API to answer calls in the
        threads that poll gRPC's completion queue, which is faster.
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
        memory_budget: MemoryBudget | None = None,
        metrics: Metrics | None = None,
        queues: RequestQueues | None = None,
        tracing: "Tracing | None" = None,
        service_types: Sequence[type[GrpcService]] = SERVICE_TYPES,
        allow_direct_polling: bool = True,
    ) -> None:
        self.address = ports.format_address(host, port)
        self._grace_seconds = grace_seconds
        self._stopped: threading.Event | None = None
        self._tls = tls
        self._admission = admission
        self._addresses = [self.address] if port else []
        # If no settings are given, use the defaults. `Settings` requires the path of a model, which
        # has no effect here: the data plane has loaded the models already.
        settings = Settings(Path("/models")) if settings is None else settings
        if settings.grpc_socket_path:
            self._addresses.append(f"unix:{settings.grpc_socket_path}")
        budget = MemoryBudget(sys.maxsize) if memory_budget is None else memory_budget
        self._executor = create_call_executor(
            settings.grpc_max_threads,
            queues,
            settings.default_request_timeout_ms or None,
            # Limit the memory of incomplete messages separately: the memory budget counts a message
            # only when it has arrived completely.
            max_pending_bytes=budget.max_bytes // 2,
            allow_direct_polling=allow_direct_polling,
        )
        self._admin_pool = ThreadPool(_ADMIN_THREADS, "grpc-admin")
        # Reject calls in a separate thread, so that a client gets its error while all other threads
        # are busy. One thread suffices, because a rejection never blocks.
        self._rejection_pool = ThreadPool(1, "grpc-rejections")
        enabled = [service for service in service_types if service.is_enabled(settings)]
        self._observer = CallObserver(
            counted_methods(enabled),
            metrics,
            AccessLog() if settings.access_log else None,
            tracing,
        )
        self._server = grpc.server(
            self._executor,
            interceptors=self._interceptors(keys, settings),
            options=channel_arguments(
                settings.max_request_bytes,
                settings.peer_limit,
                settings.grpc_channel_arguments,
                settings.max_connections,
            ),
            # Let grpcio limit the calls in flight only if no admission controller limits them.
            maximum_concurrent_rpcs=None if admission else settings.max_requests_in_flight or None,
        )
        context = ServiceContext(
            dataplane=dataplane,
            settings=settings,
            environment=CallEnvironment(
                executor=self._executor,
                observer=self._observer,
                memory_budget=budget,
                max_message_bytes=settings.max_request_bytes,
            ),
            admin_pool=self._admin_pool,
            rejection_pool=self._rejection_pool,
            admission=admission,
            metrics=metrics,
            service_types=enabled,
        )
        self._services = [service_type(context) for service_type in enabled]
        for service in self._services:
            self._server.add_generic_rpc_handlers(tuple(service.handlers()))

    def start(self) -> None:
        """Listen on the addresses and begin to accept calls."""
        add_listening_addresses(self._server, self._addresses, self._tls)
        self._executor.start(self._server)

    def report_health(self, is_serving: bool) -> None:
        """Set whether health checks report that the server answers requests."""
        for service in self._services:
            service.report_health(is_serving)

    def drain(self) -> None:
        """Report in health checks that the server is about to stop, and end open streams.

        Health checks (the method Watch) and server reflection use such streams.
        """
        for service in self._services:
            service.drain()

    def stop(self) -> None:
        """Stop accepting calls, and return without waiting for the calls in flight.

        Calls that have arrived are still answered within the grace period.
        """
        self.drain()
        is_stopping = threading.Event()
        if self._admission is not None and self._admission.is_draining:
            # Hold the errors for rejected calls back until gRPC has told the clients that the
            # server stops.
            self._rejection_pool.run_soon(is_stopping.wait)
            time.sleep(_HOLD_SECONDS)
        try:
            self._stopped = self._server.stop(self._grace_seconds)
        finally:
            is_stopping.set()

    def join(self) -> None:
        """After `stop`, wait until the last request is answered, and end the threads."""
        if self._stopped is not None:
            self._stopped.wait()
        self._executor.shutdown()
        for service in self._services:
            service.close()
        for pool in (self._admin_pool, self._rejection_pool):
            pool.shutdown(wait=False)

    def _interceptors(
        self, keys: ApiKeys | None, settings: Settings
    ) -> list[grpc.ServerInterceptor]:
        if keys is None:
            return []
        open_services = HealthService.names if settings.open_health else ()
        return [
            ApiKeyInterceptor(
                keys, self._rejection_pool, self._observer, open_services=open_services
            )
        ]
