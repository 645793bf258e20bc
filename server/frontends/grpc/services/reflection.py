"""Server reflection, by which clients without .proto files learn the services and messages.

Source: https://github.com/grpc/grpc/blob/master/doc/server-reflection.md.
"""

import contextlib
import importlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, text_format
from grpc_reflection.v1alpha import reflection, reflection_pb2

from server.frontends.grpc.services.service import GrpcService, ServiceContext
from server.process.thread_pool import ThreadPool
from tpuserve.proto import open_inference

# TensorFlow's profiler service and its messages, as a FileDescriptorProto in text format.
# Source: tsl/profiler/protobuf/profiler_service.proto.
_PROFILER_FILE = """
name: "tsl/profiler/protobuf/profiler_service.proto"
package: "tensorflow"
syntax: "proto3"
service {
  name: "ProfilerService"
  method { name: "Profile" input_type: ".tensorflow.ProfileRequest" output_type: ".tensorflow.ProfileResponse" }
  method { name: "Terminate" input_type: ".tensorflow.TerminateRequest" output_type: ".tensorflow.TerminateResponse" }
  method { name: "Monitor" input_type: ".tensorflow.MonitorRequest" output_type: ".tensorflow.MonitorResponse" }
}
message_type {
  name: "ToolRequestOptions"
  field { name: "output_formats" number: 2 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "save_to_repo" number: 3 label: LABEL_OPTIONAL type: TYPE_BOOL }
}
message_type {
  name: "ProfileRequest"
  field { name: "duration_ms" number: 1 label: LABEL_OPTIONAL type: TYPE_UINT64 }
  field { name: "max_events" number: 2 label: LABEL_OPTIONAL type: TYPE_UINT64 }
  field { name: "tools" number: 3 label: LABEL_REPEATED type: TYPE_STRING }
  field { name: "opts" number: 4 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tensorflow.ProfileOptions" }
  field { name: "repository_root" number: 5 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "session_id" number: 6 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "host_name" number: 7 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "tool_options" number: 8 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".tensorflow.ProfileRequest.ToolOptionsEntry" }
  field { name: "emit_xspace" number: 9 label: LABEL_OPTIONAL type: TYPE_BOOL }
  nested_type {
    name: "ToolOptionsEntry"
    options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tensorflow.ToolRequestOptions" }
  }
}
message_type {
  name: "ProfileToolData"
  field { name: "name" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "data" number: 2 label: LABEL_OPTIONAL type: TYPE_BYTES }
}
message_type {
  name: "ProfileResponse"
  field { name: "tool_data" number: 6 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: ".tensorflow.ProfileToolData" }
  field { name: "empty_trace" number: 7 label: LABEL_OPTIONAL type: TYPE_BOOL }
  field { name: "xspace" number: 8 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".tensorflow.profiler.XSpace" }
}
message_type {
  name: "TerminateRequest"
  field { name: "session_id" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
}
message_type { name: "TerminateResponse" }
message_type {
  name: "MonitorRequest"
  field { name: "duration_ms" number: 1 label: LABEL_OPTIONAL type: TYPE_UINT64 }
  field { name: "monitoring_level" number: 2 label: LABEL_OPTIONAL type: TYPE_INT32 }
  field { name: "timestamp" number: 3 label: LABEL_OPTIONAL type: TYPE_BOOL }
}
message_type {
  name: "MonitorResponse"
  field { name: "data" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
}
"""  # noqa: E501


class ReflectionPool:
    """A descriptor pool with the messages and services of all gRPC services of the server.

    The pool finds most descriptors in protobuf's default pool. The descriptors of services without
    a generated Python module are in a second, private pool.
    """

    def __init__(self) -> None:
        self._default = descriptor_pool.Default()

    @cached_property
    def _own(self) -> Any:
        """The private DescriptorPool for the services without a generated Python module."""
        pool = descriptor_pool.DescriptorPool()
        for file in (_profiler_file(), _reflection_v1_file(), _open_inference_file()):
            self._add(pool, file)
        return pool

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of protobuf's default pool, for a name that this class lacks."""
        return getattr(self._default, name)

    def FindFileByName(self, name: str) -> Any:
        """Return the descriptor of the .proto file with a name; raise KeyError if there is none."""
        return self._find("FindFileByName", name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:
        """Return the descriptor of the .proto file that defines a symbol, or raise KeyError."""
        return self._find("FindFileContainingSymbol", symbol)

    def _find(self, method: str, name: str) -> Any:
        try:
            return getattr(self._default, method)(name)
        except KeyError:
            return getattr(self._own, method)(name)

    def _add(self, pool: Any, file: Any) -> None:
        for dependency in file.dependency:
            copy = descriptor_pb2.FileDescriptorProto()
            self._default.FindFileByName(dependency).CopyToProto(copy)
            self._add(pool, copy)
        pool.AddSerializedFile(file.SerializeToString())


def _profiler_file() -> Any:
    from tensorflow.tsl.profiler.protobuf import profiler_options_pb2, xplane_pb2

    file = text_format.Parse(_PROFILER_FILE, descriptor_pb2.FileDescriptorProto())
    file.dependency.extend([profiler_options_pb2.DESCRIPTOR.name, xplane_pb2.DESCRIPTOR.name])
    return file


def _open_inference_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto()
    service = open_inference.descriptor_pool().FindServiceByName(open_inference.SERVICE)
    service.file.CopyToProto(file)
    return file


def _reflection_v1_file() -> Any:
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    text = text_format.MessageToString(file).replace("v1alpha", "v1")
    return text_format.Parse(text, descriptor_pb2.FileDescriptorProto())


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
