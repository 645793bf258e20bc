"""What a model has answered → the body of a response.

The layout is TensorFlow Serving's: objects of four spaces a level, arrays on one line.
"""

from collections.abc import Mapping

import numpy as np

from server.codec import array_to_json
from server.codec.array_to_json import Text
from server.servables.servable import Array
from tpuserve.errors import InvalidTensor

_LEVEL = b"    "


def encode_rows(outputs: Mapping[str, Array]) -> Text:
    """{"predictions": [...]}: a value a row for one output, an object a row for several.

    Args:
      outputs: alias → [b, ...], one b for all.

    Raises:
      InvalidTensor: no output, one that is no batch, or of a type that JSON has no form for.
    """
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        if not array.ndim:
            raise _no_shape(name)
        return _list("predictions", array_to_json.encode(name, array))
    count = _batch_size(outputs)
    if not count:
        return _object({"predictions": b"[]"})
    # Some rows at a time: all of them in pieces would take several times the memory of the text.
    step = max(1, array_to_json.MANY // max(1, *(each.size // count for each in outputs.values())))
    written = bytearray(b'{\n    "predictions": [')
    for start in range(0, count, step):
        rows = [
            array_to_json.encode_each(name, outputs[name][start : start + step])
            for name in sorted(outputs)
        ]
        for row in zip(*rows, strict=True):
            written += b"\n" if written.endswith(b"[") else b",\n"
            written += _LEVEL * 2 + _object(dict(zip(sorted(outputs), row, strict=True)), level=2)
    written += b"\n" + _LEVEL + b"]\n}"
    return written


def encode_columns(outputs: Mapping[str, Array]) -> Text:
    """{"outputs": ...}: the value of one output, or an object of several; of any shapes.

    Raises:
      InvalidTensor: no output, or one of a type that JSON has no form for.
    """
    _check_any(outputs)
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        return _list("outputs", array_to_json.encode(name, array))
    written = bytearray(b'{\n    "outputs": {')
    for position, name in enumerate(sorted(outputs)):
        written += b",\n" if position else b"\n"
        written += _LEVEL * 2 + array_to_json.quote(name.encode()) + b": "
        array_to_json.append(written, name, outputs[name])
    written += b"\n" + _LEVEL + b"}\n}"
    return written


def encode_classifications(classes: Array | None, scores: Array | None) -> Text:
    """{"results": [[[label, score], ...], ...]}.

    Args:
      classes: [n, k] of bytes; None for labels that are empty.
      scores: [n, k] of float32; None for zeros.

    Raises:
      InvalidTensor: no classification at all.
    """
    shape = next(each.shape for each in (classes, scores, np.empty((0, 0))) if each is not None)
    if not shape[0]:
        raise InvalidTensor("Cannot convert empty ClassificationResults to JSON")
    labels = np.full(shape, b"", object) if classes is None else classes
    numbers = np.zeros(shape, np.float32) if scores is None else scores
    pairs = [
        b"[" + array_to_json.quote(label) + b", " + score + b"]"
        for label, score in zip(
            labels.reshape(-1).tolist(),
            array_to_json.encode_each("", numbers.reshape(-1)),
            strict=True,
        )
    ]
    return _list("results", array_to_json.nested(pairs, shape))


def encode_regressions(values: Array) -> Text:
    """{"results": [value, ...]}.

    Args:
      values: [n] of float32.

    Raises:
      InvalidTensor: no regression at all.
    """
    if not values.size:
        raise InvalidTensor("Cannot convert empty RegressionResults to JSON")
    return _list("results", array_to_json.encode("", values))


def encode_error(message: str) -> bytes:
    """{"error": message}."""
    # A message may quote half of a surrogate pair.
    return _object({"error": array_to_json.quote(message.encode("utf-8", "replace"))})


def _batch_size(outputs: Mapping[str, Array]) -> int:
    _check_any(outputs)
    expected: int | None = None
    for name in sorted(outputs):
        array = outputs[name]
        if not array.ndim:
            raise _no_shape(name)
        expected = array.shape[0] if expected is None else expected
        if array.shape[0] != expected:
            raise InvalidTensor(
                f"Tensor name: {name} has inconsistent batch size: {array.shape[0]} "
                f"expecting: {expected}"
            )
    return expected or 0


def _no_shape(name: str) -> InvalidTensor:
    return InvalidTensor(f"Tensor name: {name} has no shape information ")


def _check_any(outputs: Mapping[str, Array]) -> None:
    if not outputs:
        raise InvalidTensor("Cannot convert empty tensor map to JSON")


def _list(key: str, value: Text) -> Text:
    # The list itself is closed on a line of its own, as TensorFlow Serving does it.
    before, after = b'{\n    "%s": ' % key.encode(), b"\n}"
    is_list = len(value) > 2 and value.endswith(b"]")
    if type(value) is bytearray:
        # It is large, so that no copy of it is made.
        value[:0] = before
        if is_list:
            value[-1:] = b"\n    ]"
        value += after
        return value
    return before + (value[:-1] + b"\n    ]" if is_list else value) + after


def _object(members: Mapping[str, Text], level: int = 0) -> bytes:
    before = b"\n" + _LEVEL * (level + 1)
    written = b",".join(
        before + array_to_json.quote(key.encode()) + b": " + value for key, value in members.items()
    )
    return b"{" + written + b"\n" + _LEVEL * level + b"}"
