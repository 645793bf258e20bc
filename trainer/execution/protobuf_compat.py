"""Patches TensorFlow so that it can write graph.pbtxt with protobuf 7, and writes the file fast."""

from functools import cache
from types import SimpleNamespace
from typing import Any

from google.protobuf import text_format
from tensorflow.core.framework.graph_pb2 import GraphDef

from trainer.tensorflow_internals import graph_io


def patch_graph_io() -> None:
    """Patch TensorFlow's graph_io to write text as `_message_to_string` does."""
    graph_io.text_format = SimpleNamespace(MessageToString=_message_to_string)


def _message_to_string(message: Any, *, float_format: str = "") -> str:
    assert not float_format
    return str(message) if _is_str_parsable() else str(text_format.MessageToString(message))


@cache
def _is_str_parsable() -> bool:
    """Return whether `text_format` can parse the text that `str` makes of a GraphDef."""
    graph = GraphDef()
    node = graph.node.add(name="é'\"\n", input=["^a"])
    node.attr["bytes"].s = bytes(range(256))
    node.attr["floats"].list.f.extend([0.1, -1e-30, float("inf"), float("-inf")])
    try:
        return bool(text_format.Parse(str(graph), GraphDef()) == graph)
    except text_format.ParseError:
        return False
