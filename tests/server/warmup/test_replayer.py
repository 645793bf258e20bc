"""Logged requests of each kind run like the requests of clients."""

from typing import Any

import numpy as np
import pytest
from tensorflow_serving.apis import prediction_log_pb2

from server.tensors import serializer
from server.warmup.replayer import WarmupReplayer
from tests.server.dataplane.models import ExamplesModel
from tests.server.fakes import FakeModel
from tpuserve.errors import TpuserveError


def replay_log(log: Any, model: FakeModel, check_method_names: bool = False) -> None:
    WarmupReplayer(check_method_names)(model, log.SerializeToString())


def predict_log(**values: Any) -> Any:
    log = prediction_log_pb2.PredictionLog(predict_log=prediction_log_pb2.PredictLog())
    for alias, value in values.items():
        log.predict_log.request.inputs[alias].CopyFrom(serializer.array_to_tensor_proto(value))
    return log


def add_examples(input_message: Any, count: int = 2) -> None:
    for _ in range(count):
        input_message.example_list.examples.add().features.feature["x"].int64_list.value.append(1)


def test_predict_is_run() -> None:
    model = FakeModel()
    replay_log(predict_log(x=np.ones(2, np.float32)), model, check_method_names=True)
    assert model.has_begun.is_set()


def test_classify_regress_and_multi_inference_are_run() -> None:
    model = ExamplesModel()
    log = prediction_log_pb2.PredictionLog()
    add_examples(log.classify_log.request.input)
    replay_log(log, model)
    add_examples(log.regress_log.request.input)
    log.regress_log.request.model_spec.signature_name = "regress"
    replay_log(log, model)
    multi = log.multi_inference_log.request
    add_examples(multi.input)
    multi.tasks.add(method_name="tensorflow/serving/classify").model_spec.name = "any"
    second = multi.tasks.add(method_name="tensorflow/serving/regress").model_spec
    second.name, second.signature_name = "any", "regress"
    replay_log(log, model, check_method_names=True)
    assert model.runs == ["serving_default", "regress", "serving_default", "regress"]


def test_context_is_part_of_each_example() -> None:
    model = ExamplesModel()
    log = prediction_log_pb2.PredictionLog()
    example_list = log.classify_log.request.input.example_list_with_context
    example_list.context.features.feature["c"].int64_list.value.append(1)
    example_list.examples.add()
    replay_log(log, model)
    assert model.runs == ["serving_default"]


@pytest.mark.parametrize(
    ("log", "code", "text"),
    [
        (
            prediction_log_pb2.PredictionLog(),
            "UNIMPLEMENTED",
            "Unsupported log_type for warmup: none",
        ),
        (
            prediction_log_pb2.PredictionLog(session_run_log=prediction_log_pb2.SessionRunLog()),
            "UNIMPLEMENTED",
            "Unsupported log_type for warmup: session_run_log",
        ),
        (
            predict_log(x=np.ones(2, np.int32)),
            "INVALID_ARGUMENT",
            "Expects arg[0] to be float but int32 is provided",
        ),
        (
            predict_log(),
            "INVALID_ARGUMENT",
            "input size does not match signature: 0!=1 len({}) != len({x}). Sent extra: {}. "
            "Missing but required: {x}.",
        ),
    ],
)
def test_what_cannot_be_run_fails(log: Any, code: str, text: str) -> None:
    with pytest.raises(TpuserveError) as caught:
        replay_log(log, FakeModel())
    assert (caught.value.code.name, str(caught.value)) == (code, text)


def test_no_examples_are_refused() -> None:
    log = prediction_log_pb2.PredictionLog(classify_log=prediction_log_pb2.ClassifyLog())
    with pytest.raises(TpuserveError, match=r"^Input is empty\.$"):
        replay_log(log, ExamplesModel())


def test_record_that_is_no_log_is_data_loss() -> None:
    with pytest.raises(TpuserveError) as caught:
        WarmupReplayer()(FakeModel(), b"\xff\xff")
    assert caught.value.code.name == "DATA_LOSS"
    assert str(caught.value).endswith("Please verify your warmup data is in TFRecord format.")
