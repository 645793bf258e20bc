"""Predict, classify and regress, from body to body."""

from collections.abc import Mapping
from functools import partial
from typing import Protocol, TypeAlias

from server.codec import examples, json_parser, requests, responses
from server.codec.array_to_json import JsonText
from server.codec.json_parser import Json
from server.dataplane import DataPlane, ModelSpec
from tpuserve.errors import InvalidInput, SignatureNotFound

Written: TypeAlias = tuple[JsonText, int]
"""The JSON of an answer, and the version that it is of."""


class Answer(Protocol):
    """Answers one kind of request; blocks while the model runs."""

    def __call__(
        self, dataplane: DataPlane, target: ModelSpec, request: Json, timeout_ms: float | None
    ) -> Written:
        """The answer to a request.

        Args:
          request: what `read` has found in the body.
          timeout_ms: how long the model may take; None for as long as it takes.

        Raises:
          TpuserveError: whatever is wrong with the request, or with the model.
        """


def read(body: bytes) -> tuple[Json, str]:
    """The document in a request's body, and the signature that it names.

    Raises:
      InvalidJson: there is none.
    """
    request = json_parser.parse_json(body)
    return request, requests.get_signature_name(request)


def _predict(
    dataplane: DataPlane, target: ModelSpec, request: Json, timeout_ms: float | None
) -> Written:
    try:
        prediction = dataplane.predict(
            target,
            partial(requests.decode_inputs, request),
            timeout_ms=timeout_ms,
        )
    except SignatureNotFound as error:
        # TensorFlow Serving words this one otherwise over REST.
        name = target.effective_signature_name
        raise InvalidInput(
            f'Serving signature name: "{name}" not found in signature def'
        ) from error
    encode = (
        responses.encode_row_format
        if requests.is_row_format(request)
        else responses.encode_columnar_format
    )
    return encode(prediction.outputs), prediction.version


def _classify(
    dataplane: DataPlane, target: ModelSpec, request: Json, timeout_ms: float | None
) -> Written:
    found = dataplane.classify(target, examples.decode_examples(request), timeout_ms=timeout_ms)
    return responses.encode_classifications(found.classes, found.scores), found.version


def _regress(
    dataplane: DataPlane, target: ModelSpec, request: Json, timeout_ms: float | None
) -> Written:
    found = dataplane.regress(target, examples.decode_examples(request), timeout_ms=timeout_ms)
    return responses.encode_regressions(found.values), found.version


ANSWERS: Mapping[str, Answer] = {
    "predict": _predict,
    "classify": _classify,
    "regress": _regress,
}
"""What answers a request, by its verb."""
