"""Builds the ASGI application of the REST frontend from its parts."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from starlette.types import Message, Receive, Scope, Send

from server.admission.admission import AdmissionController
from server.admission.api_keys import ApiKeys
from server.admission.memory_budget import MemoryBudget
from server.config.settings import Settings
from server.dataplane import DataPlane
from server.frontends.open_inference_describer import Describer
from server.frontends.rest.asgi_app import METRICS, RootApp
from server.frontends.rest.console.app import ConsoleApp
from server.frontends.rest.dispatch.dispatcher import Dispatcher
from server.frontends.rest.dispatch.router import Router
from server.frontends.rest.openapi.lazy_app import LazyOpenApiApp
from server.frontends.rest.openapi.options import DocumentOptions
from server.frontends.rest.rest_config import RestConfig
from server.frontends.rest.sagemaker_router import PredictRouter, SageMakerRouter
from server.frontends.rest.transport.responses import (
    AnySyncResponse,
    Headers,
    Peer,
    Response,
    SyncHandler,
)
from server.frontends.rest.v1_router import V1Router
from server.frontends.rest.v2_router import V2Router
from server.metrics import Metrics
from server.parsing.request_parser import RequestParser
from server.request_log.access_log import AccessLog
from server.scheduling.request_queues import RequestQueues

if TYPE_CHECKING:
    from server.telemetry.tracing import Tracing

_PROTOCOL = "REST"
# A socket that accepts IPv6 and IPv4 puts this prefix before the addresses of IPv4 clients. The log
# omits it.
_IPV4_PREFIX = "::ffff:"


class AccessLogMiddleware:
    """Wraps the ASGI application of REST, and writes each request to the access log.

    A request is logged when its response is sent or its client has closed the connection.
    """

    def __init__(self, app: RootApp, log: AccessLog) -> None:
        self._app = app
        self._log = log

    def close(self) -> None:
        """Close the wrapped application."""
        self._app.close()

    def find_fast_path(self, url: bytes, headers: Headers) -> SyncHandler | None:
        """Return a function that answers a request in the event loop, and logs the request.

        Returns:
          The function. None if the application must answer the request through its ASGI interface.
        """
        handler = self._app.find_fast_path(url, headers)
        return None if handler is None else partial(self._handle_synchronously, handler, url)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the wrapped application, and log the request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status, received, sent = 0, 0, 0

        async def counting_receive() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def counting_send(message: Message) -> None:
            nonlocal status, sent
            status = message.get("status", status)
            sent += len(message.get("body", b""))
            await send(message)

        response: Response | None = None
        try:
            response = await self._app.handle(scope, counting_receive, counting_send)
        finally:
            query = scope["query_string"].decode("latin-1")
            path = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
            self._write(
                scope["method"], path, response, status, started, scope["client"], received, sent
            )

    def _handle_synchronously(
        self, handler: SyncHandler, url: bytes, headers: Headers, body: bytes, peer: Peer
    ) -> AnySyncResponse:
        started = time.perf_counter()
        response = handler(headers, body, peer)

        def write(response: Response) -> None:
            path, sent = url.decode("latin-1"), len(response.body)
            self._write("POST", path, response, response.status, started, peer, len(body), sent)

        if isinstance(response, asyncio.Future):
            response.add_done_callback(
                lambda future: None if future.cancelled() else write(future.result())
            )
        elif response is not None:
            write(response)
        return response

    def _write(
        self,
        method: str,
        path: str,
        response: Response | None,
        status: int,
        started: float,
        peer: Peer,
        received: int,
        sent: int,
    ) -> None:
        self._log.write(
            _PROTOCOL,
            method,
            path=path,
            model="" if response is None else response.model,
            version=None if response is None else response.version,
            signature="" if response is None else response.signature,
            status=status,
            duration_ms=(time.perf_counter() - started) * 1000,
            peer=peer[0].removeprefix(_IPV4_PREFIX) if peer else "",
            bytes_in=received,
            bytes_out=sent,
            trace=None if response is None else response.trace,
        )


def build_rest_app(
    dataplane: DataPlane,
    settings: Settings | None = None,
    *,
    metrics: Metrics | None = None,
    keys: ApiKeys | None = None,
    admission: AdmissionController | None = None,
    memory_budget: MemoryBudget | None = None,
    queues: RequestQueues | None = None,
    monitoring_path: str | None = None,
    extra_routers: Sequence[Router] = (),
    tracing: "Tracing | None" = None,
) -> RootApp | AccessLogMiddleware:
    """Build the ASGI application that answers all REST requests.

    Args:
      settings: The settings of the server. None means the defaults of `RestConfig`.
      metrics: The registry in which requests are counted, which is served at /metrics and at
        `monitoring_path`. None means no metrics.
      keys: The accepted API keys. None disables authentication.
      memory_budget: Bounds the memory of all requests together. None means no bound.
      queues: The queue of each model, in which requests wait until they may run. None means queues
        that no other frontend shares.
      monitoring_path: A second URL path at which the metrics are served, for example
        "/monitoring/prometheus/metrics". None means that there is none.
      extra_routers: The routers of further REST APIs, in addition to TensorFlow Serving's and the
        Open Inference Protocol.
      tracing: Records the requests as spans. None means no traces.
    """
    config = RestConfig.from_settings(settings)
    parser = RequestParser()
    allows_control = settings is not None and settings.enable_model_control
    describer = Describer(dataplane, allows_control=allows_control)
    v1 = V1Router(
        dataplane,
        parser,
        memory_budget,
        lists_names_only=settings is not None and settings.kserve_model_list,
    )
    routers: tuple[Router, ...] = (
        # Put the routers of cloud services first, because the first router whose prefix fits a path
        # answers. The path of a cloud service may begin with "/v1/", the prefix of another router.
        *_create_cloud_routers(settings, dataplane, v1),
        v1,
        V2Router(dataplane, parser, describer, memory_budget),
        *extra_routers,
    )
    metrics_paths = () if metrics is None else (METRICS, *filter(None, [monitoring_path]))
    root = RootApp(
        Dispatcher(
            routers,
            config,
            metrics,
            admission,
            memory_budget,
            queues,
            on_close=parser.close,
            tracing=tracing,
        ),
        dataplane,
        LazyOpenApiApp(
            dataplane,
            DocumentOptions(
                requires_keys=keys is not None,
                allows_control=allows_control,
                has_console=config.enable_console,
                metrics_paths=metrics_paths,
            ),
        ),
        ConsoleApp(
            dataplane,
            metrics,
            config.enable_console,
            METRICS if metrics is not None else None,
        ),
        config,
        metrics=metrics,
        keys=keys,
        admission=admission,
        monitoring_path=monitoring_path,
    )
    return AccessLogMiddleware(root, AccessLog()) if config.access_log else root


def _create_cloud_routers(
    settings: Settings | None, dataplane: DataPlane, v1: V1Router
) -> Sequence[Router]:
    routers: list[Router] = []
    if settings is not None and settings.predict_route:
        routers.append(PredictRouter(settings.predict_route, settings.model_name, v1))
    if settings is not None and settings.sagemaker_multi_model:
        routers.append(SageMakerRouter(dataplane, v1))
    return routers
