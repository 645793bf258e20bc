"""Writes sample values of inputs as JSON, for the OpenAPI document and the console's forms."""

import json

import numpy as np

from server.codec import array_to_json
from server.dataplane.results import ExampleFeature
from server.servables.servable import Array

# If the name of a tensor ends with this text, `array_to_json` writes the strings of the tensor as
# {"b64": "..."} objects.
_BYTES_NAME = "_bytes"


def encode_value(array: Array) -> str:
    """Return an array as JSON text.

    If a string of the array is not UTF-8, all strings are written as {"b64": "..."} objects.
    """
    name = _BYTES_NAME if array.dtype == object and not is_text(array) else ""
    return bytes(array_to_json.encode_tensor(name, array)).decode()


def encode_values(feature: ExampleFeature) -> str:
    """Return the values of a feature of a tf.train.Example as the text of a JSON list.

    The text is empty if the feature has no values to show.
    """
    if feature.values is None:
        return ""
    if feature.kind == "bytes":
        array = np.empty(len(feature.values), object)
        array[:] = feature.values
        return encode_value(array)
    return json.dumps(feature.values)


def is_text(array: Array) -> bool:
    """Return whether all strings of an array of bytes objects are UTF-8."""
    try:
        for value in array.reshape(-1):
            value.decode()
    except UnicodeDecodeError:
        return False
    return True
