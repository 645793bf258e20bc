"""Reads the inputs of signatures from the warm-up records of a SavedModel."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tpuserve.errors import DamagedSavedModel, InvalidInputNames
from tpuserve.samples.values import string_array
from tpuserve.saved_model import warm_up_file
from tpuserve.saved_model.signature import DEFAULT_SIGNATURE, Signature

Array = np.ndarray[Any, Any]

# A temporary key for the tf.Examples of Classify and Regress requests, which have no input alias.
# It is replaced by the alias of the signature's only input.
_EXAMPLES = ""


def read_warm_up_inputs(
    directory: Path, signatures: Mapping[str, Signature], notes: list[str]
) -> dict[str, list[dict[str, Array]]]:
    """Read the inputs of the requests in a SavedModel's warm-up file, by signature.

    Args:
      notes: List to which a sentence is appended for each record that is ignored because it is not
        a Predict, Classify or Regress request.

    Returns:
      Signature name → the inputs of each of its records; the inputs of a record are alias → array,
      with the shape and the dtype in the record.
    """
    path = directory / warm_up_file.PATH
    if not path.is_file():
        return {}
    # Import the protobuf messages only if there is a warm-up file: the import is slow, and few
    # models have one.
    from google.protobuf.message import DecodeError
    from tensorflow_serving.apis import prediction_log_pb2

    by_signature: dict[str, list[dict[str, Array]]] = {}
    for number, record in enumerate(warm_up_file.read_warm_up_records(path)):
        log = prediction_log_pb2.PredictionLog()
        try:
            log.ParseFromString(record)
        except DecodeError as error:
            raise DamagedSavedModel(
                f"record {number} of {path} is not a PredictionLog. Export the model again."
            ) from error
        kind = log.WhichOneof("log_type")
        if kind == "predict_log":
            request = log.predict_log.request
            subject = f"record {number} of {path}"
            arrays = {
                alias: _to_array(proto, f"{subject}: input {alias!r}")
                for alias, proto in request.inputs.items()
            }
        elif kind in ("classify_log", "regress_log"):
            request = getattr(log, kind).request
            arrays = {_EXAMPLES: serialize_examples(request.input)}
        else:
            notes.append(f"warm-up record {number} is a {kind} and is ignored")
            continue
        name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in signatures:
            signature = signatures[name]
            if _EXAMPLES in arrays and len(signature.inputs) == 1:
                arrays = {next(iter(signature.inputs)): arrays[_EXAMPLES]}
            _check_names(arrays, signature, f"warm-up record {number}, for signature {name!r},")
            by_signature.setdefault(name, []).append(arrays)
    return by_signature


def _to_array(proto: Any, subject: str) -> Array:
    try:
        array: Array = tf.make_ndarray(proto)
    except (ValueError, TypeError) as error:
        raise DamagedSavedModel(
            f"{subject} is a damaged TensorProto: {error}. Write the warm-up file again."
        ) from error
    return array


def serialize_examples(proto: Any) -> Array:
    """Serialize the tf.Examples of an Input message: [examples]."""
    if proto.WhichOneof("kind") == "example_list_with_context":
        context = proto.example_list_with_context.context
        examples = []
        for example in proto.example_list_with_context.examples:
            merged = type(example)()
            merged.CopyFrom(context)
            merged.MergeFrom(example)
            examples.append(merged)
    else:
        examples = list(proto.example_list.examples)
    return string_array([example.SerializeToString() for example in examples], [len(examples)])


def _check_names(arrays: Mapping[str, Array], signature: Signature, subject: str) -> None:
    if arrays.keys() != signature.inputs.keys():
        raise InvalidInputNames(
            f"{subject} has inputs {', '.join(arrays) or 'none'}; the signature takes "
            f"{', '.join(signature.inputs)}. Write the warm-up file again."
        )
