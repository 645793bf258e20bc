"""Encodes the outputs of a model as the JSON body of a REST response.

The layout is TensorFlow Serving's: objects indented by four spaces a level, arrays on one line.
"""

from collections.abc import Mapping

import numpy as np

from server.codec import array_to_json
from server.codec.array_to_json import JsonText
from server.servables.servable import Array
from tpuserve.errors import InvalidTensor

_INDENT = b"    "


def encode_row_format(outputs: Mapping[str, Array]) -> JsonText:
    """Encode the outputs of predict in row format: {"predictions": [...]}.

    Each item of the list is a row (one index of the first dimension): an object with a member for
    each output.

    Args:
      outputs: The array of each output, by the alias of the output. Each array has the shape [b,
        ...], with the same b for all outputs.

    Raises:
      InvalidTensor: There is no output, the outputs have no common batch size, or JSON cannot
        represent a type.
    """
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        if not array.ndim:
            raise _missing_shape_error(name)
        return _encode_list_member("predictions", array_to_json.encode_tensor(name, array))
    count = _get_batch_size(outputs)
    if not count:
        return _encode_object({"predictions": b"[]"})
    # Encode a limited number of rows at a time, because bytes objects for all rows at once would
    # take several times the memory of the body.
    row_size = max(array.size // count for array in outputs.values())
    step = max(1, array_to_json.CHUNK_SIZE // max(1, row_size))
    encoded = bytearray(b'{\n    "predictions": [')
    for start in range(0, count, step):
        rows = [
            array_to_json.encode_rows(name, outputs[name][start : start + step])
            for name in sorted(outputs)
        ]
        for row in zip(*rows, strict=True):
            encoded += b"\n" if encoded.endswith(b"[") else b",\n"
            members = dict(zip(sorted(outputs), row, strict=True))
            encoded += _INDENT * 2 + _encode_object(members, level=2)
    encoded += b"\n" + _INDENT + b"]\n}"
    return encoded


def encode_columnar_format(outputs: Mapping[str, Array]) -> JsonText:
    """Encode the outputs of predict in columnar format: {"outputs": ...}.

    The value of "outputs" is an object with the array of each output.
    """
    _check_not_empty(outputs)
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        return _encode_list_member("outputs", array_to_json.encode_tensor(name, array))
    encoded = bytearray(b'{\n    "outputs": {')
    for position, name in enumerate(sorted(outputs)):
        encoded += b",\n" if position else b"\n"
        encoded += _INDENT * 2 + array_to_json.quote_string(name.encode()) + b": "
        array_to_json.append_tensor(encoded, name, outputs[name])
    encoded += b"\n" + _INDENT + b"}\n}"
    return encoded


def encode_classifications(classes: Array | None, scores: Array | None) -> JsonText:
    """Encode the result of classify: {"results": [[[label, score], ...], ...]}.

    Args:
      classes: The labels, an object array of bytes of shape [n, k], for n examples and k classes.
        None means empty labels.
      scores: The scores, float32 of shape [n, k]. None means that all scores are 0.
    """
    arrays = (classes, scores, np.empty((0, 0)))
    shape = next(array.shape for array in arrays if array is not None)
    if not shape[0]:
        raise InvalidTensor("Cannot convert empty ClassificationResults to JSON")
    labels = np.full(shape, b"", object) if classes is None else classes
    numbers = np.zeros(shape, np.float32) if scores is None else scores
    pairs = [
        b"[" + array_to_json.quote_string(label) + b", " + score + b"]"
        for label, score in zip(
            labels.reshape(-1).tolist(),
            array_to_json.encode_rows("", numbers.reshape(-1)),
            strict=True,
        )
    ]
    return _encode_list_member("results", array_to_json.nest(pairs, shape))


def encode_regressions(values: Array) -> JsonText:
    """Encode the result of regress: {"results": [value, ...]}.

    Args:
      values: The values, float32 of shape [n], for n examples.
    """
    if not values.size:
        raise InvalidTensor("Cannot convert empty RegressionResults to JSON")
    return _encode_list_member("results", array_to_json.encode_tensor("", values))


def encode_error(message: str) -> bytes:
    """Encode the body of an error response: {"error": message}."""
    # Replace lone surrogates by "?", because UTF-8 cannot encode them. The message may quote them
    # from a request.
    return _encode_object({"error": array_to_json.quote_string(message.encode("utf-8", "replace"))})


def _get_batch_size(outputs: Mapping[str, Array]) -> int:
    _check_not_empty(outputs)
    expected: int | None = None
    for name in sorted(outputs):
        array = outputs[name]
        if not array.ndim:
            raise _missing_shape_error(name)
        expected = array.shape[0] if expected is None else expected
        if array.shape[0] != expected:
            raise InvalidTensor(
                f"Tensor name: {name} has inconsistent batch size: {array.shape[0]} "
                f"expecting: {expected}"
            )
    return expected or 0


def _missing_shape_error(name: str) -> InvalidTensor:
    return InvalidTensor(f"Tensor name: {name} has no shape information ")


def _check_not_empty(outputs: Mapping[str, Array]) -> None:
    if not outputs:
        raise InvalidTensor("Cannot convert empty tensor map to JSON")


def _encode_list_member(key: str, value: JsonText) -> JsonText:
    # Put the closing bracket of the list on a separate line, as TensorFlow Serving does.
    before, after = b'{\n    "%s": ' % key.encode(), b"\n}"
    is_list = len(value) > 2 and value.endswith(b"]")
    if type(value) is bytearray:
        # If the text is a bytearray, extend it in place, because copying a large text would take
        # long.
        value[:0] = before
        if is_list:
            value[-1:] = b"\n    ]"
        value += after
        return value
    return before + (value[:-1] + b"\n    ]" if is_list else value) + after


def _encode_object(members: Mapping[str, JsonText], level: int = 0) -> bytes:
    before = b"\n" + _INDENT * (level + 1)
    encoded = b",".join(
        before + array_to_json.quote_string(key.encode()) + b": " + value
        for key, value in members.items()
    )
    return b"{" + encoded + b"\n" + _INDENT * level + b"}"
