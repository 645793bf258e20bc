"""Reads TFRecord files whose records are serialised tf.train.Example messages, or strings."""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from tpuserve.errors import InvalidTensor, UnsupportedModel
from tpuserve.prediction.batch import InputBatch, Position
from tpuserve.prediction.readers.dataset import iterate_records
from tpuserve.runtime.loaded_model import Array
from tpuserve.saved_model.signature import Signature, TensorSpec, find_signature


def read_example_batches(
    path: str,
    signatures: Mapping[str, Signature],
    signature_name: str,
    batch_size: int,
    start: Position,
) -> Iterator[InputBatch]:
    """Yield the records of a TFRecord file in batches.

    If the only input of the signature is a vector of strings, the records are passed to the model
    without parsing.
    """
    specs = find_signature(signatures, signature_name).inputs
    first = start.records
    alias = string_input(specs)
    parse = None if alias is not None else make_parser(specs)
    for inputs, end in iterate_records(path, batch_size, start, parse):
        where = f"{path}, records {first} to {end.records - 1}"
        inputs = {alias: inputs} if alias is not None else convert_integers(inputs, specs, where)
        yield InputBatch(where, inputs, (1,) * (end.records - first), signature_name, end=end)
        first = end.records


def string_input(specs: Mapping[str, TensorSpec]) -> str | None:
    """Return the alias of the only input if it is a vector of strings.

    Such an input takes serialised tf.train.Examples, or other records, as they are in the file.

    Returns:
      The alias; None if the signature has several inputs or one of another type.
    """
    if len(specs) != 1:
        return None
    ((alias, spec),) = specs.items()
    is_vector = spec.shape is None or len(spec.shape) == 1
    return alias if spec.dtype == "string" and is_vector else None


def make_parser(specs: Mapping[str, TensorSpec]) -> Any:
    """Return a TensorFlow function that parses serialised tf.train.Examples to input tensors.

    The function takes a string tensor [examples] and returns input alias → tensor [examples, ...].
    """
    features = {alias: _feature(alias, spec) for alias, spec in specs.items()}

    def parse(records: Any) -> dict[str, Any]:
        parsed = tf.io.parse_example(records, features)
        return {
            alias: parsed[alias] if _is_integer(spec) else tf.cast(parsed[alias], spec.dtype)
            for alias, spec in specs.items()
        }

    return parse


class ExampleParser:
    """Converts serialised tf.train.Examples in memory to the inputs of a signature."""

    def __init__(self, specs: Mapping[str, TensorSpec]) -> None:
        self._specs = specs
        self._alias = string_input(specs)
        self._parse: Any = None
        if self._alias is None:
            self._parse = tf.function(make_parser(specs), [tf.TensorSpec([None], tf.string)])

    def to_inputs(self, examples: Array, where: str) -> dict[str, Array]:
        """Return input alias → array [examples, ...].

        Raises:
          InvalidTensor: an Example lacks a feature, or has one of another dtype or shape.
        """
        if self._alias is not None:
            return {self._alias: examples}
        try:
            parsed = self._parse(tf.constant(examples, tf.string))
        except tf.errors.InvalidArgumentError as error:
            raise InvalidTensor(f"{where} do not fit the signature: {error.message}") from error
        arrays = {alias: tensor.numpy() for alias, tensor in parsed.items()}
        return convert_integers(arrays, self._specs, where)


def convert_integers(
    parsed: Mapping[str, Array], specs: Mapping[str, TensorSpec], where: str
) -> dict[str, Array]:
    """Convert parsed integers to the dtypes of their inputs; other inputs stay as they are.

    An Example has no unsigned integers, so that a uint64 of 2**63 or more is a negative int64 in
    it.

    Args:
      parsed: input alias → array [examples, ...], as the function of `make_parser` returns them.
    """
    return {
        alias: _convert_integers(alias, array, specs[alias], where)
        if _is_integer(specs[alias])
        else array
        for alias, array in parsed.items()
    }


def _convert_integers(alias: str, array: Array, spec: TensorSpec, where: str) -> Array:
    converted: Array = array.astype(tf.as_dtype(spec.dtype).as_numpy_dtype)
    has_changed = converted.astype(array.dtype) != array
    if has_changed.any():
        raise InvalidTensor(
            f"{where}: the input {alias!r} has the value {array[has_changed][0]}, which is out of "
            f"the range of {spec.dtype}. Correct the Examples, or choose another signature."
        )
    return converted


def _is_integer(spec: TensorSpec) -> bool:
    return bool(tf.as_dtype(spec.dtype).is_integer)


def _feature(alias: str, spec: TensorSpec) -> Any:
    dtype = tf.as_dtype(spec.dtype)
    row_shape = None if not spec.shape else spec.shape[1:]
    is_parsable = dtype.is_floating or dtype.is_integer or dtype in (tf.string, tf.bool)
    if row_shape is None or None in row_shape or not is_parsable:
        raise UnsupportedModel(
            f"the input {alias!r} of the signature is {spec}, whose values no "
            f"tf.train.Example can hold. Give --input-format=requests or jsonl, or choose a "
            f"--signature that takes serialised examples."
        )
    if dtype.is_floating:
        return tf.io.FixedLenFeature(row_shape, tf.float32)
    return tf.io.FixedLenFeature(row_shape, tf.string if dtype == tf.string else tf.int64)
