"""Patches TensorFlow so that it can write graph.pbtxt with protobuf 7.

TensorFlow 2.20 passes an argument, `float_format`, that protobuf 7 removed.
"""

import inspect
from types import SimpleNamespace
from typing import Any

from google.protobuf import text_format

from trainer.tensorflow_internals import graph_io


def patch_graph_io() -> None:
    """Patch TensorFlow's graph_io to omit the argument `float_format` if protobuf refuses it."""
    parameters = inspect.signature(text_format.MessageToString).parameters
    if "float_format" not in parameters:
        graph_io.text_format = SimpleNamespace(MessageToString=_message_to_string)


def _message_to_string(message: Any, *, float_format: str = "", **options: Any) -> str:
    """Return a protobuf message as text, without passing `float_format` to protobuf.

    TensorFlow passes an empty `float_format`, which means the default format.
    """
    assert not float_format
    return str(text_format.MessageToString(message, **options))
