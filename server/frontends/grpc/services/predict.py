"""The method Predict: runs a signature on tensors.

Source: tensorflow_serving/apis/predict.proto.
"""

from tensorflow_serving.apis import predict_pb2

from server.dataplane import DataPlane, Prediction
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.services.call_handler import parse_message
from server.frontends.grpc.services.model_spec import (
    decode_request_model_spec,
    serialize_model_spec,
)
from server.servables.servable import Array
from server.tensors import protobuf_wire, serializer, tensor_proto
from tpuserve.saved_model.signature import Signature

# The serialised tags of the fields `outputs` and `model_spec` of a PredictResponse.
_OUTPUTS_TAG, _MODEL_SPEC_TAG = protobuf_wire.field_tag(1), protobuf_wire.field_tag(2)


class Predict:
    """The method Predict: runs a signature of one of the models of a data plane."""

    def __init__(
        self,
        dataplane: DataPlane,
        *,
        as_content: bool = False,
        max_tensor_bytes: int = tensor_proto.MAX_BYTES,
    ) -> None:
        """Create the method.

        Args:
          dataplane: runs the models.
          as_content: whether responses hold numbers as `tensor_content` rather than in the typed
            fields.
          max_tensor_bytes: the largest size of the array that an input is parsed to. The size of
            the message does not limit the array, because a few bytes can describe an array of any
            size.
        """
        self._dataplane = dataplane
        self._as_content = as_content
        self._max_tensor_bytes = max_tensor_bytes

    def __call__(self, raw: bytes, call: CallContext) -> bytes:
        """Run a model on the inputs of a PredictRequest; return a PredictResponse.

        Raises:
          TpuserveError: the request is invalid, or `DataPlane.predict` has raised the error.
        """
        message = parse_message(predict_pb2.PredictRequest, raw)
        call.model_spec = decode_request_model_spec(message)

        def read_inputs(_: Signature) -> dict[str, Array]:
            limit = self._max_tensor_bytes
            return {
                alias: tensor_proto.tensor_proto_to_array(proto, alias, limit)
                for alias, proto in message.inputs.items()
            }

        prediction = self._dataplane.predict(
            call.model_spec,
            read_inputs,
            list(message.output_filter),
            timeout_ms=call.timeout_ms,
        )
        call.version = prediction.version
        return self._serialize_response(prediction)

    def _serialize_response(self, prediction: Prediction) -> bytes:
        chunks: list[serializer.Chunk] = []
        for alias, array in prediction.outputs.items():
            chunks += serializer.serialize_map_entry(_OUTPUTS_TAG, alias, array, self._as_content)
        model_spec = serialize_model_spec(
            prediction.model, prediction.version, prediction.signature_name
        )
        chunks += (_MODEL_SPEC_TAG, protobuf_wire.encode_varint(len(model_spec)), model_spec)
        return b"".join(chunks)
