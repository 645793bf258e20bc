"""The service of the Open Inference Protocol, with extensions of NVIDIA Triton.

Source: the specification of the protocol, open_inference_grpc.proto, and Triton's
grpc_service.proto.
"""

from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf import json_format

from server.dataplane import ModelSpec
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.executor.call_admission import CallAdmission
from server.frontends.grpc.executor.call_executor import ReadModelName
from server.frontends.grpc.services.call_handler import (
    UnaryFunction,
    UnaryHandler,
    UnaryMethod,
    build_rejecting_handler,
)
from server.frontends.grpc.services.message_stream import (
    MAX_STREAMS,
    MessageStreams,
    too_many_streams,
)
from server.frontends.grpc.services.model_name import read_plain_model_name, read_request_id
from server.frontends.grpc.services.open_inference_infer import ModelInfer, decode_model_spec
from server.frontends.grpc.services.parsing import parse_message
from server.frontends.grpc.services.service import ServiceContext, UnaryService
from server.frontends.open_inference_describer import Describer
from server.process.thread_pool import ThreadPool
from tpuserve.errors import ModelNotFound
from tpuserve.proto import protobuf_wire
from tpuserve.proto.open_inference import SERVICE, Message, message_type

_FINAL = message_type("ModelInferResponse")()
_FINAL.parameters["triton_final_response"].bool_param = True
# Triton's parameter of the last response to a message, serialised: each message has one response.
_FINAL_PARAMETER: bytes = _FINAL.SerializeToString()
_RESPONSE_TAG = protobuf_wire.field_tag(2)


def _encode_reply(reply: bytes) -> bytes:
    """Convert a serialised ModelInferResponse to a ModelStreamInferResponse."""
    # A field that is appended to a serialised message becomes a part of the message.
    size = protobuf_wire.encode_varint(len(reply) + len(_FINAL_PARAMETER))
    return b"".join((_RESPONSE_TAG, size, reply, _FINAL_PARAMETER))


def _encode_error(message: bytes, text: str) -> bytes:
    """Return the ModelStreamInferResponse to a request that has failed."""
    response = message_type("ModelStreamInferResponse")(error_message=text)
    response.infer_response.CopyFrom(_FINAL)
    response.infer_response.model_name = read_plain_model_name(message)
    response.infer_response.id = read_request_id(message)
    return bytes(response.SerializeToString())


class OpenInferenceService(UnaryService):
    """The methods ModelInfer and ModelStreamInfer, which run models, limited by the admission.

    The other methods of the same gRPC service are in `OpenInferenceStatusService`, because the
    admission controller does not limit their calls.
    """

    names = (SERVICE,)
    health_names = (SERVICE,)
    counted_apis = ("ModelInfer", "ModelStreamInfer")
    is_admission_controlled = True

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._stream_name = f"/{SERVICE}/ModelStreamInfer"
        admission = CallAdmission(
            self._admission, context.environment.memory_budget, context.rejection_pool
        )
        method = self.methods()["ModelInfer"]
        handle = UnaryHandler(
            *(self._stream_name, method, context.environment, admission, method.read_model_name)
        )
        self._streams = MessageStreams(handle, context.executor, _encode_reply, _encode_error)
        self._handlers[self._stream_name] = self._streams.handler()

    def methods(self) -> Mapping[str, UnaryMethod]:
        """Return name → method; the only unary method is ModelInfer."""
        infer = ModelInfer(self._context.dataplane)
        return {"ModelInfer": UnaryMethod(infer, read_model_name=read_plain_model_name)}

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Return the handler of a call, or of its refusal; None for another service's method."""
        if details.method == self._stream_name and self._streams.is_full:
            return build_rejecting_handler(
                self._stream_name,
                too_many_streams(MAX_STREAMS),
                self._context.observer,
                self._context.rejection_pool,
            )
        return super().service(details)

    def drain(self) -> None:
        """End each stream after the message under way."""
        self._streams.drain()

    def close(self) -> None:
        """End the threads of the streams."""
        self._streams.close()


class OpenInferenceStatusService(UnaryService):
    """The methods that describe the server and its models, and load or unload models.

    The admission controller does not limit their calls. ModelInfer, a method of the same gRPC
    service, is in `OpenInferenceService`.
    """

    names = (SERVICE,)

    def methods(self) -> Mapping[str, UnaryMethod]:
        """Return all methods of the service except ModelInfer, by their names."""
        context = self._context
        describer = Describer(
            context.dataplane, allows_control=context.settings.enable_model_control
        )
        admin_pool = context.admin_pool
        return {
            "ServerLive": _method("ServerLive", lambda request, call: {"live": True}, True),
            "ServerReady": _method("ServerReady", self._server_ready, True),
            "ModelReady": _method(
                "ModelReady",
                lambda request, call: {"ready": _is_ready(describer, _read_spec(request, call))},
                True,
            ),
            "ServerMetadata": _method(
                "ServerMetadata", lambda request, call: describer.server_metadata(), True
            ),
            "ModelMetadata": _method(
                "ModelMetadata",
                lambda request, call: describer.model_metadata(_read_spec(request, call)),
                reads_metadata_of=read_plain_model_name,
            ),
            "ModelConfig": _method(
                "ModelConfig",
                lambda request, call: {"config": describer.model_config(_read_spec(request, call))},
                reads_metadata_of=read_plain_model_name,
            ),
            "ModelStatistics": _method(
                "ModelStatistics",
                lambda request, call: describer.model_statistics(
                    _read_spec(request, call) if request.name else ModelSpec("")
                ),
            ),
            "RepositoryIndex": _method(
                "RepositoryIndex", lambda request, call: describer.repository_index(request.ready)
            ),
            "RepositoryModelLoad": _method(
                "RepositoryModelLoad",
                lambda request, call: describer.load_model(request.model_name),
                pool=admin_pool,
            ),
            "RepositoryModelUnload": _method(
                "RepositoryModelUnload",
                lambda request, call: describer.unload_model(request.model_name),
                pool=admin_pool,
            ),
        }

    def _server_ready(self, request: Message, call: CallContext) -> dict[str, Any]:
        admission = self._context.admission
        is_serving = admission is None or (admission.is_ready and not admission.is_draining)
        return {"ready": is_serving and self._context.dataplane.is_available}


def _method(
    name: str,
    answer: Callable[[Message, CallContext], dict[str, Any]],
    is_quick: bool = False,
    pool: ThreadPool | None = None,
    reads_metadata_of: ReadModelName | None = None,
) -> UnaryMethod:
    """Return a method that parses its request, calls a function, and serialises the response."""
    request_type, response_type = message_type(f"{name}Request"), message_type(f"{name}Response")

    def call_method(raw: bytes | memoryview, call: CallContext) -> bytes:
        fields = answer(parse_message(request_type, raw), call)
        response = response_type()
        json_format.ParseDict(fields, response)
        return bytes(response.SerializeToString())

    function: UnaryFunction = call_method
    return UnaryMethod(function, pool=pool, is_quick=is_quick, reads_metadata_of=reads_metadata_of)


def _read_spec(request: Message, call: CallContext) -> ModelSpec:
    call.model_spec = decode_model_spec(request.name, request.version)
    return call.model_spec


def _is_ready(describer: Describer, spec: ModelSpec) -> bool:
    try:
        return describer.is_ready(spec)
    except ModelNotFound:
        return False
