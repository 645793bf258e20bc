"""Serialises PredictionLog messages.

The messages are joined from bytes, because protobuf's message objects take a multiple of the time:
for a row of a small model, they take longer than the run of the model. Most records of a file
differ only in the contents of their tensors, so that one template serves many records.

Source: tensorflow_serving/apis/prediction_log.proto, predict.proto, model.proto;
tensorflow/core/framework/tensor.proto. The numbers below are those of their fields.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tpuserve.prediction.batch import Batch
from tpuserve.runtime.loaded_model import Array

_PREDICT_LOG = 6
_LOG_REQUEST, _LOG_RESPONSE = 1, 2
_REQUEST_MODEL_SPEC, _REQUEST_INPUTS = 1, 2
_RESPONSE_OUTPUTS = 1
_SPEC_SIGNATURE_NAME = 3
_KEY, _VALUE = 1, 2
_TENSOR_DTYPE, _TENSOR_SHAPE, _TENSOR_CONTENT, _TENSOR_STRINGS = 1, 2, 4, 8
_SHAPE_DIM, _DIM_SIZE = 2, 1

_LENGTH_DELIMITED = 2


class _Part(NamedTuple):
    """A part of a serialised message.

    Attributes:
      size: the size of the part in bytes.
      template: the part as a template of the operator %, with b"%b" for each content.
    """

    size: int
    template: bytes


class _Layout(NamedTuple):
    """What the tensors of an alias have in common in all records of a batch.

    Attributes:
      alias: the alias of the input or output.
      dtype: the number of the dtype in tensorflow.DataType.
      shape: the sizes of the dimensions, without the number of rows if records have rows.
      content_field: the field of TensorProto whose value is the content of a record; None if the
        content consists of whole fields.
    """

    alias: str
    dtype: int
    shape: tuple[int, ...]
    content_field: int | None


def encode_batch(batch: Batch, outputs: Mapping[str, Array]) -> list[bytes]:
    """Return a serialised PredictionLog for each record of a batch.

    The tensors of a row have a first dimension of 1, as in a request of one row.

    Args:
      batch: the records.
      outputs: output alias → [rows, ...].
    """
    counts = batch.row_counts
    inputs = {} if batch.requests else batch.inputs
    input_columns = [_to_column(*item, counts) for item in sorted(inputs.items())]
    output_columns = [_to_column(*item, counts) for item in sorted(outputs.items())]
    contents = [column for _, column in (*input_columns, *output_columns)]
    if batch.requests:
        contents.insert(0, list(batch.requests))
    # The sizes of the dimension of rows: none if the tensors are whole.
    rows = [()] if counts is None else [(count,) for count in counts]
    sizes = list(zip(rows, *(map(len, column) for column in contents), strict=True))
    signature_name = None if batch.requests else batch.signature_name
    input_layouts = tuple(layout for layout, _ in input_columns)
    output_layouts = tuple(layout for layout, _ in output_columns)
    templates = {
        record_sizes: _make_template(signature_name, input_layouts, output_layouts, *record_sizes)
        for record_sizes in set(sizes)
    }
    records = zip(*contents, strict=True) if contents else [()] * len(sizes)
    return [
        templates[record_sizes] % record
        for record_sizes, record in zip(sizes, records, strict=True)
    ]


def _to_column(
    alias: str, array: Array, row_counts: Sequence[int] | None
) -> tuple[_Layout, list[bytes]]:
    """Return the layout of a tensor, and its content for each record.

    Args:
      alias: the alias of the input or output.
      array: the tensor, [rows, ...].
      row_counts: the rows of each record; None for one record with the whole tensor.
    """
    array = np.asarray(array)
    shape = array.shape if row_counts is None else array.shape[1:]
    size = int(np.prod(shape))
    ends: list[int] = [size] if row_counts is None else (np.cumsum(row_counts) * size).tolist()
    begins = [0, *ends[:-1]]
    if not array.dtype.hasobject:
        dtype = tf.as_dtype(array.dtype).as_datatype_enum
        data, item = array.tobytes(), array.itemsize
        column = [data[begin * item : end * item] for begin, end in zip(begins, ends, strict=True)]
        return _Layout(alias, dtype, shape, _TENSOR_CONTENT), column
    dtype = tf.string.as_datatype_enum
    strings: list[bytes] = array.reshape(-1).tolist()
    if ends == list(range(1, len(strings) + 1)):
        return _Layout(alias, dtype, shape, _TENSOR_STRINGS), strings
    fields = [_prefix(_TENSOR_STRINGS, len(string)) + string for string in strings]
    column = [b"".join(fields[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    return _Layout(alias, dtype, shape, None), column


# A file of records of one size needs one template. 1024 templates of some hundred bytes are small.
@functools.lru_cache(maxsize=1024)
def _make_template(
    signature_name: str | None,
    inputs: tuple[_Layout, ...],
    outputs: tuple[_Layout, ...],
    rows: tuple[int, ...],
    *sizes: int,
) -> bytes:
    """Return a serialised PredictionLog with b"%b" for each content.

    Args:
      signature_name: the signature; None if the first content is the serialised request.
      inputs: the layouts of the inputs.
      outputs: the layouts of the outputs.
      rows: the number of rows of the record; empty if its tensors are whole.
      sizes: the sizes of all contents in bytes, in the order of their places.
    """
    remaining = iter(sizes)
    if signature_name is None:
        request = _Part(next(remaining), b"%b")
    else:
        spec = _field(_SPEC_SIGNATURE_NAME, _literal(signature_name.encode()))
        entries = [_map_entry(_REQUEST_INPUTS, layout, rows, next(remaining)) for layout in inputs]
        request = _join(_field(_REQUEST_MODEL_SPEC, spec), *entries)
    response = _join(
        *[_map_entry(_RESPONSE_OUTPUTS, layout, rows, next(remaining)) for layout in outputs]
    )
    log = _join(_field(_LOG_REQUEST, request), _field(_LOG_RESPONSE, response))
    return _field(_PREDICT_LOG, log).template


def _map_entry(field: int, layout: _Layout, rows: tuple[int, ...], size: int) -> _Part:
    """Return an entry of a map of alias → TensorProto.

    Args:
      field: the number of the map's field.
      layout: the layout of the tensor.
      rows: the sizes of the dimensions before those of the layout.
      size: the size of the content in bytes.
    """
    sizes = [_varint(_DIM_SIZE << 3) + _varint(count) for count in (*rows, *layout.shape)]
    dimensions = [_field(_SHAPE_DIM, _literal(encoded)) for encoded in sizes]
    content = _Part(size, b"%b")
    tensor = _join(
        _literal(_varint(_TENSOR_DTYPE << 3) + _varint(layout.dtype)),
        _field(_TENSOR_SHAPE, _join(*dimensions)),
        content if layout.content_field is None else _field(layout.content_field, content),
    )
    key = _field(_KEY, _literal(layout.alias.encode()))
    return _field(field, _join(key, _field(_VALUE, tensor)))


def _literal(data: bytes) -> _Part:
    """Return a part without contents."""
    return _Part(len(data), data.replace(b"%", b"%%"))


def _join(*parts: _Part) -> _Part:
    """Return consecutive parts as one."""
    return _Part(sum(part.size for part in parts), b"".join(part.template for part in parts))


def _field(number: int, value: _Part) -> _Part:
    """Return a field of bytes, of a string or of a message."""
    return _join(_literal(_prefix(number, value.size)), value)


def _prefix(number: int, size: int) -> bytes:
    """Return the tag and the size that precede the value of a field of `size` bytes."""
    return bytes((number << 3 | _LENGTH_DELIMITED,)) + _varint(size)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
