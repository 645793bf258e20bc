"""API keys in the metadata of calls: "authorization: Bearer KEY"."""

from collections.abc import Callable
from concurrent import futures
from typing import Any

import grpc

from server.admission.api_keys import ApiKeys
from server.frontends.grpc.observability import CallObserver
from server.frontends.grpc.services import call_handler, health
from tpuserve.errors import Unauthenticated


class ApiKeyInterceptor(grpc.ServerInterceptor):
    """Lets only calls pass that carry a key; before any of their message is read."""

    def __init__(
        self,
        keys: ApiKeys,
        pool: futures.ThreadPoolExecutor,
        observer: CallObserver,
        *,
        open_health: bool = False,
    ) -> None:
        """Takes the keys.

        Args:
          pool: where calls are refused.
          books: where that is noted down.
          open_health: whether health checks pass without one.
        """
        self._keys = keys
        self._pool = pool
        self._observer = observer
        self._open_prefix = f"/{health.SERVICE_NAME}/" if open_health else None

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: Any
    ) -> grpc.RpcMethodHandler | None:
        """What answers a call: its method, or a refusal."""
        method = handler_call_details.method
        if self._open_prefix is None or not method.startswith(self._open_prefix):
            try:
                self._keys.authenticate(_authorization(handler_call_details.invocation_metadata))
            except Unauthenticated as error:
                return call_handler.refusal(method, error, self._observer, self._pool)
        return continuation(handler_call_details)


def _authorization(metadata: Any) -> str | None:
    for key, value in metadata or ():
        if key == "authorization":
            return str(value)
    return None
