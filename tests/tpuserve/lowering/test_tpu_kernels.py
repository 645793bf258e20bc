"""Ops that XLA compiles only for TPUs, on a CPU."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests import models
from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.graph.graph_walk import find_called_functions
from tpuserve.lowering import lower, tpu_kernels
from tpuserve.runtime import loader

v1 = tf.compat.v1

# Whole numbers, whose sums are exact in any order; height and width differ.
GRADIENTS = np.random.default_rng(1).integers(-9, 9, [2, 6, 5, 3]).astype(np.float32)


def run_compiled(compute: Callable[..., Any], *inputs: Any) -> Any:
    """Return the result of a TPU computation that is lowered, so that XLA compiles it."""
    with tf.Graph().as_default() as graph:
        feeds = [
            v1.placeholder(value.dtype, value.shape, f"x{i}") for i, value in enumerate(inputs)
        ]
        (result,) = v1.tpu.rewrite(compute, feeds)
    lowered = lower(graph.as_graph_def(add_shapes=True))
    with tf.Graph().as_default(), v1.Session() as session:
        (y,) = tf.import_graph_def(lowered, return_elements=[result.name])
        return session.run(y, {f"import/x{i}:0": value for i, value in enumerate(inputs)})


@pytest.mark.parametrize("half_pixel_centers", [False, True])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(3, 5), (1, 1), (4, 3), (7, 9)])
def test_gradient_of_nearest_neighbors_is_that_of_tensorflows_kernel(
    size: tuple[int, int], align_corners: bool, half_pixel_centers: bool
) -> None:
    def gradient(grads: Any) -> Any:
        return tf.raw_ops.ResizeNearestNeighborGrad(
            grads=grads,
            size=size,
            align_corners=align_corners,
            half_pixel_centers=half_pixel_centers,
        )

    expected = gradient(tf.constant(GRADIENTS)).numpy()
    np.testing.assert_array_equal(run_compiled(gradient, GRADIENTS), expected)


@pytest.mark.slow
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("sizes", [*itertools.product([1, 7, 64], [1, 63, 100])])
def test_sources_of_pixels_are_rounded_like_tensorflows_kernel(
    sizes: tuple[int, int], align_corners: bool
) -> None:
    original, resized = sizes

    def gradient(grads: Any) -> Any:
        return tf.raw_ops.ResizeNearestNeighborGrad(
            grads=grads,
            size=[1, original],
            align_corners=align_corners,
            half_pixel_centers=not align_corners,
        )

    grads = np.arange(resized, dtype=np.float32).reshape([1, 1, resized, 1])
    np.testing.assert_array_equal(run_compiled(gradient, grads), gradient(tf.constant(grads)))


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.float64])
def test_rows_are_replaced_and_added_to_in_place(dtype: Any) -> None:
    x, v = np.array([[1, 2], [3, 4]], dtype), np.array([[5, 6]], dtype)
    rows = np.array([3], np.int32)  # Row 3 of two rows is row 1.

    def update(x: Any, i: Any, v: Any) -> Any:
        return tf.raw_ops.InplaceUpdate(x=x, i=i, v=v)

    def add(x: Any, i: Any, v: Any) -> Any:
        return tf.raw_ops.InplaceAdd(x=x, i=i, v=v)

    assert run_compiled(update, x, rows, v).tolist() == [[1, 2], [5, 6]]
    assert run_compiled(add, x, rows, v).tolist() == [[1, 2], [8, 10]]


def test_functions_with_such_an_op_are_replaced_under_new_names() -> None:
    def body(i: Any, x: Any) -> Any:
        return i + 1, tf.raw_ops.ResizeNearestNeighborGrad(grads=x, size=[1, 1])

    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [1, None, None, 1], name="x")
        _, y = tf.while_loop(lambda i, x: i < 2, body, [0, x], name="loop")
        definition = graph.as_graph_def()
        tpu_kernels.replace_in_graph(definition)
        (result,) = tf.import_graph_def(definition, {"x": x}, [y.name], name="new")
        with v1.Session() as session:
            assert session.run(result, {x: np.ones([1, 2, 2, 1])}).ravel() == [4]
    functions = {function.signature.name: function for function in definition.library.function}
    called = find_called_functions(definition.node, functions)
    ops = {node.op for name in called for node in functions[name].node_def}
    assert "UnsortedSegmentSum" in ops
    assert "ResizeNearestNeighborGrad" not in ops


@pytest.mark.slow
@pytest.mark.parametrize("system", [{"is_emulated": True}, {"pjrt_platform": "cpu"}], ids=str)
def test_an_export_keeps_the_op_for_a_tpu_and_runs_on_the_cpu(
    tmp_path: Path, system: dict[str, Any]
) -> None:
    def build(x: Any) -> dict[str, Any]:
        picture = tf.reshape(x, [1, 2, 2, 1])
        summed = tf.raw_ops.ResizeNearestNeighborGrad(grads=picture, size=[1, 1])
        return {"y": tf.reshape(summed, [1])}

    directory = models.export(build, tmp_path)
    with tf.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.load(session, ["serve", "tpu"], str(directory))
    ops = {node.op for f in loaded.graph_def.library.function for node in f.node_def}
    assert "ResizeNearestNeighborGrad" in ops
    device = TpuSystem(tpu_cores=1, hosts=1, **system)
    model = loader.load(directory, tags.SERVE_TPU, device)
    assert model.run("serving_default", {"x": np.ones([4, 1], np.float32)})["y"].tolist() == [4]
    model.close()
