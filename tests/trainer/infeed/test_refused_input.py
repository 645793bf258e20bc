"""Input that a TPU cannot be fed is refused by an error with the tensor's name and the fix."""

from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from tests.trainer.infeed.queue_infeed import topology
from tpuserve.errors import InvalidSetting, InvalidType
from trainer import infeed
from trainer.config.run_config import InputPipelineConfig
from trainer.infeed.final_batch_padding import (
    FinalBatchPadding,
    PadFinalBatch,
    RefusePartialBatches,
    SpreadFinalBatch,
)

Mode = InputPipelineConfig
v1 = tf.compat.v1


@pytest.fixture
def _first_dimensions() -> Iterator[None]:
    """Switch to TensorFlow 1's shapes, whose sizes are Dimension objects and never None."""
    v1.disable_v2_tensorshape()
    yield
    v1.enable_v2_tensorshape()


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    with tf.Graph().as_default():
        yield


def _build_infeed(element: Any, mode: int = Mode.PER_HOST_V1, **options: Any) -> infeed.Infeed:
    """Build an infeed for two replicas and 4 rows from a Dataset with one element."""
    dataset = tf.data.Dataset.from_tensors(element)
    return infeed.build_infeed(lambda _: dataset, topology(1, 2, mode, batch_size=4), **options)


@pytest.mark.parametrize(
    ("name", "cast"),
    [("int16", "tf.int32"), ("float64", "tf.float32"), ("float16", "tf.bfloat16")],
)
def test_a_type_that_no_tpu_has_is_refused_with_the_cast(name: str, cast: str) -> None:
    expected = rf"features\['age'\] \({name}\[4, 1\]\).*tf.cast\(x, {cast}\)"
    with pytest.raises(InvalidType, match=expected):
        _build_infeed({"age": tf.ones([4, 1], name)})


def test_labels_are_checked_as_well() -> None:
    with pytest.raises(InvalidType, match=r"labels \(float64\[4\]\)"):
        _build_infeed((tf.ones([4]), tf.ones([4], tf.float64)))


def test_strings_are_refused() -> None:
    with pytest.raises(InvalidType, match=r"features\['id'\]\[1\] \(string\[4\]\).*hash_bucket"):
        _build_infeed({"id": (tf.ones([4]), tf.constant(["a"] * 4))})


def test_tensors_are_checked_for_the_same_dtypes() -> None:
    with pytest.raises(InvalidType, match=r"features\['x'\] \(float64\[4\]\)"):
        infeed.build_infeed(
            lambda _: {"x": tf.ones([4], tf.float64)},
            topology(1, 2, Mode.PER_HOST_V1, batch_size=4),
        )


@pytest.mark.parametrize("name", ["bfloat16", "int32", "uint32", "bool", "int8", "uint8"])
def test_the_dtypes_of_a_tpu_are_accepted(name: str) -> None:
    assert _build_infeed(tf.ones([4], name)).dequeue().features.dtype == name


def test_sparse_and_ragged_tensors_are_refused() -> None:
    with pytest.raises(InvalidType, match=r"features\['x'\] .* sparse .*tf.sparse.to_dense"):
        _build_infeed({"x": tf.sparse.from_dense(tf.ones([4, 2]))})
    with pytest.raises(InvalidType, match=r"features\['x'\] .* ragged .*to_tensor"):
        _build_infeed({"x": tf.ragged.constant([[1.0], [], [1.0], [2.0, 3.0]])})


def test_an_unknown_number_of_rows_is_refused_with_drop_remainder() -> None:
    dataset = tf.data.Dataset.range(8).map(lambda n: tf.cast(n, tf.int32)).batch(4)
    system = topology(1, 2, Mode.PER_HOST_V1, batch_size=4)
    with pytest.raises(InvalidSetting, match=r"features \(int32\[\?\]\).*drop_remainder=True"):
        infeed.build_infeed(lambda _: dataset, system)


@pytest.mark.usefixtures("_first_dimensions")
def test_unknown_dimensions_of_tensorflow_1_are_refused() -> None:
    test_an_unknown_number_of_rows_is_refused_with_drop_remainder()
    test_any_other_unknown_dimension_is_refused(SpreadFinalBatch())
    test_rows_that_do_not_divide_are_refused(SpreadFinalBatch())
    test_rows_must_agree_where_they_are_counted()


@pytest.mark.parametrize("padding", [RefusePartialBatches(), SpreadFinalBatch(), PadFinalBatch()])
def test_any_other_unknown_dimension_is_refused(padding: FinalBatchPadding) -> None:
    dataset = tf.data.Dataset.from_generator(
        lambda: iter([[[1.0]]]), output_signature=tf.TensorSpec([4, None])
    )
    system = topology(1, 2, Mode.PER_HOST_V1, batch_size=4)
    with pytest.raises(InvalidSetting, match=r"features \(float32\[4, \?\]\).*tf.ensure_shape"):
        infeed.build_infeed(lambda _: dataset, system, padding=padding)


@pytest.mark.parametrize("padding", [RefusePartialBatches(), SpreadFinalBatch(), PadFinalBatch()])
def test_rows_that_do_not_divide_are_refused(padding: FinalBatchPadding) -> None:
    with pytest.raises(InvalidSetting, match=r"features\['x'\].* 3 rows.* 2 replicas.* = 4 rows"):
        _build_infeed({"x": tf.ones([3, 2])}, padding=padding)


def test_a_divisible_batch_of_another_size_is_accepted() -> None:
    assert _build_infeed(tf.ones([6])).dequeue().features.shape == [3]


def test_a_scalar_cannot_be_split_but_can_be_broadcast() -> None:
    with pytest.raises(InvalidSetting, match=r"features\['s'\] \(float32\[\]\).*scalar"):
        _build_infeed({"s": tf.constant(1.0)})
    assert (
        _build_infeed({"s": tf.constant(1.0)}, Mode.BROADCAST).dequeue().features["s"].shape == []
    )


def test_rows_must_agree_where_they_are_counted() -> None:
    with pytest.raises(InvalidSetting, match=r"different numbers of rows: .*\[4\].*\[2\]"):
        _build_infeed((tf.ones([4]), tf.ones([2])), padding=SpreadFinalBatch())


@pytest.mark.parametrize("nothing", [{}, ({}, None), (), None])
def test_an_input_without_tensors_is_refused(nothing: Any) -> None:
    with pytest.raises(InvalidSetting, match="Give features|no tensor"):
        infeed.build_infeed(lambda _: nothing, topology(1, 2, Mode.PER_HOST_V1, batch_size=4))


@pytest.mark.parametrize("returned", ["features", {"x": [1, 2]}, lambda: None])
def test_what_is_neither_a_dataset_nor_tensors_is_refused(returned: Any) -> None:
    with pytest.raises(InvalidType, match=r"not a tensor.*tf.data.Dataset"):
        infeed.build_infeed(lambda _: returned, topology(1, 2, Mode.PER_HOST_V1, batch_size=4))


def test_an_element_of_three_parts_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="elements of 3 parts"):
        _build_infeed((tf.ones([4]), tf.ones([4]), tf.ones([4])))


def test_per_host_v2_needs_a_dataset() -> None:
    with pytest.raises(InvalidType, match="PER_HOST_V2.*return a tf.data.Dataset"):
        infeed.build_infeed(lambda _: tf.ones([2]), topology(1, 2, Mode.PER_HOST_V2, batch_size=4))


def test_predicting_needs_a_dataset() -> None:
    system = topology(1, 2, Mode.PER_HOST_V1, batch_size=4)
    with pytest.raises(InvalidType, match=r"Predicting.*return a tf.data.Dataset"):
        infeed.build_infeed(lambda _: tf.ones([4]), system, padding=PadFinalBatch())


def test_all_pipelines_must_agree() -> None:
    def input_fn(pipeline: Any) -> Any:
        names = ["a", "b", "c"][pipeline.index : pipeline.index + 2]
        return tf.data.Dataset.from_tensors({name: tf.ones([2]) for name in names})

    expected = (
        r"call 2 of input_fn, on host 1, .*features\['a'\] \(float32\[2\]\) is missing; "
        r"features\['c'\] \(float32\[2\]\) is new"
    )
    with pytest.raises(InvalidSetting, match=expected):
        infeed.build_infeed(input_fn, topology(2, 2, Mode.PER_HOST_V1, batch_size=4))


def test_pipelines_of_other_shapes_are_named() -> None:
    def input_fn(pipeline: Any) -> Any:
        return tf.data.Dataset.from_tensors(tf.ones([2, 1 + pipeline.index]))

    with pytest.raises(InvalidSetting, match=r"features \(float32\[2, 1\]\) is features \(.*2, 2"):
        infeed.build_infeed(input_fn, topology(2, 2, Mode.PER_HOST_V1, batch_size=4))


def test_labels_on_one_host_only_are_refused() -> None:
    def input_fn(pipeline: Any) -> Any:
        labels = tf.ones([2]) if pipeline.index else None
        return tf.data.Dataset.from_tensors((tf.ones([2]), labels))

    with pytest.raises(InvalidSetting, match=r"labels \(float32\[2\]\) is new"):
        infeed.build_infeed(input_fn, topology(2, 2, Mode.PER_HOST_V1, batch_size=4))


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ([0], r"of 1 axes, .* 2 tensors: features .*, labels .*one axis for each"),
        ([0, 1], r"batch_axis is 1 for labels \(float32\[4\]\), which has 1 dimensions"),
        ([0, None], r"batch_axis is None for labels|of 1 axes"),
        (["rows", 0], r"batch_axis is 'rows' for features"),
    ],
)
def test_batch_axis_must_fit_the_input(axes: Any, expected: str) -> None:
    with pytest.raises(InvalidSetting, match=expected):
        _build_infeed((tf.ones([4, 2]), tf.ones([4])), batch_axis=axes)


def test_batch_axis_is_ignored_in_other_input_modes(caplog: Any) -> None:
    result = _build_infeed(tf.ones([4, 2]), Mode.SLICED, batch_axis=[1])
    assert result.dequeue().features.shape == [2, 2]
    assert "batch_axis=[1] is ignored" in caplog.text
