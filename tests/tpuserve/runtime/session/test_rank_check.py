"""Inputs whose rank would let a kernel end the process are refused before anything runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tpuserve import tags
from tpuserve.devices import TpuSystem
from tpuserve.errors import InvalidTensor
from tpuserve.graph.loops import has_op
from tpuserve.runtime import loader
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.runtime.session.rank_check import RankCheck
from tpuserve.runtime.session.session_plan import SIZE_CHECKED_OPS
from tpuserve.runtime.session.signature_runner import SignatureRunner
from tpuserve.saved_model.signature import Signature, TensorSpec

_IMAGE, _FILTER = [None, 8, 8, 1], np.ones([3, 3, 1, 1], np.float32)
# Each of these kernels aborts the process where its input has too few dimensions.
_KERNELS: dict[str, tuple[list[int | None], Callable[[Any], Any]]] = {
    "Conv2D": (_IMAGE, lambda x: tf.nn.conv2d(x, _FILTER, 1, "SAME")),
    "conv1d": ([None, 8, 1], lambda x: tf.nn.conv1d(x, _FILTER[0], 1, "SAME")),
    "DepthwiseConv2D": (_IMAGE, lambda x: tf.nn.depthwise_conv2d(x, _FILTER, [1] * 4, "SAME")),
    "Conv3D": (
        [None, 8, 8, 8, 1],
        lambda x: tf.nn.conv3d(x, _FILTER[None], [1] * 5, "SAME"),
    ),
    "MaxPool": (_IMAGE, lambda x: tf.nn.max_pool2d(x, 2, 2, "SAME")),
    "AvgPool": (_IMAGE, lambda x: tf.nn.avg_pool2d(x, 2, 2, "SAME")),
    "AvgPool3D": ([None, 8, 8, 8, 1], lambda x: tf.nn.avg_pool3d(x, 2, 2, "SAME")),
}


def load(directory: Path, shape: list[int | None] | None, function: Any) -> LoadedModel:
    module = tf.Module()
    module.serve = tf.function(
        lambda x: {"y": function(x)}, input_signature=[tf.TensorSpec(shape, tf.float32, "x")]
    )
    tf.saved_model.save(module, str(directory), module.serve)
    return loader.load(directory, tags.SERVE, TpuSystem())


@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "open"])
@pytest.mark.parametrize("kernel", _KERNELS)
def test_only_the_rank_of_the_kernel_is_run(kernel: str, is_declared: bool, tmp_path: Path) -> None:
    shape, function = _KERNELS[kernel]
    model = load(tmp_path / "model", shape if is_declared else None, function)
    for rank in range(7):
        x = np.ones([1] * rank, np.float32)
        if rank == len(shape):
            assert model.run("serving_default", {"x": x})["y"].shape == (1,) * rank
            continue
        with pytest.raises(InvalidTensor) as caught:
            model.run("serving_default", {"x": x})
        expected = "?, 8" if is_declared else "<unknown rank>"
        assert f"input 'x' has the shape {[1] * rank}, and the signature" in str(caught.value)
        assert expected in str(caught.value)
    model.close()


def test_a_rank_that_the_graph_takes_is_run_although_the_signature_has_another(
    tmp_path: Path,
) -> None:
    model = load(tmp_path / "model", [None, 1], lambda x: x / 2 + 2)
    x = np.array([1, 2, 5], np.float32)
    assert model.run("serving_default", {"x": x})["y"].tolist() == [2.5, 3, 4.5]
    model.close()


def test_the_nodes_of_the_graph_may_have_any_name(tmp_path: Path) -> None:
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, name="Placeholder")
        v1.saved_model.simple_save(session, str(tmp_path / "model"), {"x": x}, {"y": x + 1})
    model = loader.load(tmp_path / "model", tags.SERVE, TpuSystem())
    assert model.run("serving_default", {"x": np.ones([1, 2], np.float32)})["y"].tolist() == [
        [2, 2]
    ]
    model.close()


_TYPES = (("x", "float32"), ("i", "int32"))
_SPEC = Signature(
    {"x": TensorSpec("x:0", "float32", None), "i": TensorSpec("i:0", "int32", None)},
    {"y": TensorSpec("y:0", "float32", None)},
)


# Each of these ends the process without the check.
@pytest.mark.parametrize(
    ("build", "shape", "integers"),
    [
        (
            lambda x, i: tf.raw_ops.Conv2DBackpropInput(
                input_sizes=i, filter=_FILTER, out_backprop=x, strides=[1] * 4, padding="SAME"
            ),
            [2, 1, 2, 1],
            [],
        ),
        (
            lambda x, i: tf.raw_ops.Conv3DBackpropInputV2(
                input_sizes=i, filter=_FILTER[None], out_backprop=x, strides=[1] * 5, padding="SAME"
            ),
            [1, 2, 2, 2, 1],
            [1, 2, -3, 2, 1],
        ),
        (
            lambda x, i: tf.tensor_scatter_nd_update(x, i, [0.0] * 4),
            [2, 3, 1, 1],
            [[[7] * 4]] * 4,
        ),
    ],
    ids=["Conv2DBackpropInput", "Conv3DBackpropInput", "TensorScatterUpdate"],
)
def test_sizes_and_indices_that_a_kernel_does_not_survive_are_refused(
    build: Any, shape: list[int], integers: Any
) -> None:
    with tf.Graph().as_default() as graph:
        x, i = (tf.compat.v1.placeholder(dtype, None, key) for key, dtype in _TYPES)
        tf.identity(build(x, i), "y")
    is_found = has_op(graph.as_graph_def(), SIZE_CHECKED_OPS)
    check = RankCheck(graph, _SPEC, checks_sizes=is_found)
    assert check.checks_sizes
    array = np.array(integers, np.int32)
    with pytest.raises(InvalidTensor, match=r"input 'i' has the shape"):
        check.check({"x": np.ones(shape, np.float32), "i": array})


def test_sizes_that_a_kernel_takes_are_run() -> None:
    with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
        x, i = (tf.compat.v1.placeholder(dtype, None, key) for key, dtype in _TYPES)
        kernel = tf.raw_ops.Conv2DBackpropInput(
            input_sizes=i, filter=_FILTER, out_backprop=x, strides=[1] * 4, padding="SAME"
        )
        tf.identity(kernel, "y")
        runner = SignatureRunner(session, _SPEC, checks_sizes=True)
        assert graph is session.graph
        image, sizes = np.ones([1, 1, 2, 1], np.float32), np.array([1, 1, 2, 1], np.int32)
        # Each of the two pixels gets the sum of both: a filter of ones reaches the neighbour.
        assert runner.run({"x": image, "i": sizes}, None, None)["y"].ravel().tolist() == [2, 2]
        with pytest.raises(InvalidTensor):
            runner.run({"x": image, "i": sizes[:0]}, None, None)


def test_sizes_are_checked_of_a_model_that_was_loaded(tmp_path: Path) -> None:
    module = tf.Module()
    module.serve = tf.function(
        lambda i: {"y": tf.nn.conv2d_transpose(tf.ones([1, 1, 2, 1]), _FILTER, i, 1, "SAME")},
        input_signature=[tf.TensorSpec([None], tf.int32, "i")],
    )
    tf.saved_model.save(module, str(tmp_path / "model"), module.serve)
    model = loader.load(tmp_path / "model", tags.SERVE, TpuSystem())
    sizes = np.array([1, 1, 2, 1], np.int32)
    assert model.run("serving_default", {"i": sizes})["y"].ravel().tolist() == [2, 2]
    with pytest.raises(InvalidTensor):
        model.run("serving_default", {"i": sizes[:0]})
    model.close()
