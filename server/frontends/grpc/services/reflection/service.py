"""Server reflection: lists the services and their messages, for clients without protos.

Source: https://github.com/grpc/grpc/blob/master/doc/server-reflection.md.
"""

import contextlib
import importlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from typing import Any

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from server.frontends.grpc.services.reflection.pool import ReflectionPool
from server.frontends.grpc.services.service import GrpcService, ServiceContext

_METHOD = "ServerReflectionInfo"
# The number of threads for reflection. Each open stream takes one of the threads, which run no
# other calls.
_THREADS = 8


class ReflectionService(GrpcService):
    """Answers reflection requests in streams.

    The server ends a stream when the client sends no request within the executor's message timeout,
    and on `drain`. The client can then open a new stream: a stream has no state.
    """

    # One handler serves both versions of the service, because their messages have the same wire
    # format.
    names = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)

    def __init__(self, context: ServiceContext) -> None:
        """Create the service."""
        self._executor = context.executor
        self._pool = futures.ThreadPoolExecutor(_THREADS, "grpc-reflection")
        _import_descriptors(context.service_types)
        self._servicer = reflection.ReflectionServicer(
            # List each name once: two classes can implement methods of the same service.
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
        """Cancel all open streams, and from now on each new stream."""
        self._is_draining = True
        # Iterate over a copy, because other threads change the set of streams meanwhile. set.copy
        # is atomic.
        for context in self._open_streams.copy():
            context.cancel()

    def close(self) -> None:
        """End the threads. Call after the gRPC server has stopped."""
        self._pool.shutdown(wait=False)

    def _answer_stream(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        streams = self._open_streams
        streams.add(context)
        if self._is_draining or not context.add_callback(lambda: streams.discard(context)):
            streams.discard(context)
            context.cancel()
        # Receive each request of the stream, not only the first one, with the executor's timeout
        # for the first message of a call.
        in_time = iter(lambda: self._executor.receive_first(requests, context), None)
        return self._servicer.ServerReflectionInfo(in_time, context)


def _import_descriptors(service_types: Iterable[type[GrpcService]]) -> None:
    """Add the services' descriptors to protobuf's default pool, by importing their modules."""
    for service_type in service_types:
        if service_type.descriptor_module is None:
            continue
        # Ignore AttributeError, which the generated modules of tensorflow-serving-api 2.20 raise
        # under protobuf 6: they have already registered their descriptors then.
        with contextlib.suppress(AttributeError):
            importlib.import_module(service_type.descriptor_module)
