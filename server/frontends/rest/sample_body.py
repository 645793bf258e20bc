"""Writes valid requests as JSON: the values of inputs, and whole bodies of requests."""

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

# The encoder writes the strings of a tensor with this ending as {"b64": "..."} objects.
_BYTES_NAME = "_bytes"


def encode_value(array: Array) -> str:
    """Return an array as JSON text; strings that are not UTF-8 are {"b64": "..."} objects.

    Raises:
      InvalidTensor: JSON requests cannot represent the dtype.
    """
    name = _BYTES_NAME if array.dtype == object and not _is_text(array) else ""
    return bytes(array_to_json.encode_tensor(name, array)).decode()


def encode_values(feature: ExampleFeature) -> str:
    """Return the values of a tf.Example's feature as a JSON list."""
    if feature.kind == "bytes":
        array = np.empty(len(feature.values), object)
        array[:] = feature.values
        return encode_value(array)
    return json.dumps(feature.values)


def build_predict_body(request: SampleRequest, signature_name: str) -> Any | None:
    """Return the body of a Predict request in columnar format; None if an input is too large.

    Args:
      request: A valid request.
      signature_name: The name of its signature.

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
    """Return the body of a Classify or Regress request; None if the features are not known.

    Args:
      request: A valid request.
      signature_name: The name of its signature.
    """
    if len(request.inputs) != 1:
        return None
    (value,) = request.inputs.values()
    if not value.features:
        return None
    example = {name: json.loads(encode_values(feature)) for name, feature in value.features.items()}
    return {**_name_signature(signature_name), "examples": [example]}


def build_infer_body(request: SampleRequest, signature_name: str) -> Any | None:
    """Return the body of an Open Inference request; None if JSON cannot hold an input.

    Args:
      request: A valid request.
      signature_name: The name of its signature.
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
    """Return the examples of an operation for the OpenAPI document: signature name → example.

    Args:
      build: Returns the body of a request for a signature, or None if there is none.
      samples: Valid requests by the name of their signature.
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
