"""With input_partition_dims each core of a replica is fed its own part of the shard."""

from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2

from tests.trainer.infeed.queue_infeed import session, topology
from tpuserve.errors import InvalidSetting
from trainer import infeed
from trainer.config.run_config import InputPipelineConfig
from trainer.infeed.final_batch_padding import SpreadFinalBatch


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield


def _build_infeed(element: Any, dims: Any, **options: Any) -> infeed.Infeed:
    """Build an infeed for one replica with two rows and two cores.

    Args:
      element: the only element of the Dataset.
      dims: the input_partition_dims.
      options: further arguments of `build_infeed`.
    """
    dataset = tf.data.Dataset.from_tensors(element)
    return infeed.build_infeed(lambda _: dataset, _system(), input_partition_dims=dims, **options)


def _system() -> Any:
    mode = InputPipelineConfig.PER_HOST_V2
    return topology(1, 2, mode, batch_size=2, cores_per_replica=2)


def _feed_batch(built: infeed.Infeed, *cores: list[tuple[Any, list[int]]]) -> list[Any]:
    """Feed one batch; return the tensors in the queue of each core.

    Args:
      built: the infeed.
      cores: for each core the (dtype, shape) of each tensor to dequeue.
    """
    dequeues = []
    for core, specs in enumerate(cores):
        with tf.name_scope(f"replica_0_core_{core}"):
            dtypes, shapes = zip(*specs, strict=True)
            tensors = tf.raw_ops.InfeedDequeueTuple(dtypes=dtypes, shapes=shapes)
            dequeues.append([tensor.name for tensor in tensors])
    with session(tf.compat.v1.get_default_graph(), _system()) as run:
        run.run(built.hooks[0].initializer.name)
        run.run(built.enqueue.name)
        return [[array.tolist() for array in core] for core in run.run(dequeues)]


def _image() -> Any:
    return tf.constant([[1, 2, 3, 4], [5, 6, 7, 8]])


def test_a_tensor_is_split_over_the_cores_and_another_is_given_to_each() -> None:
    result = _build_infeed(({"image": _image()}, tf.constant([9, 10])), [{"image": [1, 2]}, None])
    specs = [(tf.int32, [2, 2]), (tf.int32, [2])]
    assert _feed_batch(result, specs, specs) == [
        [[[1, 2], [5, 6]], [9, 10]],
        [[[3, 4], [7, 8]], [9, 10]],
    ]


def test_a_dimension_that_does_not_divide_gives_the_first_core_more() -> None:
    result = _build_infeed(_image()[:, :3], [[1, 2]])
    first, second = [(tf.int32, [2, 2])], [(tf.int32, [2, 1])]
    assert _feed_batch(result, first, second) == [[[[1, 2], [5, 6]]], [[[3], [7]]]]


def test_a_tensor_in_one_part_is_the_first_cores() -> None:
    result = _build_infeed((_image(), tf.constant([9, 10])), [[2, 1], [1]])
    assert _feed_batch(result, [(tf.int32, [1, 4]), (tf.int32, [2])], [(tf.int32, [1, 4])]) == [
        [[[1, 2, 3, 4]], [9, 10]],
        [[[5, 6, 7, 8]]],
    ]


def test_the_mask_goes_to_every_core() -> None:
    result = _build_infeed(_image(), [[1, 2]], padding=SpreadFinalBatch())
    specs = [(tf.int32, [2, 2]), (tf.int32, [2])]
    assert [core[1] for core in _feed_batch(result, specs, specs)] == [[1, 1], [1, 1]]


def test_the_dequeued_tensors_are_whole_and_say_how_they_are_spread() -> None:
    result = _build_infeed((_image(), tf.constant([9, 10])), [[1, 2], None])
    batch = result.dequeue()
    assert batch.features.shape == [2, 4]
    sharding = xla_data_pb2.OpSharding.FromString(batch.features.op.get_attr("_XlaSharding"))
    tiled, replicated = sharding.tuple_shardings
    assert list(tiled.tile_assignment_dimensions) == [1, 2]
    assert list(tiled.tile_assignment_devices) == [0, 1]
    assert replicated.type == xla_data_pb2.OpSharding.REPLICATED


def test_the_first_core_can_be_fed_whole_tensors() -> None:
    result = _build_infeed(_image(), [[1, 2]], only_first_core_computes=True)
    assert _feed_batch(result, [(tf.int32, [2, 4])]) == [[[[1, 2, 3, 4], [5, 6, 7, 8]]]]


def test_cores_of_one_replica_may_be_on_several_hosts() -> None:
    coordinates = [[[host, 0, 0, core] for core in range(2)] for host in range(2)]
    mesh = tf.tpu.experimental.Topology(mesh_shape=[2, 1, 1, 2], device_coordinates=coordinates)
    assignment = tf.tpu.experimental.DeviceAssignment.build(
        mesh, computation_shape=[2, 1, 1, 2], num_replicas=1
    )
    mode = InputPipelineConfig.PER_HOST_V2
    infeed.build_infeed(
        lambda _: tf.data.Dataset.from_tensors(_image()),
        topology(2, 2, mode, batch_size=2, cores_per_replica=4),
        input_partition_dims=[[1, 4]],
        device_assignment=assignment,
    )
    definition = tf.compat.v1.get_default_graph().as_graph_def()
    hosts = {
        node.name.rsplit("enqueue_0", 1)[1]: node.device.split("/task:")[1][0]
        for function in definition.library.function
        for node in function.node_def
        if node.op == "InfeedEnqueueTuple"
    }
    assert len(hosts) == 4
    for core in range(4):
        at = tuple(assignment.coordinates(0, core))
        name = f"_core_{core}" if core else ""
        assert hosts[name] == str(mesh.task_ordinal_at_coordinates(at))


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ([{"image": [1, 0]}], r"\[1, 0\] for features\['image'\].*must be >= 1"),
        ([{"image": [1, 3]}], r"\[1, 3\] .*: 3 parts, .*num_cores_per_replica is 2"),
        ([{"image": [2]}], r"\[2\] .*shape \[2, 4\]. Give one number for each dimension: 2"),
        ([{"other": [1, 2]}], r"input_partition_dims\[0\] is .*features"),
        ([{"image": [1, 2]}, {"y": [2]}], r"input_partition_dims\[1\] is .*labels"),
    ],
)
def test_dims_must_fit_the_input(dims: Any, expected: str) -> None:
    with pytest.raises(InvalidSetting, match=expected):
        _build_infeed(({"image": _image()}, tf.constant([9, 10])), dims)


def test_dims_are_checked_where_only_one_core_computes() -> None:
    with pytest.raises(InvalidSetting, match="3 parts"):
        _build_infeed(_image(), [[1, 3]], only_first_core_computes=True)
