"""POST /v1/models/NAME[/versions/V]:predict, from body to body."""

from functools import partial

from server.codec import document, requests, responses
from server.dataplane import DataPlane, Target
from tpuserve.errors import InvalidInput, SignatureNotFound


def predict(dataplane: DataPlane, model: str, version: int | None, body: bytes) -> bytes:
    """The JSON that answers the JSON of a request; blocks while the model runs.

    Raises:
      TpuserveError: whatever is wrong with the request, or with the model.
    """
    request = document.parse(body)
    target = Target(model, version, requests.signature_name(request))
    try:
        prediction = dataplane.predict(target, partial(requests.decode, request))
    except SignatureNotFound as error:
        # TensorFlow Serving words this one otherwise over REST.
        name = target.effective_signature_name
        raise InvalidInput(
            f'Serving signature name: "{name}" not found in signature def'
        ) from error
    encode = responses.encode_rows if requests.is_rows(request) else responses.encode_columns
    return encode(prediction.outputs)
