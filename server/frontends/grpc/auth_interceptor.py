"""Checks the API key of each gRPC call, the metadata entry "authorization: Bearer KEY"."""

from collections.abc import Callable, Iterable
from typing import Any

import grpc

from server.admission.api_keys import ApiKeys
from server.frontends.grpc.observability import CallObserver
from server.frontends.grpc.services import call_handler
from server.process.thread_pool import ThreadPool
from tpuserve.errors import Unauthenticated


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
