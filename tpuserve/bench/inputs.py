"""Creates the inputs of a benchmark's requests: random, from a file, or from a request log."""

import json
import math
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from tpuserve.client import arrays
from tpuserve.client.apis import tensor_proto
from tpuserve.client.arrays import Array
from tpuserve.errors import InvalidInput, TpuserveError
from tpuserve.files import npz_file
from tpuserve.proto import prediction_service_pb2 as pb
from tpuserve.saved_model.signature import Signature, TensorSpec
from tpuserve.saved_model.tfrecord import DamagedRecord, read_records

NUM_RANDOM = 16
"""The number of different random requests."""

_MAX_LOGGED = 1000
_OPEN_DIMENSION = 8
_WORDS = (b"a", b"the", b"one", b"red", b"tea", b"good", b"time", b"zebra")


@dataclass(frozen=True)
class RequestInputs:
    """The inputs of one request of a benchmark.

    Attributes:
      signature_name: the signature that a logged request named; "" for "serving_default". A
        signature that is chosen for the whole benchmark replaces it.
    """

    inputs: Mapping[str, Array]
    signature_name: str = ""


@dataclass(frozen=True)
class Requests:
    """The requests of a measurement.

    Attributes:
      advice: a sentence that says what to do if the server refuses all requests.
    """

    inputs: Sequence[RequestInputs]
    advice: str = "Mend this request, then measure."


def random_inputs(
    signature: Signature, batch_size: int, shapes: Mapping[str, tuple[int, ...]]
) -> list[RequestInputs]:
    """Generate the random inputs of 16 requests; the same arguments give the same inputs.

    Floats are uniform in [0, 1), integers and booleans are 0 or 1, and strings are short words.

    Args:
      shapes: alias → shape, for inputs whose shape the signature leaves open.

    Raises:
      InvalidInput: `shapes` names an input that the signature does not have, or an input has a
        dtype that NumPy arrays do not have, such as resource.
    """
    for name in shapes:
        if name not in signature.inputs:
            raise InvalidInput(
                f"a shape is given for input {name!r}; the signature has "
                f"{', '.join(sorted(signature.inputs)) or 'no inputs'}. Name one of those."
            )
    random = np.random.default_rng(0)
    return [
        RequestInputs(
            {
                name: _random_array(name, spec, _shape(spec, batch_size, shapes.get(name)), random)
                for name, spec in sorted(signature.inputs.items())
            }
        )
        for _ in range(NUM_RANDOM)
    ]


def read_file(path: Path, signature: Signature) -> list[RequestInputs]:
    """Read the inputs of requests from a file.

    An .npz file holds one request: an array for each input.
    """
    if path.suffix == ".npz":
        documents: list[Any] = [_read_npz(path)]
    else:
        try:
            text = path.read_text(encoding="utf-8")
            lines = [line for line in text.splitlines() if line.strip()]
            texts = lines if path.suffix == ".jsonl" else [text]
            documents = list(map(json.loads, texts))
        except (ValueError, RecursionError) as error:
            raise _file_error(path, f"it is no JSON ({error})") from error
    if not documents:
        raise _file_error(path, "it is empty")
    return [convert_document(document, signature, path) for document in documents]


def convert_document(document: Any, signature: Signature, source: Path | str) -> RequestInputs:
    """Convert a parsed JSON request to arrays: {"x": [1, 2]} or {"inputs": {"x": [1, 2]}}.

    Args:
      document: the request. In a string input, {"b64": "AAE="} stands for a string of bytes.
    """
    inputs = document
    if isinstance(document, dict) and "inputs" in document:
        # The model can have an input with the name "inputs".
        is_input = "inputs" in signature.inputs and not isinstance(document["inputs"], dict)
        inputs = document if is_input else document["inputs"]
    if not isinstance(inputs, dict) or not inputs:
        raise _file_error(source, "it has no object of inputs")
    strings = {name for name, spec in signature.inputs.items() if spec.dtype == "string"}
    try:
        decoded = {
            name: _to_bytes(value) if name in strings else value for name, value in inputs.items()
        }
    except (ValueError, RecursionError) as error:
        raise _file_error(source, f"it has a b64 that is no base64 ({error})") from error
    return RequestInputs(arrays.convert_inputs(decoded, signature))


def read_request_log(path: Path, model: str) -> list[RequestInputs]:
    """Read the inputs of the Predict requests to a model from a request log or a warm-up file.

    Args:
      path: a TFRecord file of PredictionLog messages. At most the first 1000 requests are read.
    """
    requests: list[RequestInputs] = []
    others: set[str] = set()
    try:
        for content in read_records(path):
            log = pb.PredictionLog.FromString(content)
            request = log.predict_log.request
            if not log.HasField("predict_log"):
                others.add("a request of another method")
            elif request.model_spec.name != model:
                others.add(f"model {request.model_spec.name!r}")
            else:
                inputs = {
                    name: tensor_proto.to_array(proto, name)
                    for name, proto in request.inputs.items()
                }
                requests.append(RequestInputs(inputs, request.model_spec.signature_name))
            if len(requests) == _MAX_LOGGED:
                break
    except (DamagedRecord, DecodeError, TpuserveError) as error:
        raise InvalidInput(
            f"{path} is no request log: {error}. Give a file that `tpuserve serve` has written, or "
            f"the warm-up file of a SavedModel."
        ) from error
    if not requests:
        raise InvalidInput(
            f"{path} has no Predict request to model {model!r}; it has "
            f"{', '.join(sorted(others)) or 'no records'}. Give the name of the log with --model."
        )
    return requests


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        named = npz_file.read_arrays(path)
    except (ValueError, OSError) as error:
        raise _file_error(path, f"it is no .npz file, or is damaged ({error})") from error
    if named is None:
        raise _file_error(path, "it is one array without a name")
    return named


def _to_bytes(value: Any) -> Any:
    """Convert the texts and the b64 objects in nested lists to bytes."""
    if isinstance(value, list):
        return [_to_bytes(element) for element in value]
    if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
        return b64decode(value["b64"], validate=True)
    return value.encode() if isinstance(value, str) else value


def _file_error(source: Path | str, reason: str) -> InvalidInput:
    return InvalidInput(
        f"{source} has no requests: {reason}. Give a .npz, .json or .jsonl file with an array for "
        f'each input, such as {{"x": [1, 2]}}.'
    )


def _shape(
    spec: TensorSpec, batch_size: int, requested_shape: tuple[int, ...] | None
) -> tuple[int, ...]:
    if requested_shape is not None:
        return requested_shape
    if spec.shape is None:
        return (batch_size,)
    open_sizes = (batch_size, *[_OPEN_DIMENSION] * len(spec.shape))
    return tuple(
        open_size if size is None else size
        for size, open_size in zip(spec.shape, open_sizes, strict=False)
    )


def _random_array(
    name: str, spec: TensorSpec, shape: tuple[int, ...], random: np.random.Generator
) -> Array:
    if spec.dtype == "string":
        words = [_WORDS[index] for index in random.integers(0, len(_WORDS), math.prod(shape))]
        return arrays.object_array(words).reshape(shape)
    try:
        dtype = arrays.numpy_dtype(spec.dtype)
    except TpuserveError as error:
        raise InvalidInput(
            f"input {name!r} is of type {spec.dtype}, which has no plain values. Name another "
            f"signature."
        ) from error
    if dtype.kind in "iub":
        return random.integers(0, 2, shape).astype(dtype)
    return random.random(shape, np.float32).astype(dtype)
