"""Inputs from warm-up records of each kind."""

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from tpuserve.errors import DamagedSavedModel, InvalidInputNames
from tpuserve.samples import warm_up_inputs
from tpuserve.saved_model.signature import Signature, TensorSpec

PREDICT = Signature({"x": TensorSpec("x:0", "float32", (None,))}, {})
CLASSIFY = Signature({"inputs": TensorSpec("e:0", "string", (None,))}, {})
SIGNATURES = {"serving_default": PREDICT, "classes": CLASSIFY}


def records(directory: Path, *logs: Any) -> Path:
    path = directory / "assets.extra" / "tf_serving_warmup_requests"
    path.parent.mkdir()
    with tf.io.TFRecordWriter(str(path)) as writer:
        for log in logs:
            writer.write(log if isinstance(log, bytes) else log.SerializeToString())
    return directory


def predict(**inputs: Any) -> Any:
    log = prediction_log_pb2.PredictionLog()
    for alias, value in inputs.items():
        log.predict_log.request.inputs[alias].CopyFrom(tf.make_tensor_proto(value))
    return log


def example(key: str, value: float) -> Any:
    tf_example = tf.train.Example()
    tf_example.features.feature[key].float_list.value.append(value)
    return tf_example


def test_a_predict_request_has_arrays(tmp_path: Path) -> None:
    inputs = warm_up_inputs.read_warm_up_inputs(
        records(tmp_path, predict(x=[1.0, 2.0])), SIGNATURES, []
    )
    assert inputs["serving_default"][0]["x"].tolist() == [1.0, 2.0]


def test_a_classification_has_serialized_examples_with_their_context(tmp_path: Path) -> None:
    log = prediction_log_pb2.PredictionLog()
    request = log.classify_log.request
    request.model_spec.signature_name = "classes"
    request.input.example_list_with_context.context.CopyFrom(example("shared", 1))
    request.input.example_list_with_context.examples.append(example("own", 2))
    (inputs,) = warm_up_inputs.read_warm_up_inputs(records(tmp_path, log), SIGNATURES, [])[
        "classes"
    ]
    parsed = tf.train.Example.FromString(inputs["inputs"][0])
    assert sorted(parsed.features.feature) == ["own", "shared"]


def test_records_of_other_kinds_are_ignored_with_a_note(tmp_path: Path) -> None:
    log = prediction_log_pb2.PredictionLog()
    log.session_run_log.SetInParent()
    notes: list[str] = []
    assert warm_up_inputs.read_warm_up_inputs(records(tmp_path, log), SIGNATURES, notes) == {}
    assert notes == ["warm-up record 0 is a session_run_log and is ignored"]


def test_a_record_with_other_inputs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputNames, match="has inputs z; the signature takes x"):
        warm_up_inputs.read_warm_up_inputs(records(tmp_path, predict(z=[1.0])), SIGNATURES, [])


def test_a_record_that_is_no_prediction_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedSavedModel, match="record 0 of .* is not a PredictionLog"):
        warm_up_inputs.read_warm_up_inputs(records(tmp_path, b"\xff\xff"), SIGNATURES, [])


@pytest.mark.parametrize("dtype", [tf.float32.as_datatype_enum, 0, 99])
def test_a_tensor_that_does_not_fit_its_shape_or_has_no_dtype_is_refused(
    tmp_path: Path, dtype: int
) -> None:
    log = predict(x=[1.0, 2.0])
    tensor = log.predict_log.request.inputs["x"]
    tensor.tensor_content += b"cut"
    tensor.dtype = dtype
    with pytest.raises(DamagedSavedModel, match="record 0 of .*: input 'x' is a damaged TensorP"):
        warm_up_inputs.read_warm_up_inputs(records(tmp_path, log), SIGNATURES, [])


def test_a_model_without_records_has_none(tmp_path: Path) -> None:
    assert warm_up_inputs.read_warm_up_inputs(tmp_path, SIGNATURES, []) == {}
