from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework.graph_pb2 import GraphDef
from tensorflow.python.saved_model import loader_impl

from tests.tpuserve.compilation import exports
from tpuserve.errors import UnsupportedOnTpu
from tpuserve.lowering import lower
from tpuserve.stablehlo.abstract_tensor import AbstractTensor
from tpuserve.stablehlo.cluster_finder import ClusterFinder, XlaCluster
from tpuserve.stablehlo.translator import StableHloTranslator


def cluster_of(directory: Path, rows: int) -> tuple[GraphDef, XlaCluster]:
    (meta_graph,) = loader_impl.parse_saved_model(str(directory)).meta_graphs
    graph = lower(meta_graph.graph_def)
    finder = ClusterFinder(graph)
    finder.trace({"x:0": AbstractTensor(tf.float32, (rows, 16))}, [_output(meta_graph)])
    return graph, finder.clusters[0]


def _output(meta_graph: Any) -> str:
    return str(meta_graph.signature_def["serving_default"].outputs["y"].name)


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    return exports.write_model(tmp_path, exports.whole(exports.linear), [None, 16])


def text_of(module: bytes) -> str:
    from jax.interpreters import mlir
    from jaxlib.mlir.dialects import stablehlo

    return str(stablehlo.deserialize_portable_artifact(mlir.make_ir_context(), module))


def test_variables_are_arguments_and_never_constants(linear: Path) -> None:
    graph, cluster = cluster_of(linear, 8)
    text = text_of(StableHloTranslator(graph).translate(cluster))
    assert "tensor<8x16xf32>" in text
    assert "tensor<16x4xf32>" in text
    assert "constant" not in text


def test_a_variable_larger_than_the_machine_takes_no_memory(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        table = exports.variable("table", [16, 2**28])
        return exports.whole(lambda batch: (batch @ table)[:, :1])(x)

    directory = exports.write_model(
        tmp_path, model, [None, 16], saved=lambda: [exports.variable("small", [])]
    )
    graph, cluster = cluster_of(directory, 1)
    before = _resident_bytes()
    # The variable has 16 GiB of float32.
    assert "tensor<16x268435456xf32>" in text_of(StableHloTranslator(graph).translate(cluster))
    assert _resident_bytes() - before < 2**30


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def test_an_op_that_xla_cannot_translate_is_named(tmp_path: Path) -> None:
    def computation(x: Any) -> Any:
        return tf.strings.to_number(tf.strings.as_string(x, name="spelled"))

    graph, cluster = cluster_of(
        exports.write_model(tmp_path, exports.whole(computation), [None, 16]), 1
    )
    lines = {f"spelled@{cluster.function}": "model.py:7"}
    with pytest.raises(UnsupportedOnTpu) as refused:
        StableHloTranslator(graph, lines.get).translate(cluster)
    assert str(refused.value) == "XLA refuses AsString ('spelled', created at model.py:7)"


def fingerprint(directory: Path, rows: int = 8) -> str:
    graph, cluster = cluster_of(directory, rows)
    return StableHloTranslator(graph).fingerprint(cluster)


def test_a_fingerprint_tells_shapes_and_graphs_apart(linear: Path, tmp_path: Path) -> None:
    other = exports.write_model(
        tmp_path / "other", exports.whole(lambda x: exports.linear(x) * 2.0), [None, 16]
    )
    assert len({fingerprint(linear), fingerprint(linear, 4), fingerprint(other)}) == 3


def test_another_export_of_the_same_model_has_the_same_fingerprint(tmp_path: Path) -> None:
    def computation(x: Any) -> Any:
        looped = tf.while_loop(lambda y: tf.reduce_sum(y) < 9.0, lambda y: (y * 2.0,), (x,))
        return tf.cond(x[0, 0] > 0, lambda: looped[0], lambda: exports.linear(x)[:, :1] + x)

    directories = [
        exports.write_model(tmp_path / name, exports.whole(computation), [None, 16])
        for name in "ab"
    ]
    names = [cluster_of(directory, 8)[1].function for directory in directories]
    assert names[0] != names[1]
    assert fingerprint(directories[0]) == fingerprint(directories[1])
