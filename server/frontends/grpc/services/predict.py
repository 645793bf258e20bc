"""The method Predict: runs a signature on tensors.

Source: tensorflow_serving/apis/predict.proto.
"""

from tensorflow_serving.apis import predict_pb2

from server.dataplane import DataPlane, Prediction
from server.frontends import output_memory
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.services.model_service import (
    decode_request_model_spec,
    serialize_model_spec,
)
from server.frontends.grpc.services.parsing import (
    LARGE_BYTES,
    parse_within_limits,
    parsing_turn,
    read_large_predict_request,
)
from server.servables.pending import Pending
from server.servables.servable import Array
from server.tensors import serializer, tensor_proto
from server.tensors.parsing_cost import PREDICT_REQUEST
from tpuserve.proto import protobuf_wire
from tpuserve.saved_model.signature import Signature

# The serialised protobuf tags of the fields `outputs` and `model_spec` of a PredictResponse.
_OUTPUTS_TAG, _MODEL_SPEC_TAG = protobuf_wire.field_tag(1), protobuf_wire.field_tag(2)


class Predict:
    """The method Predict: runs a signature of one of the served models on tensors.

    Args:
      as_content: whether the TensorProtos of responses hold numbers in `tensor_content` rather
        than in typed fields such as `float_val`.
      max_tensor_bytes: the largest size in bytes of the array of an input.
    """

    def __init__(
        self,
        dataplane: DataPlane,
        *,
        as_content: bool = False,
        max_tensor_bytes: int = tensor_proto.MAX_BYTES,
    ) -> None:
        self._dataplane = dataplane
        self._as_content = as_content
        self._max_tensor_bytes = max_tensor_bytes

    def __call__(self, raw: bytes | memoryview, call: CallContext) -> bytes | Pending[bytes]:
        """Run a model on the inputs of a request.

        Returns:
          The serialised PredictResponse. If the request waits for a batch, a Pending, which has the
          response later.
        """
        if len(raw) > LARGE_BYTES:
            request = read_large_predict_request(raw, call)
            message, protos = request.message, request.inputs
        else:
            message = parse_within_limits(predict_pb2.PredictRequest, raw, PREDICT_REQUEST, call)
            protos = message.inputs
        call.set_model_spec(decode_request_model_spec(message))

        def read_inputs(signature: Signature) -> dict[str, Array]:
            # Check the names of the inputs before any array is created, so that an invalid request
            # costs little.
            signature.check_inputs(protos.keys())
            inputs = {}
            with parsing_turn(len(raw)):
                for alias, proto in protos.items():
                    call.request.check()
                    inputs[alias] = tensor_proto.tensor_proto_to_array(
                        proto, alias, self._max_tensor_bytes, call.request.reserve
                    )
            return inputs

        prediction = self._dataplane.start_predict(
            call.request, call.model_spec, read_inputs, list(message.output_filter)
        )
        if isinstance(prediction, Pending):
            finish = prediction.finish
            return prediction.then(lambda: self._serialize_response(finish(), call))
        return self._serialize_response(prediction, call)

    def _serialize_response(self, prediction: Prediction, call: CallContext) -> bytes:
        call.version = prediction.version
        output_memory.reserve_for_message(prediction.outputs, call.request.reserve)
        chunks: list[serializer.Chunk] = []
        for alias, array in prediction.outputs.items():
            chunks += serializer.serialize_map_entry(_OUTPUTS_TAG, alias, array, self._as_content)
        model_spec = serialize_model_spec(
            prediction.model, prediction.version, prediction.signature_name
        )
        chunks += (_MODEL_SPEC_TAG, protobuf_wire.encode_varint(len(model_spec)), model_spec)
        return b"".join(chunks)
