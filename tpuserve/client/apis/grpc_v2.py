"""Encodes requests and decodes replies of the Open Inference Protocol (KServe V2) over gRPC.

Source: the specification of the protocol, open_inference_grpc.proto.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tpuserve.client import arrays
from tpuserve.client.apis import open_inference
from tpuserve.client.apis.api import Api
from tpuserve.client.apis.grpc_v1 import parse_message
from tpuserve.client.apis.open_inference import NO_EXTENSION, SIGNATURE_PARAMETER
from tpuserve.client.arrays import Array
from tpuserve.client.call import Call, ModelReference, Reply, Steps, VersionStatus
from tpuserve.errors import InvalidInput, InvalidReply
from tpuserve.proto.open_inference import SERVICE, Message, message_type
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature, TensorSpec

_VERSION = re.compile("[0-9]{1,19}")
_SERVICE = f"/{SERVICE}"
# Datatype of the protocol → the field of InferTensorContents that holds elements of this datatype.
_FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


class GrpcV2(Api):
    """Encodes requests and decodes replies of the Open Inference Protocol over gRPC.

    The inputs of a request are sent as bytes in the field raw_input_contents.
    """

    is_http = False

    def predict(
        self,
        model: ModelReference,
        inputs: Mapping[str, Any],
        signature_name: str,
        outputs: Sequence[str],
    ) -> Steps[dict[str, Array]]:
        """Run a signature of a model; the arguments are those of `Api.predict`.

        Raises:
          InvalidReply: the reply is malformed, or its field raw_output_contents has elements, but
            not one for each output.
        """
        reply = yield from self._request_prediction(model, inputs, signature_name, outputs)
        response = parse_message(message_type("ModelInferResponse"), reply)
        raw = response.raw_output_contents
        if not raw:
            return {output.name: _read_contents(output) for output in response.outputs}
        if len(raw) != len(response.outputs):
            raise InvalidReply(
                f"the answer has {len(response.outputs)} outputs and the contents of {len(raw)}. "
                f"Look at the server that sent it."
            )
        return {
            output.name: open_inference.decode_raw(output.name, data, output.datatype, output.shape)
            for output, data in zip(response.outputs, raw, strict=True)
        }

    def encode_predict(
        self,
        model: ModelReference,
        inputs: Mapping[str, Array],
        signature_name: str,
        outputs: Sequence[str],
    ) -> Call:
        """Encode a ModelInferRequest; the arguments are those of `Api.encode_predict`."""
        request = message_type("ModelInferRequest")(
            model_name=model.name, model_version=_version(model)
        )
        if signature_name:
            request.parameters["signature_name"].string_param = signature_name
        for name, array in inputs.items():
            datatype = open_inference.datatype_of(array, name)
            request.inputs.add(name=name, datatype=datatype, shape=array.shape)
            request.raw_input_contents.append(open_inference.encode_raw(array))
        for name in outputs:
            request.outputs.add(name=name)
        return Call(f"{_SERVICE}/ModelInfer", request.SerializeToString())

    def signatures(self, model: ModelReference) -> Steps[Mapping[str, Signature]]:
        """Request the default signature, the only signature that the protocol describes."""
        described = yield from self._describe(model, "")
        name = yield from self._default_name(model)
        return {name: described[""]}

    def _describe(self, model: ModelReference, name: str) -> Steps[Mapping[str, Signature]]:
        if name:
            default = yield from self._default_name(model)
            if name != default:
                raise InvalidInput(
                    f"the Open Inference Protocol over gRPC describes only the signature "
                    f"{default!r} of model {model.name!r}. Give NumPy arrays for {name!r}, or use "
                    f"http:// or the API 'v1'."
                )
        request = message_type("ModelMetadataRequest")(name=model.name, version=_version(model))
        reply = yield Call(f"{_SERVICE}/ModelMetadata", request.SerializeToString())
        response = parse_message(message_type("ModelMetadataResponse"), reply)
        return {name: Signature(_specs(response.inputs), _specs(response.outputs))}

    def _default_name(self, model: ModelReference) -> Steps[str]:
        """Request the name of the default signature from Triton's model configuration."""
        request = message_type("ModelConfigRequest")(name=model.name, version=_version(model))
        try:
            reply = yield Call(f"{_SERVICE}/ModelConfig", request.SerializeToString())
        except NO_EXTENSION:
            return DEFAULT_SIGNATURE
        parameters = parse_message(message_type("ModelConfigResponse"), reply).config.parameters
        return parameters[SIGNATURE_PARAMETER].string_value or DEFAULT_SIGNATURE

    def versions(self, name: str) -> Steps[list[VersionStatus]]:
        """Request the state of each version of a model with Triton's RepositoryIndex method."""
        request = message_type("RepositoryIndexRequest")()
        reply = yield Call(f"{_SERVICE}/RepositoryIndex", request.SerializeToString())
        return [
            VersionStatus(int(entry.version), entry.state, entry.reason)
            for entry in parse_message(message_type("RepositoryIndexResponse"), reply).models
            if entry.name == name and _VERSION.fullmatch(entry.version)
        ]

    def _ready_call(self, model: ModelReference) -> Call:
        request = message_type("ModelReadyRequest")(name=model.name, version=_version(model))
        return Call(f"{_SERVICE}/ModelReady", request.SerializeToString(), is_retried=False)

    def _says_ready(self, reply: Reply) -> bool:
        return bool(parse_message(message_type("ModelReadyResponse"), reply).ready)


def _version(model: ModelReference) -> str:
    open_inference.check_model(model)
    return "" if model.version is None else str(model.version)


def _specs(tensors: Any) -> dict[str, TensorSpec]:
    return {
        tensor.name: open_inference.tensor_spec(tensor.name, tensor.datatype, tensor.shape)
        for tensor in tensors
    }


def _read_contents(tensor: Message) -> Array:
    dtype = open_inference.numpy_dtype(tensor.name, tensor.datatype)
    field = _FIELDS.get(tensor.datatype)
    values = getattr(tensor.contents, field) if field else ()
    try:
        if dtype.hasobject:
            return arrays.object_array(list(values)).reshape(tuple(tensor.shape))
        return arrays.convert_to_array(list(values), dtype).reshape(tuple(tensor.shape))
    except (ValueError, OverflowError) as error:
        raise InvalidReply(
            f"the contents of output {tensor.name!r} do not fill its shape "
            f"{list(tensor.shape[:64])}. "
            f"Look at the server that sent the answer."
        ) from error
