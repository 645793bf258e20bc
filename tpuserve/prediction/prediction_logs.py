"""Serialises PredictionLog messages.

The messages are joined from bytes, because protobuf's message objects take a multiple of the time:
for a row of a small model, they take longer than the run of the model.

Source: tensorflow_serving/apis/prediction_log.proto, predict.proto, model.proto;
tensorflow/core/framework/tensor.proto. The numbers below are those of their fields.
"""

from collections.abc import Mapping, Sequence

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


def encode_batch(batch: Batch, outputs: Mapping[str, Array]) -> list[bytes]:
    """Return a serialised PredictionLog for each record of a batch.

    The tensors of a row have a first dimension of 1, as in a request of one row.

    Args:
      batch: the records.
      outputs: output alias → [rows, ...].
    """
    requests = batch.requests or _encode_requests(batch)
    responses = _encode_maps(_RESPONSE_OUTPUTS, outputs, batch.row_counts)
    return [
        _field(_PREDICT_LOG, _field(_LOG_REQUEST, request) + _field(_LOG_RESPONSE, response))
        for request, response in zip(requests, responses, strict=True)
    ]


def _encode_requests(batch: Batch) -> list[bytes]:
    name = _field(_SPEC_SIGNATURE_NAME, batch.signature_name.encode())
    spec = _field(_REQUEST_MODEL_SPEC, name)
    return [
        spec + inputs for inputs in _encode_maps(_REQUEST_INPUTS, batch.inputs, batch.row_counts)
    ]


def _encode_maps(
    field: int, tensors: Mapping[str, Array], row_counts: Sequence[int] | None
) -> list[bytes]:
    """Return a serialised map of alias → TensorProto for each record.

    Args:
      field: the number of the map's field.
      tensors: alias → [rows, ...].
      row_counts: the rows of each record; None for one record with the whole tensors.
    """
    columns = []
    for alias, array in sorted(tensors.items()):
        key = _field(_KEY, alias.encode())
        encode = _encode_strings if array.dtype.hasobject else _encode_numbers
        if row_counts is None:
            values = [encode(np.asarray(array).reshape(-1), array.shape)]
        else:
            values = _encode_slices(array, row_counts)
        columns.append([_field(field, key + _field(_VALUE, value)) for value in values])
    if not columns:
        return [b""] * (1 if row_counts is None else len(row_counts))
    return [b"".join(parts) for parts in zip(*columns, strict=True)]


def _encode_slices(array: Array, row_counts: Sequence[int]) -> list[bytes]:
    """Return a serialised TensorProto for the rows of each record."""
    row_shape = array.shape[1:]
    size = int(np.prod(row_shape))
    ends = np.cumsum(row_counts).tolist()
    if array.dtype.hasobject:
        strings = [_field(_TENSOR_STRINGS, string) for string in array.reshape(-1).tolist()]
        heads = {count: _tensor_head(array, (count, *row_shape)) for count in set(row_counts)}
        return [
            heads[count] + b"".join(strings[(end - count) * size : end * size])
            for end, count in zip(ends, row_counts, strict=True)
        ]
    content = array.tobytes()
    size *= array.itemsize
    heads = {
        count: _tensor_head(array, (count, *row_shape)) + _prefix(_TENSOR_CONTENT, count * size)
        for count in set(row_counts)
    }
    return [
        heads[count] + content[(end - count) * size : end * size]
        for end, count in zip(ends, row_counts, strict=True)
    ]


def _encode_numbers(flat: Array, shape: tuple[int, ...]) -> bytes:
    return _tensor_head(flat, shape) + _field(_TENSOR_CONTENT, flat.tobytes())


def _encode_strings(flat: Array, shape: tuple[int, ...]) -> bytes:
    strings = [_field(_TENSOR_STRINGS, string) for string in flat.tolist()]
    return b"".join([_tensor_head(flat, shape), *strings])


def _tensor_head(array: Array, shape: tuple[int, ...]) -> bytes:
    """Return the dtype and the shape of a serialised TensorProto."""
    number = tf.string if array.dtype.hasobject else tf.as_dtype(array.dtype)
    sizes = [_varint(_DIM_SIZE << 3) + _varint(size) for size in shape]
    return b"".join(
        (
            _varint(_TENSOR_DTYPE << 3),
            _varint(number.as_datatype_enum),
            _field(_TENSOR_SHAPE, b"".join([_field(_SHAPE_DIM, size) for size in sizes])),
        )
    )


def _field(number: int, content: bytes) -> bytes:
    return _prefix(number, len(content)) + content


def _prefix(number: int, length: int) -> bytes:
    """Return the tag and the length that precede the content of a field of `length` bytes."""
    tag = number << 3 | _LENGTH_DELIMITED
    # Most lengths are small.
    return bytes((tag, length)) if length < 128 else bytes((tag,)) + _varint(length)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
