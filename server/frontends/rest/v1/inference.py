"""Predict, classify and regress: from a parsed request body to an encoded response body."""

from collections.abc import Mapping
from functools import partial
from typing import Protocol, TypeAlias

from server.codec import examples, json_parser, requests, responses
from server.codec.array_to_json import JsonText
from server.codec.json_parser import Json
from server.dataplane import DataPlane, ModelSpec
from tpuserve.errors import InvalidInput, SignatureNotFound

EncodedResult: TypeAlias = tuple[JsonText, int]
"""The body of a response, and the model version that computed the result."""


class Operation(Protocol):
    """A function that runs one kind of inference, for example predict.

    The function blocks while the model runs.
    """

    def __call__(
        self, dataplane: DataPlane, model_spec: ModelSpec, request: Json, timeout_ms: float | None
    ) -> EncodedResult:
        """Run a model on a request, and return the encoded response body and the model's version.

        Args:
          dataplane: Finds and runs the model.
          model_spec: The model, version and signature that the request names.
          request: The parsed request body, from `parse_request`.
          timeout_ms: The milliseconds in which the model must answer. None means no limit.

        Raises:
          TpuserveError: The request is invalid, or the model failed.
        """


def parse_request(body: bytes) -> tuple[Json, str]:
    """Parse a request body.

    Returns:
      The parsed JSON object, and the signature name in it, which is "" if the request names none.

    Raises:
      InvalidJson: The body is not a JSON object.
    """
    request = json_parser.parse_json(body)
    return request, requests.get_signature_name(request)


def _predict(
    dataplane: DataPlane, model_spec: ModelSpec, request: Json, timeout_ms: float | None
) -> EncodedResult:
    try:
        prediction = dataplane.predict(
            model_spec,
            partial(requests.decode_inputs, request),
            timeout_ms=timeout_ms,
        )
    except SignatureNotFound as error:
        # Raise an error with another text: for an unknown signature, TensorFlow Serving's texts
        # differ between REST and gRPC.
        name = model_spec.effective_signature_name
        raise InvalidInput(
            f'Serving signature name: "{name}" not found in signature def'
        ) from error
    if requests.is_row_format(request):
        return responses.encode_row_format(prediction.outputs), prediction.version
    return responses.encode_columnar_format(prediction.outputs), prediction.version


def _classify(
    dataplane: DataPlane, model_spec: ModelSpec, request: Json, timeout_ms: float | None
) -> EncodedResult:
    result = dataplane.classify(
        model_spec, examples.decode_examples(request), timeout_ms=timeout_ms
    )
    return responses.encode_classifications(result.classes, result.scores), result.version


def _regress(
    dataplane: DataPlane, model_spec: ModelSpec, request: Json, timeout_ms: float | None
) -> EncodedResult:
    result = dataplane.regress(model_spec, examples.decode_examples(request), timeout_ms=timeout_ms)
    return responses.encode_regressions(result.values), result.version


OPERATIONS: Mapping[str, Operation] = {
    "predict": _predict,
    "classify": _classify,
    "regress": _regress,
}
"""The operations by their name in a path."""
