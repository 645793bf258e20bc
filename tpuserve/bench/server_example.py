"""Reads an example of a request to a model from the OpenAPI document of a tpuserve server.

A signature says that an input is a string, but not whether the model parses the string as a
tf.Example or decodes it as a picture.
"""

from typing import Any
from urllib.parse import quote

import numpy as np

from tpuserve.bench.inputs import RequestInputs, convert_document
from tpuserve.client.apis.rest_v1 import MALFORMED, decode_json
from tpuserve.client.call import Call
from tpuserve.client.retries import Deadline
from tpuserve.client.transports.transport import ConnectionSettings
from tpuserve.errors import TpuserveError
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature

DOCUMENT_PATH = "/openapi.json"

# A key of the JSON of an example. Its value is true if the example is incomplete: a placeholder
# text stands where the user has to write a value.
_INCOMPLETE = "x-incomplete"


def request_example(
    connection: ConnectionSettings,
    model: str,
    signature_name: str,
    signature: Signature,
    batch_size: int,
    timeout_s: float,
) -> RequestInputs | None:
    """Return the server's example of a request for a signature.

    Args:
      signature_name: the name of the signature; "" for the default signature, which
        `tpuserve.client.Client.predict` defines.
      timeout_s: the time limit in seconds.

    Returns:
      The inputs. None if the server offers no valid example for the signature: the server is not
      tpuserve's, the URL is that of its gRPC port, or an input is too large for the document.
    """
    if not connection.address.is_http:
        return None
    try:
        document = _request_document(connection, timeout_s)
        path = f"/v1/models/{quote(model, safe='')}:predict"
        content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        examples = content["examples"]
        # If the model has only one signature, this is the default signature, whatever its name.
        default = next(iter(examples)) if len(examples) == 1 else DEFAULT_SIGNATURE
        example = examples[signature_name or default]
        request = convert_document(example["value"], signature, DOCUMENT_PATH)
        if example.get(_INCOMPLETE) or request.inputs.keys() != signature.inputs.keys():
            return None
    except (*MALFORMED, RecursionError, TpuserveError):
        # Other servers than tpuserve's have no such document, or one of another form.
        return None
    return _repeat_rows(request, signature, batch_size)


def _request_document(connection: ConnectionSettings, timeout_s: float) -> Any:
    from tpuserve.client.transports.http_transport import HttpTransport

    transport = HttpTransport(connection)
    try:
        return decode_json(transport.send(Call(DOCUMENT_PATH), Deadline(timeout_s)))
    finally:
        transport.close()


def _repeat_rows(request: RequestInputs, signature: Signature, batch_size: int) -> RequestInputs:
    inputs = dict(request.inputs)
    for name, spec in signature.inputs.items():
        has_open_rows = spec.shape is None or (spec.shape and spec.shape[0] is None)
        if has_open_rows and inputs[name].shape[:1] == (1,):
            inputs[name] = np.repeat(inputs[name], batch_size, axis=0)
    return RequestInputs(inputs)
