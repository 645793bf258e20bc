"""Serialises PredictionLog messages without protobuf's message objects, which are too slow.

For a small model, creating message objects takes longer than running the model.

The constants of this module are field numbers of tensorflow_serving/apis/prediction_log.proto,
predict.proto and model.proto, and of tensorflow/core/framework/tensor.proto.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tpuserve.prediction.batch import InputBatch
from tpuserve.proto.protobuf_wire import (
    WIRE_TYPE_VARINT,
    encode_field,
    encode_varint,
    field_tag,
)
from tpuserve.runtime.loaded_model import Array

_PREDICT_LOG = 6
_LOG_REQUEST, _LOG_RESPONSE = 1, 2
_REQUEST_MODEL_SPEC, _REQUEST_INPUTS = 1, 2
_RESPONSE_OUTPUTS = 1
_SPEC_SIGNATURE_NAME = 3
_KEY, _VALUE = 1, 2
_TENSOR_DTYPE, _TENSOR_SHAPE, _TENSOR_CONTENT, _TENSOR_STRINGS = 1, 2, 4, 8
_SHAPE_DIM, _DIM_SIZE = 2, 1


class _Part(NamedTuple):
    """A part of a serialised message, as a template."""

    size: int
    template: bytes


class _Layout(NamedTuple):
    """The properties of an input or output that are the same in all records of a batch."""

    alias: str
    dtype: int
    shape: tuple[int, ...]
    content_field: int | None


def encode_batch(batch: InputBatch, outputs: Mapping[str, Array]) -> list[bytes]:
    """Return a serialised PredictionLog for each record of a batch.

    If a record is one row of the batch, its tensors have a first dimension of 1.
    """
    counts = batch.row_counts
    inputs = {} if batch.requests else batch.inputs
    input_columns = [_to_column(*item, counts) for item in sorted(inputs.items())]
    output_columns = [_to_column(*item, counts) for item in sorted(outputs.items())]
    contents = [column for _, column in (*input_columns, *output_columns)]
    if batch.requests:
        contents.insert(0, list(batch.requests))
    # For each record, the first dimension of its tensors, as a tuple. If the batch is a single
    # request that is not split, the tuple is empty: `_Layout.shape` then has all dimensions.
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
    """Split a tensor of a batch into the serialised elements of each record."""
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
    tag = field_tag(_TENSOR_STRINGS)
    fields = [encode_field(tag, string) for string in strings]
    column = [b"".join(fields[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    return _Layout(alias, dtype, shape, None), column


# Cache the templates: records whose tensors have the same sizes in bytes share one, so that a file
# needs few templates. A template has some hundred bytes, so that the cache needs little memory.
@functools.lru_cache(maxsize=1024)
def _make_template(
    signature_name: str | None,
    inputs: tuple[_Layout, ...],
    outputs: tuple[_Layout, ...],
    rows: tuple[int, ...],
    *sizes: int,
) -> bytes:
    """Create the template of a serialised PredictionLog for records of the same sizes."""
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
    """Create the template of an entry of a protobuf map from alias to TensorProto."""
    sizes = [
        field_tag(_DIM_SIZE, WIRE_TYPE_VARINT) + encode_varint(count)
        for count in (*rows, *layout.shape)
    ]
    dimensions = [_field(_SHAPE_DIM, _literal(encoded)) for encoded in sizes]
    content = _Part(size, b"%b")
    tensor = _join(
        _literal(field_tag(_TENSOR_DTYPE, WIRE_TYPE_VARINT) + encode_varint(layout.dtype)),
        _field(_TENSOR_SHAPE, _join(*dimensions)),
        content if layout.content_field is None else _field(layout.content_field, content),
    )
    key = _field(_KEY, _literal(layout.alias.encode()))
    return _field(field, _join(key, _field(_VALUE, tensor)))


def _literal(data: bytes) -> _Part:
    return _Part(len(data), data.replace(b"%", b"%%"))


def _join(*parts: _Part) -> _Part:
    return _Part(sum(part.size for part in parts), b"".join(part.template for part in parts))


def _field(number: int, value: _Part) -> _Part:
    """Create the template of a protobuf field that holds bytes, a string or a message."""
    return _join(_literal(field_tag(number) + encode_varint(value.size)), value)
