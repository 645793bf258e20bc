"""Server reflection: what services there are, for tools that have no protos."""

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from concurrent import futures
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection, reflection_pb2

from server.frontends.grpc.executor.call_executor import CallExecutor

# The messages of both versions are alike on the wire.
SERVICE_NAMES = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)

_METHOD = "ServerReflectionInfo"
_DESCRIBED = ("prediction_service_pb2", "model_service_pb2")
# Each is taken by one stream for as long as that is open: nothing else may have to wait for them.
_THREADS = 8


class Reflection:
    """Answers questions, in streams that are ended when none comes for long.

    Nothing is lost with a stream between two questions, so that none keeps a server from stopping.
    """

    def __init__(self, service_names: Sequence[str], threads: CallExecutor) -> None:
        """Takes what there is.

        Args:
          threads: where questions are waited for in time; they are answered elsewhere.
        """
        self._threads = threads
        self._pool = futures.ThreadPoolExecutor(_THREADS, "grpc-reflection")
        self._servicer = reflection.ReflectionServicer([*service_names, *SERVICE_NAMES], _pool())
        self._open: set[grpc.ServicerContext] = set()
        self._is_draining = False

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """What gRPC calls, for each version."""

        def info(questions: Iterator[Any], context: grpc.ServicerContext) -> Any:
            return self._answer(questions, context)

        info.experimental_thread_pool = self._pool  # type: ignore[attr-defined]
        handler = grpc.stream_stream_rpc_method_handler(
            info,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        return [
            grpc.method_handlers_generic_handler(name, {_METHOD: handler}) for name in SERVICE_NAMES
        ]

    def drain(self) -> None:
        """Ends the streams, also those that begin from here on."""
        self._is_draining = True
        # A copy, since streams end meanwhile; it is made in one step.
        for each in self._open.copy():
            each.cancel()

    def close(self) -> None:
        """Ends the threads; after the server has stopped."""
        self._pool.shutdown(wait=False)

    def _answer(self, questions: Iterator[Any], context: grpc.ServicerContext) -> Any:
        self._open.add(context)
        if self._is_draining or not context.add_callback(lambda: self._open.discard(context)):
            self._open.discard(context)
            context.cancel()
        in_time = iter(lambda: self._threads.receive_first(questions, context), None)
        return self._servicer.ServerReflectionInfo(in_time, context)


def _pool() -> descriptor_pool.DescriptorPool:
    """What knows the services of TensorFlow Serving."""
    for name in _DESCRIBED:
        # In tensorflow-serving-api 2.20 protobuf 6 refuses a line that comes once all is known.
        with contextlib.suppress(AttributeError):
            importlib.import_module(f"tensorflow_serving.apis.{name}")
    return descriptor_pool.Default()
