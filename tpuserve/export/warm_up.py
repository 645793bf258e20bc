"""Writes the warm-up file: requests that a server runs before it reports a model as available.

Source: tensorflow/serving, servables/tensorflow/saved_model_warmup.cc.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from tpuserve import samples, validation
from tpuserve.errors import ExportError, InvalidInput, InvalidSetting, InvalidType
from tpuserve.graph.state_writes import WriteFinder
from tpuserve.saved_model import batch_functions, warm_up_file

logger = logging.getLogger(__name__)

FILE = warm_up_file.PATH.as_posix()

# The largest number of records in a warm-up file: TensorFlow Serving refuses to load a model with
# more records.
MOST_RECORDS = 1000

_PREDICT, _CLASSIFY, _REGRESS = (
    f"tensorflow/serving/{method}" for method in ("predict", "classify", "regress")
)


@dataclass(frozen=True)
class WarmUp:
    """The requests that a server runs before it reports a model as available.

    Attributes:
      batch_sizes: Batch sizes in rows. None means the allowed_batch_sizes of the graph's
        BatchFunctions, or one row if there are none.
      inputs: Name of an input in the signatures → array with at least one row.
      seed: Random seed of the generated inputs.

    Raises:
      InvalidSetting: A batch size is less than 1.
      InvalidType: An attribute has the wrong type.
    """

    batch_sizes: Sequence[int] | None = None
    inputs: Mapping[str, Any] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        validation.check_sizes("batch_sizes", self.batch_sizes, optional=True)
        if self.batch_sizes is not None and not self.batch_sizes:
            raise InvalidSetting("batch_sizes is empty. Give a number of rows, or None.")
        if self.inputs is not None and not isinstance(self.inputs, Mapping):
            raise InvalidType(f"inputs is {self.inputs!r}. Give a dict of alias → array.")


def normalize_warm_up(value: WarmUp | bool | None) -> WarmUp | None:
    """Convert the argument `warm_up` of an export: True to a default WarmUp, False to None."""
    if value is None or isinstance(value, WarmUp):
        return value
    if isinstance(value, bool):
        return WarmUp() if value else None
    raise InvalidType(f"warm_up is {value!r}. Give a tpuserve.export.WarmUp, True or None.")


def write_warm_up_file(
    directory: str | os.PathLike[str], meta_graph_defs: Any, warm_up: WarmUp
) -> int:
    """Write the warm-up file of a SavedModel, with a request for each signature and batch size.

    Returns:
      The number of records. A signature that writes, such as a counter, gets records only of inputs
      that `warm_up` gives. Without a record, no file is written.

    Raises:
      ExportError: No signature has the method Predict, Classify or Regress, there would be more
        than `MOST_RECORDS` records, or `warm_up.inputs` do not fit the signatures.
    """
    metagraphs = list(meta_graph_defs) if _is_many(meta_graph_defs) else [meta_graph_defs]
    served = _find_served_signatures(metagraphs)
    allowed = {
        size
        for metagraph in metagraphs
        for size in batch_functions.allowed_batch_sizes(metagraph.graph_def)
    }
    sizes = sorted(set(warm_up.batch_sizes or allowed or [1]))
    _check_aliases(warm_up, served)
    planned = [
        (name, metagraph, rows)
        for name, metagraph in sorted(served.items())
        if _may_run(name, metagraph, warm_up)
        for rows in _record_sizes(metagraph, name, sizes)
    ]
    if len(planned) > MOST_RECORDS:
        raise ExportError(
            f"the warm-up file would have {len(planned)} records, and TensorFlow Serving takes "
            f"{MOST_RECORDS} at most. Give fewer batch_sizes."
        )
    if not planned:
        return 0
    records = [_make_record(name, metagraph, rows, warm_up) for name, metagraph, rows in planned]
    path = tf.io.gfile.join(os.fspath(directory), FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return len(records)


def _is_many(meta_graph_defs: Any) -> bool:
    return not hasattr(meta_graph_defs, "signature_def")


def _find_served_signatures(metagraphs: Sequence[Any]) -> dict[str, Any]:
    """Find the signatures that a server answers: those of method Predict, Classify or Regress."""
    served = {
        name: metagraph
        for metagraph in reversed(metagraphs)
        if tf.saved_model.SERVING in metagraph.meta_info_def.tags
        for name, signature in metagraph.signature_def.items()
        if signature.method_name in (_PREDICT, _CLASSIFY, _REGRESS)
    }
    if not served:
        raise ExportError(
            "warm_up is set, and no metagraph has a signature that is served. Export for PREDICT, "
            "or leave warm_up out."
        )
    return served


def _record_sizes(metagraph: Any, name: str, sizes: Sequence[int]) -> Sequence[int]:
    if samples.has_open_batch_size(metagraph, name):
        return sizes
    shapes = [info.tensor_shape for info in metagraph.signature_def[name].inputs.values()]
    return [next((shape.dim[0].size for shape in shapes if shape.dim), 1)]


def _may_run(name: str, metagraph: Any, warm_up: WarmUp) -> bool:
    """Return whether warm-up may run a signature, and log if not: generated inputs never write."""
    signature, graph = metagraph.signature_def[name], metagraph.graph_def
    if signature.inputs.keys() <= (warm_up.inputs or {}).keys():
        return True
    functions = {function.signature.name: function for function in graph.library.function}
    nodes = {node.name: node for node in graph.node}
    write = WriteFinder(functions).in_signature(signature, nodes)
    if write is not None:
        logger.warning(
            "no warm-up request is generated for signature %r: it %s. Give its inputs in "
            "WarmUp(inputs=...) if the model may start so.",
            name,
            write,
        )
    return write is None


def _check_aliases(warm_up: WarmUp, served: Mapping[str, Any]) -> None:
    known = {
        alias
        for name, metagraph in served.items()
        for alias in metagraph.signature_def[name].inputs
    }
    unknown = sorted(set(warm_up.inputs or ()) - known)
    if unknown:
        raise ExportError(
            f"warm-up inputs {', '.join(map(repr, unknown))} are inputs of no signature; found "
            f"{', '.join(map(repr, sorted(known)))}. Use those names."
        )


def _make_record(name: str, metagraph: Any, rows: int, warm_up: WarmUp) -> bytes:
    """Return one record of the warm-up file: a serialised PredictionLog with a request."""
    # Import TensorFlow Serving's protos only here, so that exports without a warm-up file do not
    # need the package.
    from tensorflow_serving.apis import prediction_log_pb2

    signature = metagraph.signature_def[name]
    log = prediction_log_pb2.PredictionLog()
    inputs = _make_inputs(name, metagraph, rows, warm_up)
    if signature.method_name == _PREDICT:
        request = log.predict_log.request
        for alias, array in inputs.items():
            request.inputs[alias].CopyFrom(tf.make_tensor_proto(array))
    else:
        is_classify = signature.method_name == _CLASSIFY
        request = (log.classify_log if is_classify else log.regress_log).request
        (examples,) = inputs.values()
        for serialized in np.ravel(examples):
            request.input.example_list.examples.append(_parse_example(serialized))
    request.model_spec.signature_name = name
    return bytes(log.SerializeToString(deterministic=True))


def _parse_example(serialized: bytes) -> Any:
    try:
        return tf.train.Example.FromString(serialized)
    except DecodeError:
        # The model does not parse its inputs as tf.Examples, but a Classify or Regress request can
        # only hold tf.Examples. Use an empty one.
        return tf.train.Example()


def _make_inputs(name: str, metagraph: Any, rows: int, warm_up: WarmUp) -> dict[str, Any]:
    """Return the inputs of a request; generate those that `warm_up.inputs` does not have."""
    infos = metagraph.signature_def[name].inputs
    from_user = {
        alias: _fit_input(
            f"warm-up input {alias!r} of signature {name!r}", value, infos[alias], rows
        )
        for alias, value in (warm_up.inputs or {}).items()
        if alias in infos
    }
    if len(from_user) == len(infos):
        return from_user
    try:
        generated = samples.generate_inputs(metagraph, name, rows, seed=warm_up.seed)
    except InvalidInput as error:
        raise ExportError(f"cannot generate a warm-up record: {error}") from error
    return {**generated, **from_user}


def _fit_input(subject: str, value: Any, info: Any, rows: int) -> Any:
    """Return an input from the user as an array of `rows` rows; repeat or drop rows if needed."""
    array = _to_array(subject, value, tf.as_dtype(info.dtype))
    shape = tf.TensorShape(info.tensor_shape)
    if shape.rank == 0:
        expected, fitted = shape, array
    else:
        expected = shape if shape.rank is None else tf.TensorShape([None]).concatenate(shape[1:])
        if array.ndim == 0 or not len(array):
            raise ExportError(
                f"{subject} has no rows, but shape {array.shape}. Give at least one row."
            )
        fitted = array[np.arange(rows) % len(array)]
    if not expected.is_compatible_with(array.shape):
        raise ExportError(
            f"{subject} has shape {array.shape}, and the signature takes {expected}. Give an array "
            f"of that shape."
        )
    return fitted


def _to_array(subject: str, value: Any, dtype: Any) -> Any:
    """Convert an input from the user to an array of the dtype in the signature."""
    if dtype == tf.string:
        array = np.asarray(value, object)
        strings = [text.encode() if isinstance(text, str) else text for text in array.ravel()]
        if not all(isinstance(string, bytes) for string in strings):
            raise ExportError(
                f"{subject} is {value!r}, and the signature takes strings. Give str or bytes."
            )
        encoded = np.empty(len(strings), object)
        encoded[:] = strings
        return encoded.reshape(array.shape)
    # Convert lists of numbers, which have no dtype, to the dtype in the signature. An array keeps
    # its dtype, and must have the right one.
    array = value if hasattr(value, "dtype") else np.asarray(value, dtype.as_numpy_dtype)
    array = np.asarray(array)
    if array.dtype != dtype.as_numpy_dtype:
        raise ExportError(
            f"{subject} is of type {array.dtype}, and the signature takes {dtype.name}. Convert "
            f"the array."
        )
    return array
