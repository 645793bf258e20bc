from pathlib import Path

import pytest
import tensorflow as tf
from google.protobuf import text_format

from trainer.execution import protobuf_compat


@pytest.mark.parametrize("is_str_parsable", [True, False])
def test_a_graph_is_written_as_text_with_any_protobuf(
    is_str_parsable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protobuf_compat, "_is_str_parsable", lambda: is_str_parsable)
    protobuf_compat.patch_graph_io()
    with tf.Graph().as_default() as graph:
        tf.constant([0.1, float("inf")], name="number")
        tf.constant(b"\xff\x00'\"\n", name="text")
    path = tf.io.write_graph(graph, str(tmp_path), "graph.pbtxt")
    text = Path(path).read_text()
    assert 'name: "number"' in text
    assert text_format.Parse(text, tf.compat.v1.GraphDef()) == graph.as_graph_def()


def test_installed_protobuf_formats_fast() -> None:
    assert protobuf_compat._is_str_parsable()
