"""build_infeed feeds every core exactly its own rows, in order."""

from typing import Any, NamedTuple

import pytest
import tensorflow as tf

from tests.trainer.infeed.queue_infeed import dequeue_batches, topology
from trainer import infeed
from trainer.config.run_config import InputPipelineConfig
from trainer.infeed.final_batch_padding import FinalBatchPadding, PadFinalBatch, SpreadFinalBatch

v1 = tf.compat.v1

Mode = InputPipelineConfig


def _numbers(first: int, batch_size: int, last: int = 100) -> Any:
    """Return a Dataset of the numbers first, ..., last in full batches."""
    numbers = tf.data.Dataset.range(first, last + 1).map(lambda n: tf.cast(n, tf.int32))
    return numbers.batch(batch_size, drop_remainder=True)


def _features(replicas: Any) -> Any:
    return [[batch.features for batch in replica] for replica in replicas]


def test_per_host_v1_splits_each_hosts_batch() -> None:
    two_by_two = topology(2, 2, Mode.PER_HOST_V1, batch_size=8)
    result = dequeue_batches(lambda pipeline: _numbers(10 * pipeline.host, 4), two_by_two, 2)
    assert _features(result) == [
        [[0, 1], [4, 5]],
        [[2, 3], [6, 7]],
        [[10, 11], [14, 15]],
        [[12, 13], [16, 17]],
    ]


def test_per_shard_v1_calls_input_fn_for_each_replica() -> None:
    calls = []

    def input_fn(pipeline: Any) -> Any:
        calls.append((pipeline.index, pipeline.host))
        return _numbers(10 * pipeline.index, 1)

    result = dequeue_batches(input_fn, topology(2, 2, Mode.PER_SHARD_V1, batch_size=4), 2)
    assert calls == [(0, 0), (1, 0), (2, 1), (3, 1)]
    assert _features(result) == [[[0], [1]], [[10], [11]], [[20], [21]], [[30], [31]]]


def test_per_host_v2_gives_the_first_batch_to_the_first_replica() -> None:
    two_by_two = topology(2, 2, Mode.PER_HOST_V2, batch_size=8)
    result = dequeue_batches(lambda pipeline: _numbers(10 * pipeline.host, 2), two_by_two, 2)
    assert _features(result) == [
        [[0, 1], [4, 5]],
        [[2, 3], [6, 7]],
        [[10, 11], [14, 15]],
        [[12, 13], [16, 17]],
    ]


def test_per_host_v2_in_parallel_gives_each_batch_once() -> None:
    one_by_four = topology(1, 4, Mode.PER_HOST_V2, batch_size=4)
    result = dequeue_batches(lambda _: _numbers(0, 1), one_by_four, 3, parallel_get_next=True)
    assert sorted(batch.features for batches in result for batch in batches) == [
        [n] for n in range(12)
    ]


def test_broadcast_gives_all_to_all() -> None:
    result = dequeue_batches(
        lambda _: _numbers(0, 4), topology(2, 2, Mode.BROADCAST, batch_size=4), 2
    )
    assert _features(result) == [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 4


def test_sliced_splits_one_batch_for_all_hosts() -> None:
    result = dequeue_batches(lambda _: _numbers(0, 4), topology(2, 2, Mode.SLICED, batch_size=4), 2)
    assert _features(result) == [[[0], [4]], [[1], [5]], [[2], [6]], [[3], [7]]]


def test_a_run_continues_where_the_previous_run_ended() -> None:
    one_by_two = topology(1, 2, Mode.PER_HOST_V1, batch_size=2)
    result = dequeue_batches(lambda _: _numbers(0, 2), one_by_two, 2, 1)
    assert _features(result) == [[[0], [2], [4]], [[1], [3], [5]]]


def test_both_kinds_of_control_flow_are_supported() -> None:
    one_by_two = topology(1, 2, Mode.PER_HOST_V1, batch_size=2)
    was_enabled = v1.control_flow_v2_enabled()
    try:
        for choose in (v1.enable_control_flow_v2, v1.disable_control_flow_v2):
            choose()
            result = dequeue_batches(lambda _: _numbers(0, 2), one_by_two, 2)
            assert _features(result) == [[[0], [2]], [[1], [3]]]
    finally:
        (v1.enable_control_flow_v2 if was_enabled else v1.disable_control_flow_v2)()


def test_batch_axis_names_the_axis_of_the_rows() -> None:
    def input_fn(_: Any) -> Any:
        image = tf.constant([[[1, 2]], [[3, 4]]])  # The dimensions are height, channels and rows.
        return tf.data.Dataset.from_tensors(({"image": image}, tf.constant([10, 20])))

    one_by_two = topology(1, 2, Mode.PER_HOST_V1, batch_size=2)
    for axes in ([2, 0], ({"image": 2}, 0)):
        result = dequeue_batches(input_fn, one_by_two, batch_axis=axes)
        assert result[0][0].features == {"image": [[[1]], [[3]]]}
        assert result[1][0].features == {"image": [[[2]], [[4]]]}
        assert [batches[0].labels for batches in result] == [[10], [20]]


class Point(NamedTuple):
    x: Any
    y: Any


def test_nests_come_out_as_they_went_in() -> None:
    def input_fn(_: Any) -> Any:
        n = tf.constant([1, 2])
        features = {"b": (n, Point(n + 10, n + 20)), "a": n + 30}
        return tf.data.Dataset.from_tensors((features, None))

    (batch,) = dequeue_batches(input_fn, topology(1, 1, Mode.PER_HOST_V1, batch_size=2))[0]
    assert batch.features == {"b": ([1, 2], Point([11, 12], [21, 22])), "a": [31, 32]}
    assert batch.labels is None
    assert batch.mask is None


def test_shards_have_static_shapes() -> None:
    with tf.Graph().as_default():
        system = topology(1, 4, Mode.PER_HOST_V1, batch_size=8)
        batch = infeed.build_infeed(lambda _: _numbers(0, 8), system).dequeue()
        assert batch.features.shape.as_list() == [2]


def test_tensors_are_another_batch_in_each_iteration() -> None:
    def input_fn(pipeline: Any) -> Any:
        batch = v1.data.make_one_shot_iterator(_numbers(10 * pipeline.host, 2)).get_next()
        return {"x": batch}, [batch + 50]

    result = dequeue_batches(input_fn, topology(2, 2, Mode.PER_HOST_V1, batch_size=4), 2, 1)
    assert _features(result) == [
        [{"x": [0]}, {"x": [2]}, {"x": [4]}],
        [{"x": [1]}, {"x": [3]}, {"x": [5]}],
        [{"x": [10]}, {"x": [12]}, {"x": [14]}],
        [{"x": [11]}, {"x": [13]}, {"x": [15]}],
    ]
    assert result[3][2].labels == [[65]]


def test_tensors_that_are_fed_are_one_batch_a_run(caplog: Any) -> None:
    def input_fn(pipeline: Any) -> Any:
        return (
            v1.placeholder(tf.int32, [2], "mine") if pipeline.index == 0 else tf.ones([2], "int32")
        )

    with tf.Graph().as_default():
        result = infeed.build_infeed(input_fn, topology(2, 2, Mode.PER_HOST_V1, batch_size=4))
    assert result.max_iterations == 1
    assert "each session.run feeds one batch only: placeholder" in caplog.text


def test_a_dataset_has_no_limit_to_a_run() -> None:
    with tf.Graph().as_default():
        system = topology(1, 1, Mode.PER_HOST_V1, batch_size=2)
        assert infeed.build_infeed(lambda _: _numbers(0, 2), system).max_iterations is None


def test_predictions_keep_their_order_whatever_is_allowed() -> None:
    one_by_four = topology(1, 4, Mode.PER_HOST_V2, batch_size=4)
    options = {"parallel_get_next": True, "padding": PadFinalBatch()}
    result = dequeue_batches(lambda _: _numbers(0, 1), one_by_four, 3, **options)
    assert _features(result) == [[[r], [4 + r], [8 + r]] for r in range(4)]


def test_a_dataset_at_its_end_says_so() -> None:
    one = topology(1, 1, Mode.PER_HOST_V1, batch_size=2)
    with pytest.raises(tf.errors.OutOfRangeError):
        dequeue_batches(lambda _: _numbers(1, 2, last=4), one, 3)


def _tasks(nodes: Any, op: str) -> list[tuple[str, str, int]]:
    """Return (last letter of the name, task, device ordinal) of each node of an op type."""
    return sorted(
        (node.name[-1], node.device.split("/task:")[1][0], node.attr["device_ordinal"].i)
        for node in nodes
        if node.op == op
    )


def test_enqueues_are_on_the_host_of_their_core() -> None:
    with tf.Graph().as_default() as graph:
        infeed.build_infeed(lambda _: _numbers(0, 4), topology(2, 2, Mode.SLICED, batch_size=4))
        functions = graph.as_graph_def().library.function
        result = _tasks(
            [node for function in functions for node in function.node_def], "InfeedEnqueueTuple"
        )
    assert result == [("0", "0", 0), ("1", "0", 1), ("2", "1", 0), ("3", "1", 1)]


def test_input_pipelines_are_on_their_own_hosts() -> None:
    with tf.Graph().as_default() as graph:
        infeed.build_infeed(
            lambda _: _numbers(0, 2), topology(2, 2, Mode.PER_HOST_V1, batch_size=4)
        )
        result = _tasks(graph.as_graph_def().node, "IteratorV2")
    assert [task for _, task, _ in result] == ["0", "1"]


# The following tests have a final batch with fewer rows than the others.


def _uneven(last: int, batch_size: int) -> Any:
    numbers = tf.data.Dataset.range(1, last + 1).map(lambda n: tf.cast(n, tf.int32))
    return numbers.batch(batch_size).map(lambda n: ({"x": n}, n + 50))


def test_spreading_counts_each_row_of_a_partial_batch_once() -> None:
    one_by_two = topology(1, 2, Mode.PER_HOST_V1, batch_size=4)
    result = dequeue_batches(lambda _: _uneven(7, 4), one_by_two, 4, padding=SpreadFinalBatch())
    assert _features(result) == [
        [{"x": [1, 2]}, {"x": [5, 5]}, {"x": [7, 7]}, {"x": [7, 7]}],
        [{"x": [3, 4]}, {"x": [6, 6]}, {"x": [7, 7]}, {"x": [7, 7]}],
    ]
    assert [[batch.mask for batch in batches] for batches in result] == [
        [[1, 1], [2, 0], [1, 0], [0, 0]],
        [[1, 1], [2, 0], [0, 0], [0, 0]],
    ]
    assert result[1][1].labels == [56, 56]


def test_padding_is_marked_in_the_features() -> None:
    one_by_two = topology(1, 2, Mode.PER_HOST_V1, batch_size=4)
    result = dequeue_batches(lambda _: _uneven(3, 4), one_by_two, 2, padding=PadFinalBatch())
    assert _features(result) == [
        [{"x": [1, 2], "is_padding": [0, 0]}, {"x": [1, 2], "is_padding": [1, 1]}],
        [{"x": [3, 1], "is_padding": [0, 1]}, {"x": [3, 1], "is_padding": [1, 1]}],
    ]
    assert [batches[0].mask for batches in result] == [[1, 1], [1, 0]]


def test_a_users_feature_named_is_padding_is_kept() -> None:
    def input_fn(_: Any) -> Any:
        return tf.data.Dataset.from_tensors({"is_padding": tf.constant([3.5])})

    one = topology(1, 1, Mode.PER_HOST_V1, batch_size=1)
    (batch,) = dequeue_batches(input_fn, one, padding=PadFinalBatch())[0]
    assert batch.features == {"is_padding": [3.5]}


@pytest.mark.parametrize(("mode", "rows"), [(Mode.PER_HOST_V1, 4), (Mode.PER_HOST_V2, 2)])
def test_steps_cut_the_dataset(mode: Any, rows: int) -> None:
    one_by_two = topology(1, 2, mode, batch_size=4)
    options = {"padding": SpreadFinalBatch(), "steps": 1}
    result = dequeue_batches(lambda _: _uneven(8, rows), one_by_two, 2, **options)
    assert _features(result)[1][0] == {"x": [3, 4]}
    assert [[batch.mask for batch in batches] for batches in result] == [[[1, 1], [0, 0]]] * 2


@pytest.mark.slow
def test_per_host_v2_spreads_the_final_batch_of_each_replica() -> None:
    one_by_two = topology(1, 2, Mode.PER_HOST_V2, batch_size=4)
    result = dequeue_batches(
        lambda _: _uneven(4, 2).skip(1), one_by_two, 1, padding=SpreadFinalBatch()
    )
    assert [batches[0].mask for batches in result] == [[1, 1], [0, 0]]
    result = dequeue_batches(lambda _: _uneven(3, 2), one_by_two, 1, padding=SpreadFinalBatch())
    assert _features(result) == [[{"x": [1, 2]}], [{"x": [3, 3]}]]
    assert [batches[0].mask for batches in result] == [[1, 1], [1, 0]]


@pytest.mark.parametrize("padding", [SpreadFinalBatch(), PadFinalBatch()])
def test_per_host_v2_takes_rows_on_the_last_axis(padding: FinalBatchPadding) -> None:
    def input_fn(_: Any) -> Any:
        return _numbers(1, 2, last=4).map(lambda n: (tf.stack([n, n * 10, -n]), n))

    one_by_two = topology(1, 2, Mode.PER_HOST_V2, batch_size=4)
    result = dequeue_batches(input_fn, one_by_two, 2, padding=padding)
    assert result[1][0].features == [[3, 4], [30, 40], [-3, -4]]
    assert [batches[0].labels for batches in result] == [[1, 2], [3, 4]]
    assert [[batch.mask for batch in batches] for batches in result] == [[[1, 1], [0, 0]]] * 2


@pytest.mark.parametrize("padding", [None, SpreadFinalBatch(), PadFinalBatch()])
def test_a_flattened_batch_is_fed_as_it_is(padding: FinalBatchPadding | None) -> None:
    def input_fn(_: Any) -> Any:
        return _numbers(1, 2, last=4).map(lambda n: (tf.reshape([n, n * 10, -n], [6]), n))

    one_by_two = topology(1, 2, Mode.PER_HOST_V2, batch_size=4)
    (result,) = zip(*dequeue_batches(input_fn, one_by_two, 1, padding=padding), strict=True)
    assert [batch.features for batch in result] == [[1, 2, 10, 20, -1, -2], [3, 4, 30, 40, -3, -4]]
    assert [batch.labels for batch in result] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("is_dataset", [True, False])
@pytest.mark.parametrize("padding", [None, SpreadFinalBatch()])
def test_int64_is_fed_in_32_bits_and_is_int64_again_with_a_warning_once(
    is_dataset: bool, padding: Any, caplog: Any
) -> None:
    def input_fn(_: Any) -> Any:
        batch = {f"{is_dataset}{padding}": tf.constant([1, -2], tf.int64)}
        return tf.data.Dataset.from_tensors(batch).repeat() if is_dataset else batch

    one_by_two = topology(1, 2, Mode.PER_HOST_V1, batch_size=2)
    for _ in range(2):
        ((first,), (second,)) = dequeue_batches(input_fn, one_by_two, 1, padding=padding)
    assert [list(batch.features.values()) for batch in (first, second)] == [[[1]], [[-2]]]
    warnings = [message for message in caplog.messages if "is fed to the TPU as int32" in message]
    assert len(warnings) == 1


def test_int64_that_32_bits_cannot_hold_is_an_error() -> None:
    one_by_two = topology(1, 2, Mode.PER_HOST_V1, batch_size=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="32 bits cannot hold"):
        dequeue_batches(lambda _: {"x": tf.constant([1, 2**31], tf.int64)}, one_by_two, 1)


@pytest.mark.slow
def test_evaluation_waits_for_the_host_with_the_longest_input() -> None:
    two_by_one = topology(2, 1, Mode.PER_HOST_V1, batch_size=4)
    result = dequeue_batches(
        lambda pipeline: _uneven(2 + pipeline.host, 2), two_by_one, 2, padding=SpreadFinalBatch()
    )
    assert [[batch.mask for batch in batches] for batches in result] == [
        [[1, 1], [0, 0]],
        [[1, 1], [1, 0]],
    ]


def test_tensors_can_be_evaluated_too() -> None:
    def input_fn(_: Any) -> Any:
        return tf.constant([1, 2]), tf.constant([3, 4])

    one_by_two = topology(1, 2, Mode.PER_HOST_V1, batch_size=2)
    result = dequeue_batches(input_fn, one_by_two, 1, padding=SpreadFinalBatch())
    assert [(batches[0].labels, batches[0].mask) for batches in result] == [([3], [1]), ([4], [1])]
