"""Writes sample requests as JSON, for the OpenAPI document and for the forms of the console."""

import contextlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from server.codec import array_to_json
from server.codec.open_inference.datatypes import datatype_name
from server.dataplane.results import ExampleFeature, SampleRequest
from server.servables.servable import Array
from tpuserve.errors import InvalidTensor
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE

# If the name of a tensor ends with this text, `array_to_json` writes the strings of the tensor as
# {"b64": "..."} objects.
_BYTES_NAME = "_bytes"


def encode_value(array: Array) -> str:
    """Return an array as JSON text.

    If a string of the array is not UTF-8, all strings are written as {"b64": "..."} objects.

    Raises:
      InvalidTensor: JSON requests cannot represent the dtype.
    """
    name = _BYTES_NAME if array.dtype == object and not _is_text(array) else ""
    return bytes(array_to_json.encode_tensor(name, array)).decode()


def encode_values(feature: ExampleFeature) -> str:
    """Return the values of a feature of a tf.train.Example as the text of a JSON list."""
    if feature.kind == "bytes":
        array = np.empty(len(feature.values), object)
        array[:] = feature.values
        return encode_value(array)
    return json.dumps(feature.values)


def build_predict_body(request: SampleRequest, signature_name: str) -> Any | None:
    """Return the body of a Predict request in columnar format.

    Args:
      request: The inputs of a valid request.
      signature_name: The name of the signature that has these inputs.

    Returns:
      The body as an object for `json.dumps`. None if an input is too large for a sample.

    Raises:
      InvalidTensor: JSON requests cannot represent the dtype of an input.
    """
    values = {}
    for alias, value in sorted(request.inputs.items()):
        if value.array is None:
            return None
        values[alias] = json.loads(encode_value(value.array))
    return {**_name_signature(signature_name), "inputs": values}


def build_examples_body(request: SampleRequest, signature_name: str) -> Any | None:
    """Return the body of a Classify or Regress request.

    Args:
      request: The inputs of a valid request.
      signature_name: The name of the signature that has these inputs.

    Returns:
      The body as an object for `json.dumps`. None if the features of the tf.train.Examples are not
      known.
    """
    if len(request.inputs) != 1:
        return None
    (value,) = request.inputs.values()
    if not value.features:
        return None
    example = {name: json.loads(encode_values(feature)) for name, feature in value.features.items()}
    return {**_name_signature(signature_name), "examples": [example]}


def build_infer_body(request: SampleRequest, signature_name: str) -> Any | None:
    """Return the body of an infer request of the Open Inference Protocol.

    Args:
      request: The inputs of a valid request.
      signature_name: The name of the signature that has these inputs.

    Returns:
      The body as an object for `json.dumps`. None if an input is too large for a sample, or has
      strings that JSON cannot hold.
    """
    tensors = []
    for alias, value in sorted(request.inputs.items()):
        array = value.array
        if array is None or (array.dtype == object and not _is_text(array)):
            return None
        data = json.loads(encode_value(array.reshape(-1)))
        dtype = "string" if array.dtype == object else array.dtype.name
        tensors.append(
            {
                "name": alias,
                "shape": list(array.shape),
                "datatype": datatype_name(dtype),
                "data": data,
            }
        )
    named = _name_signature(signature_name)
    return {"inputs": tensors, **({"parameters": named} if named else {})}


def build_examples(
    build: Callable[[SampleRequest, str], Any | None], samples: Mapping[str, SampleRequest]
) -> dict[str, Any]:
    """Return the example requests of an operation for the OpenAPI document.

    Args:
      build: Returns the body of a request with the inputs of a signature, or None if there is no
        such body.
      samples: The inputs of a valid request for each signature, by the name of the signature.

    Returns:
      Name of the signature → OpenAPI example.
    """
    examples = {}
    for name, sample in samples.items():
        with contextlib.suppress(InvalidTensor):
            body = build(sample, name)
            if body is not None:
                examples[name] = {"value": body}
    return examples


def _name_signature(name: str) -> dict[str, str]:
    return {} if name == DEFAULT_SIGNATURE else {"signature_name": name}


def _is_text(array: Array) -> bool:
    try:
        for value in array.reshape(-1):
            value.decode()
    except UnicodeDecodeError:
        return False
    return True
