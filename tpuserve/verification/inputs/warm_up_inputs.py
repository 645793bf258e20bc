"""Inputs from the records that a server warms a model up with."""

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


def read_warm_up_inputs(
    directory: Path, signatures: Mapping[str, Signature], notes: list[str]
) -> dict[str, list[dict[str, Array]]]:
    """The inputs of a SavedModel's warm-up records, by signature.

    Args:
      directory: of the SavedModel; it need not have such records.
      signatures: those wanted; records for others are left out.
      notes: gets one for records of a kind that says nothing of a signature's inputs.

    Raises:
      DamagedSavedModel: the file of records is cut, or is none.
      InvalidInputNames: a record has not the inputs of its signature.
    """
    path = directory / warm_up_file.PATH
    if not path.is_file():
        return {}
    # Imported here because few models bring records, and importing it takes its time.
    from google.protobuf.message import DecodeError
    from tensorflow_serving.apis import prediction_log_pb2

    found: dict[str, list[dict[str, Array]]] = {}
    for number, record in enumerate(warm_up_file.records(path)):
        log = prediction_log_pb2.PredictionLog()
        try:
            log.ParseFromString(record)
        except DecodeError as error:
            raise DamagedSavedModel(
                f"record {number} of {path} is no PredictionLog. Export the model again."
            ) from error
        kind = log.WhichOneof("log_type")
        if kind == "predict_log":
            request = log.predict_log.request
            arrays = {alias: _array(each) for alias, each in request.inputs.items()}
        elif kind in ("classify_log", "regress_log"):
            request = getattr(log, kind).request
            arrays = {"": _examples(request.input)}
        else:
            notes.append(f"warm-up record {number} is a {kind}, which is not used")
            continue
        name = request.model_spec.signature_name or DEFAULT_SIGNATURE
        if name in signatures:
            signature = signatures[name]
            if "" in arrays and len(signature.inputs) == 1:
                arrays = {next(iter(signature.inputs)): arrays[""]}
            _check(arrays, signature, f"warm-up record {number}, for signature {name!r}")
            found.setdefault(name, []).append(arrays)
    return found


def _array(proto: Any) -> Array:
    array: Array = tf.make_ndarray(proto)
    return array


def _examples(proto: Any) -> Array:
    if proto.WhichOneof("kind") == "example_list_with_context":
        context = proto.example_list_with_context.context
        examples = []
        for each in proto.example_list_with_context.examples:
            merged = type(each)()
            merged.CopyFrom(context)
            merged.MergeFrom(each)
            examples.append(merged)
    else:
        examples = list(proto.example_list.examples)
    return string_array([each.SerializeToString() for each in examples], [len(examples)])


def _check(arrays: Mapping[str, Array], signature: Signature, where: str) -> None:
    if arrays.keys() != signature.inputs.keys():
        raise InvalidInputNames(
            f"{where}, has inputs {', '.join(arrays) or 'none'}; the signature takes "
            f"{', '.join(signature.inputs)}. Write the warm-up file again."
        )
