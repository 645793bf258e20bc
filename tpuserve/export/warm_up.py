"""The warm-up file: requests that a server runs before it says that a model is ready.

Source: tensorflow/serving, servables/tensorflow/saved_model_warmup.cc.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from tpuserve import samples
from tpuserve.errors import ExportError, InvalidInput, InvalidSetting, InvalidType
from tpuserve.saved_model import batch_functions, warm_up_file

FILE = warm_up_file.PATH.as_posix()

# TensorFlow Serving refuses a model with more of them.
MOST_RECORDS = 1000

_PREDICT, _CLASSIFY, _REGRESS = (
    f"tensorflow/serving/{each}" for each in ("predict", "classify", "regress")
)


@dataclass(frozen=True)
class WarmUp:
    """Which requests a server is to run before a model is ready.

    Attributes:
      batch_sizes: in rows; None for the sizes that the graph's BatchFunctions allow, or one row
        where there are none. A signature that takes a fixed number of rows gets that number.
      inputs: alias → array with at least one row, which are repeated to fill a batch, for each
        signature that has this alias. Inputs that are not given are generated; None for all.
      seed: of the generated inputs.

    Raises:
      InvalidSetting: a batch size is less than 1.
      InvalidType: something is of a wrong type.
    """

    batch_sizes: Sequence[int] | None = None
    inputs: Mapping[str, Any] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = self.batch_sizes
        if sizes is not None:
            if isinstance(sizes, str | bytes) or not isinstance(sizes, Sequence):
                raise InvalidType(f"batch_sizes is {sizes!r}. Give a list of numbers of rows.")
            for each in sizes:
                if isinstance(each, bool) or not isinstance(each, Integral):
                    raise InvalidType(f"batch_sizes has {each!r}. Give whole numbers of rows.")
                if each < 1:
                    raise InvalidSetting(f"batch_sizes has {each}. Give numbers of at least 1.")
            if not sizes:
                raise InvalidSetting("batch_sizes is empty. Give a number of rows, or None.")
        if self.inputs is not None and not isinstance(self.inputs, Mapping):
            raise InvalidType(f"inputs is {self.inputs!r}. Give a dict of alias → array.")


def normalize_warm_up(value: WarmUp | bool | None) -> WarmUp | None:
    """A WarmUp as it is, the default one for True, None for False or None.

    Raises:
      InvalidType: it is something else.
    """
    if value is None or isinstance(value, WarmUp):
        return value
    if isinstance(value, bool):
        return WarmUp() if value else None
    raise InvalidType(f"warm_up is {value!r}. Give a tpuserve.export.WarmUp, True or None.")


def write_warm_up_file(
    directory: str | os.PathLike[str], meta_graph_defs: Any, warm_up: WarmUp
) -> int:
    """Writes the warm-up file of a SavedModel; returns how many records it has.

    One record per signature and batch size, of the signatures that are served.

    Args:
      directory: of the SavedModel; it gets the file `FILE`.
      meta_graph_defs: its MetaGraphDefs, or a single one.
      warm_up: which records.

    Raises:
      ExportError: nothing is served, there are more than `MOST_RECORDS`, or a given input fits no
        signature.
    """
    metagraphs = list(meta_graph_defs) if _is_many(meta_graph_defs) else [meta_graph_defs]
    # The metagraphs of one model have the same signatures: whichever is loaded, this fits.
    served = {
        name: metagraph
        for metagraph in reversed(metagraphs)
        if tf.saved_model.SERVING in metagraph.meta_info_def.tags
        for name, signature in metagraph.signature_def.items()
        if signature.method_name in (_PREDICT, _CLASSIFY, _REGRESS)
    }
    if not served:
        raise ExportError(
            "a warm-up file was asked for, and no metagraph has a signature that is served. "
            "Export for PREDICT, or leave warm_up out."
        )
    allowed = {
        size for each in metagraphs for size in batch_functions.allowed_batch_sizes(each.graph_def)
    }
    sizes = sorted(set(warm_up.batch_sizes or allowed or [1]))
    _check_aliases(warm_up, served)
    planned = [
        (name, metagraph, rows)
        for name, metagraph in sorted(served.items())
        for rows in _sizes_of(metagraph, name, sizes)
    ]
    if len(planned) > MOST_RECORDS:
        raise ExportError(
            f"a warm-up file would have {len(planned)} records, and TensorFlow Serving takes "
            f"{MOST_RECORDS} at most. Give fewer batch_sizes."
        )
    records = [_record(*each, warm_up) for each in planned]
    path = tf.io.gfile.join(os.fspath(directory), FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.TFRecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return len(records)


def _is_many(meta_graph_defs: Any) -> bool:
    return not hasattr(meta_graph_defs, "signature_def")


def _sizes_of(metagraph: Any, name: str, sizes: Sequence[int]) -> Sequence[int]:
    if samples.has_open_batch_size(metagraph, name):
        return sizes
    shapes = [each.tensor_shape for each in metagraph.signature_def[name].inputs.values()]
    return [next((each.dim[0].size for each in shapes if each.dim), 1)]


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
            f"{', '.join(map(repr, sorted(known)))}. Name those."
        )


def _record(name: str, metagraph: Any, rows: int, warm_up: WarmUp) -> bytes:
    # It imports TensorFlow Serving's protos, which only those who ask for this file need.
    from tensorflow_serving.apis import prediction_log_pb2

    signature = metagraph.signature_def[name]
    log = prediction_log_pb2.PredictionLog()
    inputs = _inputs(name, metagraph, rows, warm_up)
    if signature.method_name == _PREDICT:
        request = log.predict_log.request
        for alias, array in inputs.items():
            request.inputs[alias].CopyFrom(tf.make_tensor_proto(array))
    else:
        is_classify = signature.method_name == _CLASSIFY
        request = (log.classify_log if is_classify else log.regress_log).request
        (serialized,) = inputs.values()
        for each in np.ravel(serialized):
            request.input.example_list.examples.append(_example(each))
    request.model_spec.signature_name = name
    return bytes(log.SerializeToString(deterministic=True))


def _example(serialized: bytes) -> Any:
    try:
        return tf.train.Example.FromString(serialized)
    except DecodeError:
        # What the model does not parse need hold nothing.
        return tf.train.Example()


def _inputs(name: str, metagraph: Any, rows: int, warm_up: WarmUp) -> dict[str, Any]:
    infos = metagraph.signature_def[name].inputs
    given = {
        alias: _filled(f"warm-up input {alias!r} of signature {name!r}", value, infos[alias], rows)
        for alias, value in (warm_up.inputs or {}).items()
        if alias in infos
    }
    if len(given) == len(infos):
        return given
    try:
        generated = samples.generate_inputs(metagraph, name, rows, seed=warm_up.seed)
    except InvalidInput as error:
        raise ExportError(f"no warm-up record can be made: {error}") from error
    return {**generated, **given}


def _filled(what: str, value: Any, info: Any, rows: int) -> Any:
    dtype = tf.as_dtype(info.dtype)
    array = _array(what, value, dtype)
    shape = tf.TensorShape(info.tensor_shape)
    if shape.rank == 0:
        expected, filled = shape, array
    else:
        expected = shape if shape.rank is None else tf.TensorShape([None]).concatenate(shape[1:])
        if array.ndim == 0 or not len(array):
            raise ExportError(f"{what} has no rows, but shape {array.shape}. Give at least one.")
        filled = array[np.arange(rows) % len(array)]
    if not expected.is_compatible_with(array.shape):
        raise ExportError(f"{what} has shape {array.shape}, and the signature takes {expected}.")
    return filled


def _array(what: str, value: Any, dtype: Any) -> Any:
    if dtype == tf.string:
        array = np.asarray(value, object)
        texts = [each.encode() if isinstance(each, str) else each for each in array.ravel()]
        if not all(isinstance(each, bytes) for each in texts):
            raise ExportError(f"{what} is {value!r}, and the signature takes strings.")
        filled = np.empty(len(texts), object)
        filled[:] = texts
        return filled.reshape(array.shape)
    # Numbers in lists have no type of their own yet.
    array = value if hasattr(value, "dtype") else np.asarray(value, dtype.as_numpy_dtype)
    array = np.asarray(array)
    if array.dtype != dtype.as_numpy_dtype:
        raise ExportError(
            f"{what} is of type {array.dtype}, and the signature takes {dtype.name}. Convert it."
        )
    return array
