"""Server reflection, by which clients without .proto files learn the services and messages.

Source: https://github.com/grpc/grpc/blob/master/doc/server-reflection.md.
"""

import contextlib
import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from server.frontends.grpc.services.reflection.pool import ReflectionPool
from server.frontends.grpc.services.service import GrpcService, ServiceContext
from server.process.thread_pool import ThreadPool

_METHOD = "ServerReflectionInfo"
# The number of threads that answer reflection requests, and so the largest number of streams that
# are answered at the same time. An open stream occupies a thread.
_THREADS = 8


class ReflectionService(GrpcService):
    """Answers the requests of server reflection, which arrive in streams.

    The server ends a stream if the client sends no request for `StalledCallLimits.timeout_seconds`,
    and when the server drains. The client can then open a new stream, because a stream has no
    state.
    """

    # The names of the two versions of the service. The same function answers the calls of both,
    # because their messages have the same wire format.
    names = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)

    def __init__(self, context: ServiceContext) -> None:
        self._executor = context.executor
        self._pool = ThreadPool(_THREADS, "grpc-reflection")
        _import_descriptors(context.service_types)
        self._servicer = reflection.ReflectionServicer(
            # Remove duplicate names: two classes can implement methods of the same service.
            list(dict.fromkeys(n for service in context.service_types for n in service.names)),
            ReflectionPool(),
        )
        self._open_streams: set[grpc.ServicerContext] = set()
        self._is_draining = False

    def handlers(self) -> Sequence[grpc.GenericRpcHandler]:
        """Return a handler for each version of the service: v1 and v1alpha."""

        def answer_stream(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
            return self._answer_stream(requests, context)

        answer_stream.experimental_thread_pool = self._pool  # type: ignore[attr-defined]
        handler = grpc.stream_stream_rpc_method_handler(
            answer_stream,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        return [
            grpc.method_handlers_generic_handler(name, {_METHOD: handler}) for name in self.names
        ]

    def drain(self) -> None:
        """Cancel all open streams, and also each stream that clients open later.

        Open streams would delay the stop of the server.
        """
        self._is_draining = True
        # Iterate over a copy, because other threads change the set of streams meanwhile. `set.copy`
        # is atomic.
        for context in self._open_streams.copy():
            context.cancel()

    def close(self) -> None:
        """End the threads of the service. The caller must have stopped the gRPC server."""
        self._pool.shutdown(wait=False)

    def _answer_stream(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        streams = self._open_streams
        streams.add(context)
        if self._is_draining or not context.add_callback(lambda: streams.discard(context)):
            streams.discard(context)
            context.cancel()
        # Apply the time limit for the first message of a call to each request of the stream, so
        # that idle streams do not occupy all threads.
        in_time = iter(lambda: self._executor.receive_first(requests, context), None)
        return self._servicer.ServerReflectionInfo(in_time, context)


def _import_descriptors(service_types: Iterable[type[GrpcService]]) -> None:
    for service_type in service_types:
        if service_type.descriptor_module is None:
            continue
        # Ignore the AttributeError that the generated modules of tensorflow-serving-api 2.20 raise
        # with protobuf 6.
        with contextlib.suppress(AttributeError):
            importlib.import_module(service_type.descriptor_module)
