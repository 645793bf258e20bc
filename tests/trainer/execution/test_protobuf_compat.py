from pathlib import Path

import pytest
import tensorflow as tf

from trainer.execution import protobuf_compat

pytestmark = pytest.mark.slow


def test_a_graph_is_written_as_text_with_any_protobuf(tmp_path: Path) -> None:
    protobuf_compat.patch_graph_io()
    with tf.Graph().as_default() as graph:
        tf.constant(1.5, name="number")
    written = tf.io.write_graph(graph, str(tmp_path), "graph.pbtxt")
    assert 'name: "number"' in Path(written).read_text()
