"""Builds the example requests of the OpenAPI document, one for each signature.

If the value of an input is not known, or is too large for the document, the example has a
placeholder for the value: a text that says what to send. Without an example, Swagger UI would
propose a body that looks valid but that the server refuses, such as [[[[0]]]] for a batch of
pictures.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from server.codec.datatypes import datatype_name, find_datatype
from server.dataplane import SampleRequest
from server.frontends.rest import sample_values
from server.servables.servable import Array
from tpuserve.errors import InvalidTensor
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature, TensorSpec

Json: TypeAlias = dict[str, Any]
Build: TypeAlias = Callable[[str, Signature, SampleRequest | None], tuple[Json, bool]]
"""Takes the name of a signature, the signature, and the inputs of a valid request.

The inputs are None if no valid request is known. The result is the body of an example request as an
object for `json.dumps`, and whether the body is valid: False means that a text has the place of a
value.
"""

# The JSON member that marks an example as not valid. `tpuserve bench` sends no such example.
_INCOMPLETE = "x-incomplete"
# The path of the console, as the target of a link.
_CONSOLE = "/"


class OperationExamples(NamedTuple):
    """The example requests of an operation.

    Attributes:
      examples: Signature name → Example object of OpenAPI. The default signature comes first,
        because Swagger UI selects the first example. An example that is not valid has the member
        "x-incomplete": true.
      description: A text in Markdown that says how to complete the examples that are not valid. ""
        if all examples are valid.
    """

    examples: Json
    description: str


class ExampleBuilder:
    """Builds the example requests of the operations on a model."""

    def __init__(
        self,
        model: str,
        signatures: Mapping[str, Signature],
        samples: Mapping[str, SampleRequest],
        has_console: bool,
    ) -> None:
        """Create the object; no example is built yet.

        Args:
          model: The name of the model.
          signatures: Signature name → signature.
          samples: Signature name → the inputs of a valid request. A signature is missing if no
            valid request is known.
          has_console: Whether the server has a console.
        """
        self._model = model
        self._signatures = signatures
        self._samples = samples
        self._has_console = has_console

    def build(self, build: Build, names: Iterable[str] | None = None) -> OperationExamples:
        """Build the example requests of an operation.

        Args:
          build: Builds the body of a request for one signature.
          names: The names of the signatures that the operation runs. None means all signatures.
        """
        examples: Json = {}
        incomplete = []
        chosen = self._signatures.keys() if names is None else self._signatures.keys() & set(names)
        for name in sorted(chosen, key=lambda name: (name != DEFAULT_SIGNATURE, name)):
            body, is_valid = build(name, self._signatures[name], self._samples.get(name))
            examples[name] = {"value": body}
            if not is_valid:
                examples[name] |= {"summary": f"{name}: to be completed", _INCOMPLETE: True}
                incomplete.append(name)
        return OperationExamples(examples, self._describe(incomplete) if incomplete else "")

    def _describe(self, incomplete: Iterable[str]) -> str:
        """Return a text in Markdown that says how to complete examples that are not valid.

        Args:
          incomplete: The names of the signatures with such an example.
        """
        names = ", ".join(f"`{name}`" for name in incomplete)
        console = f'"Try it" of [the console]({_CONSOLE}) or with ' if self._has_console else ""
        return (
            f"The example for {names} has a text instead of a value that is too large for "
            f"this page, or that JSON or this server cannot write. Send such values with {console}"
            f"`tpuserve.client` for Python: "
            f'`Client("http://HOST:PORT").predict({json.dumps(self._model)}, {{"INPUT": array}})`.'
        )


def build_predict_body(
    name: str, signature: Signature, sample: SampleRequest | None
) -> tuple[Json, bool]:
    """Build the body of a Predict request in columnar format.

    Args:
      name: The name of the signature.
      signature: The signature.
      sample: The inputs of a valid request. None if no valid request is known.

    Returns:
      The body as an object for `json.dumps`, and whether the body is valid. It is not valid if it
      has a placeholder text in place of a value.
    """
    inputs: Json = {}
    is_valid = True
    for alias, spec in _find_inputs(signature, sample):
        array = _find_array(sample, alias)
        try:
            inputs[alias] = _make_placeholder(spec) if array is None else _to_json(array)
            is_valid = is_valid and array is not None
        except InvalidTensor:
            inputs[alias], is_valid = _make_placeholder(spec), False
    return {**_name_signature(name), "inputs": inputs}, is_valid


def build_examples_body(
    name: str, signature: Signature, sample: SampleRequest | None
) -> tuple[Json, bool]:
    """Build the body of a Classify or Regress request.

    Args:
      name: The name of the signature.
      signature: The signature.
      sample: The inputs of a valid request. None if no valid request is known.

    Returns:
      The body as an object for `json.dumps`, and whether the body is valid. It is not valid if it
      has a placeholder text in place of a value.
    """
    values = [] if sample is None else list(sample.inputs.values())
    features = values[0].features if len(values) == 1 else {}
    example: Json = {}
    is_valid = bool(features)
    for feature, value in features.items():
        text = sample_values.encode_values(value)
        count = "" if value.size is None else f"{value.size} "
        words = f"Replace this text by {count}values of type {value.kind}."
        example[feature] = json.loads(text) if text else words
        is_valid = is_valid and bool(text)
    example = example or {"FEATURE": "Replace this text and the name by the model's features."}
    return {**_name_signature(name), "examples": [example]}, is_valid


def build_infer_body(
    name: str, signature: Signature, sample: SampleRequest | None
) -> tuple[Json, bool]:
    """Build the body of an infer request of the Open Inference Protocol.

    Args:
      name: The name of the signature.
      signature: The signature.
      sample: The inputs of a valid request. None if no valid request is known.

    Returns:
      The body as an object for `json.dumps`, and whether the body is valid. It is not valid if it
      has a placeholder text in place of a value.
    """
    tensors = []
    is_valid = True
    for alias, spec in _find_inputs(signature, sample):
        array = _find_array(sample, alias)
        data = None if array is None else _find_data(alias, spec, array)
        is_valid = is_valid and data is not None
        tensors.append(
            {
                "name": alias,
                "shape": _find_shape(spec, sample, alias),
                "datatype": datatype_name(spec),
                "data": [_make_placeholder(spec)] if data is None else data,
            }
        )
    named = _name_signature(name)
    return {"inputs": tensors, **({"parameters": named} if named else {})}, is_valid


def _find_inputs(
    signature: Signature, sample: SampleRequest | None
) -> list[tuple[str, TensorSpec]]:
    """Return the inputs of an example request: pairs (alias, specification), sorted by alias.

    These are the inputs of the sample, which may omit inputs that have default values. Without a
    sample, they are all inputs of the signature.
    """
    return [
        (alias, spec)
        for alias, spec in sorted(signature.inputs.items())
        if sample is None or alias in sample.inputs
    ]


def _find_array(sample: SampleRequest | None, alias: str) -> Array | None:
    """Return the value of an input in a sample; None if the sample does not have the value."""
    value = None if sample is None else sample.inputs.get(alias)
    return None if value is None else value.array


def _find_shape(spec: TensorSpec, sample: SampleRequest | None, alias: str) -> list[int]:
    """Return the shape of an input in a sample.

    Without a sample, return the shape in the signature, with 1 for each dimension of unknown size.
    """
    if sample is not None and alias in sample.inputs:
        return list(sample.inputs[alias].shape)
    return [1 if size is None else size for size in spec.shape or ()]


def _find_data(alias: str, spec: TensorSpec, array: Array) -> Any | None:
    """Return the elements of an array as a flat list for `json.dumps`.

    Args:
      alias: The alias of the input.
      spec: The specification of the input.
      array: The value of the input.

    Returns:
      The list. None if the JSON of the Open Inference Protocol cannot hold the elements.
    """
    with contextlib.suppress(InvalidTensor):
        is_raw_only = find_datatype(datatype_name(spec), alias).is_raw_only
        if not is_raw_only and (array.dtype != object or sample_values.is_text(array)):
            return _to_json(array.reshape(-1))
    return None


def _to_json(array: Array) -> Any:
    return json.loads(sample_values.encode_value(array))


def _make_placeholder(spec: TensorSpec) -> str:
    """Return a placeholder for the value of an input in the example of a request."""
    return f"Replace this text by a value of {spec}."


def _name_signature(name: str) -> dict[str, str]:
    """Return the JSON member by which a request names its signature; {} for "serving_default"."""
    return {} if name == DEFAULT_SIGNATURE else {"signature_name": name}
