"""What happened → the PredictionLog message that says so.

Source: tensorflow_serving/apis/prediction_log.proto.
"""

from collections.abc import Sequence
from typing import Any

from tensorflow_serving.apis import (
    classification_pb2,
    input_pb2,
    prediction_log_pb2,
    regression_pb2,
)

from server.config.model_config import RequestLogging
from server.dataplane.results import Classification, Regression
from server.request_log.log import Inferred, Predicted
from server.tensors import tensor_proto
from tpuserve.saved_model.signature import REGRESS_METHOD


def encode(what: Predicted | Inferred, config: RequestLogging, when: float) -> bytes:
    """A serialized PredictionLog, with the request and its answer.

    Args:
      when: seconds since 1970.

    Raises:
      TpuserveError: a tensor that no message has a form for.
    """
    log = prediction_log_pb2.PredictionLog()
    metadata = log.log_metadata
    metadata.sampling_config.sampling_rate = config.sampling_rate
    metadata.timestamp_secs = int(when)
    if isinstance(what, Predicted):
        _spec(metadata.model_spec, what.answer)
        _predict(log.predict_log, what)
    else:
        _spec(metadata.model_spec, what.answers[0])
        _infer(log, what)
    serialized: bytes = log.SerializeToString()
    return serialized


def _predict(log: Any, what: Predicted) -> None:
    _spec(log.request.model_spec, what.answer)
    for alias, array in what.inputs.items():
        log.request.inputs[alias].CopyFrom(tensor_proto.encode(array))
    log.request.output_filter.extend(what.output_filter)
    _spec(log.response.model_spec, what.answer)
    for alias, array in what.answer.outputs.items():
        log.response.outputs[alias].CopyFrom(tensor_proto.encode(array))


def _infer(log: Any, what: Inferred) -> None:
    first = what.answers[0]
    if what.tasks:
        multi = log.multi_inference_log
        for (_, method), answer in zip(what.tasks, what.answers, strict=True):
            _spec(multi.request.tasks.add(method_name=method).model_spec, answer)
            result = multi.response.results.add()
            _spec(result.model_spec, answer)
            _result(result, answer, method == REGRESS_METHOD)
        multi.request.input.CopyFrom(_input(what.examples))
        return
    entry = log.regress_log if isinstance(first, Regression) else log.classify_log
    _spec(entry.request.model_spec, first)
    entry.request.input.CopyFrom(_input(what.examples))
    _spec(entry.response.model_spec, first)
    if isinstance(first, Regression):
        entry.response.result.CopyFrom(_regressions(first))
    else:
        entry.response.result.CopyFrom(_classifications(first))


def _result(result: Any, answer: Classification | Regression, is_regression: bool) -> None:
    if isinstance(answer, Regression):
        result.regression_result.CopyFrom(_regressions(answer))
    else:
        result.classification_result.CopyFrom(_classifications(answer))


def _spec(spec: Any, answer: Any) -> None:
    spec.name = answer.model
    spec.version.value = answer.version
    spec.signature_name = answer.signature_name


def _input(examples: Sequence[bytes]) -> Any:
    sent = input_pb2.Input()
    sent.example_list.SetInParent()
    for each in examples:
        sent.example_list.examples.add().MergeFromString(each)
    return sent


def _regressions(answer: Regression) -> Any:
    result = regression_pb2.RegressionResult()
    for value in answer.values.tolist():
        result.regressions.add(value=value)
    return result


def _classifications(answer: Classification) -> Any:
    result = classification_pb2.ClassificationResult()
    found = answer.scores if answer.classes is None else answer.classes
    for row in range(0 if found is None else len(found)):
        entry = result.classifications.add()
        for column in range(0 if found is None else found.shape[1]):
            one = entry.classes.add()
            if answer.classes is not None:
                one.label = answer.classes[row, column].decode("utf-8", "replace")
            if answer.scores is not None:
                one.score = float(answer.scores[row, column])
    return result
