"""Predict: tensors in, tensors out."""

from tensorflow_serving.apis import predict_pb2

from server.dataplane import DataPlane, Prediction
from server.frontends.grpc.services import call_handler, model_spec
from server.frontends.grpc.services.call_context import CallContext
from server.servables.servable import Array
from server.tensors import protobuf_wire, serializer, tensor_proto
from tpuserve.saved_model.signature import Signature

_OUTPUTS_TAG, _MODEL_SPEC_TAG = protobuf_wire.field_tag(1), protobuf_wire.field_tag(2)


class Predict:
    """Answers from a data plane."""

    def __init__(
        self,
        dataplane: DataPlane,
        *,
        as_content: bool = False,
        max_tensor_bytes: int = tensor_proto.MAX_BYTES,
    ) -> None:
        """Takes the data plane to answer from.

        Args:
          as_content: outputs as tensor_content, not as typed values.
          max_tensor_bytes: of one input; a few bytes of a request can stand for any number.
        """
        self._dataplane = dataplane
        self._as_content = as_content
        self._max_tensor_bytes = max_tensor_bytes

    def __call__(self, raw: bytes, request: CallContext) -> bytes:
        """The outputs of a model for the inputs in the request.

        Raises:
          TpuserveError: as of `DataPlane.predict`.
        """
        message = call_handler.parse(predict_pb2.PredictRequest, raw)
        request.target = model_spec.read_target(message)

        def read_inputs(_: Signature) -> dict[str, Array]:
            limit = self._max_tensor_bytes
            return {
                alias: tensor_proto.tensor_proto_to_array(proto, alias, limit)
                for alias, proto in message.inputs.items()
            }

        prediction = self._dataplane.predict(
            request.target,
            read_inputs,
            list(message.output_filter),
            timeout_ms=request.timeout_ms,
        )
        request.version = prediction.version
        return self._encode(prediction)

    def _encode(self, prediction: Prediction) -> bytes:
        parts: list[serializer.Chunk] = []
        for alias, array in prediction.outputs.items():
            parts += serializer.serialize_map_entry(_OUTPUTS_TAG, alias, array, self._as_content)
        spec = model_spec.encode(prediction.model, prediction.version, prediction.signature_name)
        parts += (_MODEL_SPEC_TAG, protobuf_wire.encode_varint(len(spec)), spec)
        return b"".join(parts)
