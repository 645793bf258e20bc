"""Predict: tensors in, tensors out."""

from tensorflow_serving.apis import predict_pb2

from server.dataplane import DataPlane, Prediction
from server.rpc import calls, specs, tensors, wire
from server.servable import Array
from tpuserve.signature import Signature

_OUTPUTS_TAG, _MODEL_SPEC_TAG = wire.tag(1), wire.tag(2)
_KEY_TAG, _VALUE_TAG = wire.tag(1), wire.tag(2)


class Predict:
    """Answers from a data plane."""

    def __init__(
        self,
        dataplane: DataPlane,
        *,
        as_content: bool = False,
        max_tensor_bytes: int = tensors.MAX_BYTES,
    ) -> None:
        """Takes the data plane to answer from.

        Args:
          as_content: outputs as tensor_content, not as typed values.
          max_tensor_bytes: of one input; a few bytes of a request can stand for any number.
        """
        self._dataplane = dataplane
        self._as_content = as_content
        self._max_tensor_bytes = max_tensor_bytes

    def __call__(self, raw: bytes, timeout_ms: float | None) -> bytes:
        """The outputs of a model for the inputs in the request.

        Raises:
          TpuserveError: as of `DataPlane.predict`.
        """
        request = calls.parse(predict_pb2.PredictRequest, raw)

        def read_inputs(_: Signature) -> dict[str, Array]:
            limit = self._max_tensor_bytes
            return {
                alias: tensors.decode(proto, alias, limit)
                for alias, proto in request.inputs.items()
            }

        prediction = self._dataplane.predict(
            specs.read_target(request),
            read_inputs,
            list(request.output_filter),
            timeout_ms=timeout_ms,
        )
        return self._encode(prediction)

    def _encode(self, prediction: Prediction) -> bytes:
        parts: list[tensors.Part] = []
        for alias, array in prediction.outputs.items():
            tensor = tensors.to_parts(array, self._as_content)
            size = sum(map(len, tensor))
            # An entry of a map is a message with a key and a value.
            key = wire.field(_KEY_TAG, alias.encode()) + _VALUE_TAG + wire.varint(size)
            parts += (_OUTPUTS_TAG, wire.varint(len(key) + size), key, *tensor)
        spec = specs.encode(prediction.model, prediction.version, prediction.signature_name)
        parts += (_MODEL_SPEC_TAG, wire.varint(len(spec)), spec)
        return b"".join(parts)
