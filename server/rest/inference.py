"""Predict, classify and regress, from body to body."""

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from server.codec import document, examples, requests, responses
from server.codec.document import Json
from server.dataplane import DataPlane, Target
from server.rest.paths import Route
from tpuserve.errors import InvalidInput, SignatureNotFound

_ENTRYPOINT = "REST"


class _Answer(Protocol):
    def __call__(
        self, dataplane: DataPlane, target: Target, request: Json, timeout_ms: float | None
    ) -> bytes: ...


def answer(
    dataplane: DataPlane,
    route: Route,
    request: Json,
    signature_name: str,
    timeout_ms: float | None,
) -> bytes:
    """The JSON that answers a request; blocks while the model runs.

    Args:
      request, signature_name: what `read` has found in the body.
      timeout_ms: how long the model may take; None for as long as it takes.

    Raises:
      TpuserveError: whatever is wrong with the request, or with the model.
    """
    target = Target(route.model, route.version, signature_name, route.label)
    return _ANSWERS[route.verb](dataplane, target, request, timeout_ms)


def read(body: bytes) -> tuple[Json, str]:
    """The document in a request's body, and the signature that it names.

    Raises:
      InvalidJson: there is none.
    """
    request = document.parse(body)
    return request, requests.signature_name(request)


def _predict(
    dataplane: DataPlane, target: Target, request: Json, timeout_ms: float | None
) -> bytes:
    try:
        prediction = dataplane.predict(
            target,
            partial(requests.decode, request),
            timeout_ms=timeout_ms,
            entrypoint=_ENTRYPOINT,
        )
    except SignatureNotFound as error:
        # TensorFlow Serving words this one otherwise over REST.
        name = target.effective_signature_name
        raise InvalidInput(
            f'Serving signature name: "{name}" not found in signature def'
        ) from error
    encode = responses.encode_rows if requests.is_rows(request) else responses.encode_columns
    return encode(prediction.outputs)


def _classify(
    dataplane: DataPlane, target: Target, request: Json, timeout_ms: float | None
) -> bytes:
    found = dataplane.classify(
        target, examples.decode(request), timeout_ms=timeout_ms, entrypoint=_ENTRYPOINT
    )
    return responses.encode_classifications(found.classes, found.scores)


def _regress(
    dataplane: DataPlane, target: Target, request: Json, timeout_ms: float | None
) -> bytes:
    found = dataplane.regress(
        target, examples.decode(request), timeout_ms=timeout_ms, entrypoint=_ENTRYPOINT
    )
    return responses.encode_regressions(found.values)


_ANSWERS: Mapping[str, _Answer] = {
    "predict": _predict,
    "classify": _classify,
    "regress": _regress,
}
