"""Encodes the REST infer responses of the Open Inference Protocol.

The body of a response is JSON, or JSON followed by the binary data of outputs.

Source: the specification of the protocol ("Inference Response JSON Object"), and Triton's extension
for binary tensor data.
"""

from collections.abc import Callable, Mapping

import numpy as np
import orjson

from server.codec import array_to_json, raw_tensors
from server.codec.array_to_json import JsonText
from server.codec.datatypes import datatype_of_array
from server.servables.servable import Array
from tpuserve.errors import InvalidTensor

_UINT16 = np.dtype(np.uint16)


def encode_infer_response(
    model: str,
    version: int,
    request_id: str,
    outputs: Mapping[str, Array],
    is_binary: Callable[[str], bool],
) -> tuple[JsonText, int | None]:
    """Encode the outputs of a model as the body of an infer response.

    Args:
      request_id: the client's ID of the request, which the response repeats; "" for none.
      outputs: name → array of any shape, in the order of the response. Strings are object arrays of
        bytes.

    Returns:
      The body, and the size in bytes of the JSON at the beginning of the body. The size is None if
      the whole body is JSON.
    """
    text = bytearray(b'{"model_name":%s,"model_version":"%d",' % (_quote(model), version))
    if request_id:
        text += b'"id":%s,' % _quote(request_id)
    text += b'"outputs":['
    binary: list[bytes | memoryview] = []
    for position, (name, array) in enumerate(outputs.items()):
        datatype = datatype_of_array(array, name)
        text += b'%s{"name":%s,"datatype":"%s","shape":%s,' % (
            b"," if position else b"",
            _quote(name),
            datatype.name.encode(),
            orjson.dumps(array.shape),
        )
        if is_binary(name):
            data = raw_tensors.encode_raw(array)
            binary.append(data)
            text += b'"parameters":{"binary_data_size":%d}}' % len(data)
            continue
        if datatype.is_raw_only:
            raise InvalidTensor(
                f"output {name!r} is {datatype.name}, which JSON cannot hold. Request it with the "
                f"parameter binary_data, or all outputs with binary_data_output."
            )
        text += b'"data":'
        _append_data(text, name, array)
        text += b"}"
    text += b"]}"
    if not any(is_binary(name) for name in outputs):
        return text, None
    return b"".join((text, *binary)), len(text)


def _append_data(text: bytearray, name: str, array: Array) -> None:
    flat = array.reshape(-1)
    if flat.dtype == _UINT16:
        flat = flat.astype(np.uint32)
    if flat.dtype.hasobject:
        try:
            for element in flat.tolist():
                element.decode()
        except UnicodeDecodeError as error:
            raise InvalidTensor(
                f"output {name!r} has bytes that are not UTF-8, which JSON cannot hold. Request it "
                f"with the parameter binary_data."
            ) from error
    # Pass an empty name, because `array_to_json` encodes the strings of a tensor as base64 if its
    # name ends in "_bytes".
    array_to_json.append_tensor(text, "", flat)


def _quote(text: str) -> bytes:
    return array_to_json.quote_string(text.encode("utf-8", "replace"))
