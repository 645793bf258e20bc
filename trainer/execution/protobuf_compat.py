"""graph.pbtxt, which TensorFlow 2.20 writes with an argument that protobuf 7 does not take."""

import inspect
from types import SimpleNamespace
from typing import Any

from google.protobuf import text_format

from trainer.tensorflow_internals import graph_io


def patch_graph_io() -> None:
    """Has TensorFlow write graphs as text with any protobuf that tpuserve is installed with."""
    takes = inspect.signature(text_format.MessageToString).parameters
    if "float_format" not in takes:
        graph_io.text_format = SimpleNamespace(MessageToString=_message_to_string)


def _message_to_string(message: Any, *, float_format: str = "", **options: Any) -> str:
    """What protobuf gives; an empty float_format is what it does anyway."""
    assert not float_format
    return str(text_format.MessageToString(message, **options))
