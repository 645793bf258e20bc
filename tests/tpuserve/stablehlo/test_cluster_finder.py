from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.saved_model import loader_impl

from tests.tpuserve.compilation import exports
from tpuserve.errors import InvalidInput
from tpuserve.lowering import lower
from tpuserve.stablehlo.abstract_tensor import AbstractTensor, VariableSpec
from tpuserve.stablehlo.cluster_finder import ClusterFinder, XlaCluster

v1 = tf.compat.v1

W = VariableSpec("w", tf.float32, (16, 4))


def trace_export(
    directory: Path, rows: int | None, shape: tuple[int, ...] = (16,)
) -> ClusterFinder:
    (meta_graph,) = loader_impl.parse_saved_model(str(directory)).meta_graphs
    signature = meta_graph.signature_def["serving_default"]
    finder = ClusterFinder(lower(meta_graph.graph_def))
    fed = {signature.inputs["x"].name: AbstractTensor(tf.float32, (rows, *shape))}
    (finder.result,) = finder.trace(fed, [signature.outputs["y"].name])  # type: ignore[attr-defined]
    return finder


def shapes(cluster: XlaCluster) -> list[Any]:
    return sorted(
        argument.shape
        for argument in cluster.arguments
        if argument.variable is None and argument.shape is not None
    )


def test_a_cluster_has_the_shape_of_the_batch_and_its_variables(tmp_path: Path) -> None:
    finder = trace_export(
        exports.write_model(tmp_path, exports.whole(exports.linear), [None, 16]), 8
    )
    (cluster,) = finder.clusters
    assert shapes(cluster) == [(8, 16)]
    assert [argument.variable for argument in cluster.arguments if argument.variable] == [W]
    assert finder.result.shape == (8, 4)  # type: ignore[attr-defined]


def test_shapes_are_propagated_through_ops_on_the_host(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        rows = tf.reshape(x, [tf.shape(x)[0] * 2, -1])
        return exports.whole(lambda batch: batch * 2.0)(rows)

    (cluster,) = trace_export(exports.write_model(tmp_path, model, [None, 16]), 3).clusters
    assert shapes(cluster) == [(6, 8)]


def test_clusters_around_a_host_part_are_in_the_order_they_run_in(tmp_path: Path) -> None:
    def computation(x: Any) -> Any:
        y = v1.tpu.outside_compilation(lambda batch: batch[:, :2], x * 2.0)
        return y * 3.0

    finder = trace_export(exports.write_model(tmp_path, exports.whole(computation), [None, 16]), 5)
    assert [shapes(cluster) for cluster in finder.clusters] == [[(5, 16)], [(5, 2)]]


def test_a_batch_function_pads_to_an_allowed_size_and_returns_the_requested_rows(
    tmp_path: Path,
) -> None:
    def model(x: Any) -> Any:
        batched = tf.nondifferentiable_batch_function(1, 8, 1000, [4, 8])
        return batched(exports.whole(lambda batch: batch * 2.0))(x)

    finder = trace_export(exports.write_model(tmp_path, model, [None, 16]), 3)
    assert [shapes(cluster) for cluster in finder.clusters] == [[(4, 16)]]
    assert finder.result.shape == (3, 16)  # type: ignore[attr-defined]
    with pytest.raises(InvalidInput, match="a batch of 9 rows does not fit"):
        trace_export(tmp_path / next(tmp_path.iterdir()).name, 9)


def test_clusters_of_both_branches_are_collected(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        with_control_flow_v2 = tf.function(
            lambda y: tf.cond(
                y[0, 0] > 0,
                lambda: exports.whole(lambda batch: batch * 2.0)(y),
                lambda: exports.whole(lambda batch: batch * 3.0)(y),
            )
        )
        return with_control_flow_v2(x)

    finder = trace_export(exports.write_model(tmp_path, model, [None, 16]), 2)
    assert [shapes(cluster) for cluster in finder.clusters] == [[(2, 16)], [(2, 16)]]
    assert finder.result.shape == (2, 16)  # type: ignore[attr-defined]


def test_the_shape_of_a_table_lookup_is_known_from_the_function(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer([0.0, 1.0], [0, 1], tf.float32, tf.int64), -1
        )
        return exports.whole(lambda ids: tf.cast(ids, tf.float32))(table.lookup(x))

    (cluster,) = trace_export(exports.write_model(tmp_path, model, [None, 16]), 2).clusters
    assert shapes(cluster) == [(None, 16)]


def test_a_dimension_that_depends_on_values_stays_open(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        return exports.whole(lambda batch: batch * 2.0)(tf.boolean_mask(x, x[:, 0] > 0))

    (cluster,) = trace_export(exports.write_model(tmp_path, model, [None, 16]), 2).clusters
    assert shapes(cluster) == [(None, 16)]


def test_shapes_that_the_graph_refuses_are_an_error(tmp_path: Path) -> None:
    directory = exports.write_model(tmp_path, exports.whole(exports.linear), [None, None])
    with pytest.raises(InvalidInput, match="does not accept inputs of these shapes.*16"):
        trace_export(directory, 2, shape=(15,))
