"""Server reflection: what services there are, for tools that have no protos."""

from collections.abc import Sequence
from concurrent import futures

import grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from tensorflow_serving.apis import model_service_pb2 as model_service_pb2
from tensorflow_serving.apis import prediction_service_pb2

# The messages of both versions are alike on the wire.
SERVICE_NAMES = ("grpc.reflection.v1.ServerReflection", reflection.SERVICE_NAME)

_METHOD = "ServerReflectionInfo"


def handlers(
    service_names: Sequence[str], pool: futures.ThreadPoolExecutor
) -> list[grpc.GenericRpcHandler]:
    """What answers questions about these services.

    Args:
      pool: threads of its own, since a question may stay open for as long as a client likes.
    """
    names = [*service_names, *SERVICE_NAMES]
    servicer = reflection.ReflectionServicer(names, prediction_service_pb2.DESCRIPTOR.pool)

    def info(requests: object, context: grpc.ServicerContext) -> object:
        return servicer.ServerReflectionInfo(requests, context)

    info.experimental_thread_pool = pool  # type: ignore[attr-defined]
    handler = grpc.stream_stream_rpc_method_handler(
        info,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [
        grpc.method_handlers_generic_handler(name, {_METHOD: handler}) for name in SERVICE_NAMES
    ]
