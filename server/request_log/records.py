"""Converts the entries of the request log to the records of its files.

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

from server.config.model_config import JSON_LINES, RequestLogging
from server.dataplane.results import Classification, Regression
from server.request_log.json_records import encode_lines
from server.request_log.log import InferenceLogEntry, PredictLogEntry
from server.tensors import serializer


def encode(
    entry: PredictLogEntry | InferenceLogEntry, config: RequestLogging, time_seconds: float
) -> bytes:
    """Serialise a request and its answer: as a PredictionLog message, or as lines of JSON."""
    if config.format == JSON_LINES:
        return encode_lines(entry, time_seconds)
    log = prediction_log_pb2.PredictionLog()
    metadata = log.log_metadata
    metadata.sampling_config.sampling_rate = config.sampling_rate
    metadata.timestamp_secs = int(time_seconds)
    if isinstance(entry, PredictLogEntry):
        _set_model_spec(metadata.model_spec, entry.answer)
        _fill_predict(log.predict_log, entry)
    else:
        _set_model_spec(metadata.model_spec, entry.answers[0])
        _fill_inference(log, entry)
    serialized: bytes = log.SerializeToString()
    return serialized


def _fill_predict(log: Any, entry: PredictLogEntry) -> None:
    _set_model_spec(log.request.model_spec, entry.answer)
    for alias, array in entry.inputs.items():
        log.request.inputs[alias].CopyFrom(serializer.array_to_tensor_proto(array))
    log.request.output_filter.extend(entry.output_filter)
    _set_model_spec(log.response.model_spec, entry.answer)
    for alias, array in entry.answer.outputs.items():
        log.response.outputs[alias].CopyFrom(serializer.array_to_tensor_proto(array))


def _fill_inference(log: Any, entry: InferenceLogEntry) -> None:
    first = entry.answers[0]
    if entry.tasks:
        multi = log.multi_inference_log
        for (_, method), answer in zip(entry.tasks, entry.answers, strict=True):
            _set_model_spec(multi.request.tasks.add(method_name=method).model_spec, answer)
            result = multi.response.results.add()
            _set_model_spec(result.model_spec, answer)
            _set_result(result, answer)
        multi.request.input.CopyFrom(_input(entry.examples))
        return
    record = log.regress_log if isinstance(first, Regression) else log.classify_log
    _set_model_spec(record.request.model_spec, first)
    record.request.input.CopyFrom(_input(entry.examples))
    _set_model_spec(record.response.model_spec, first)
    if isinstance(first, Regression):
        record.response.result.CopyFrom(_regressions(first))
    else:
        record.response.result.CopyFrom(_classifications(first))


def _set_result(result: Any, answer: Classification | Regression) -> None:
    if isinstance(answer, Regression):
        result.regression_result.CopyFrom(_regressions(answer))
    else:
        result.classification_result.CopyFrom(_classifications(answer))


def _set_model_spec(spec: Any, answer: Any) -> None:
    spec.name = answer.model
    spec.version.value = answer.version
    spec.signature_name = answer.signature_name


def _input(examples: Sequence[bytes]) -> Any:
    message = input_pb2.Input()
    message.example_list.SetInParent()
    for example in examples:
        message.example_list.examples.add().MergeFromString(example)
    return message


def _regressions(answer: Regression) -> Any:
    result = regression_pb2.RegressionResult()
    for value in answer.values.tolist():
        result.regressions.add(value=value)
    return result


def _classifications(answer: Classification) -> Any:
    result = classification_pb2.ClassificationResult()
    table = answer.scores if answer.classes is None else answer.classes
    for row in range(0 if table is None else len(table)):
        classifications = result.classifications.add()
        for column in range(0 if table is None else table.shape[1]):
            class_score = classifications.classes.add()
            if answer.classes is not None:
                class_score.label = answer.classes[row, column].decode("utf-8", "replace")
            if answer.scores is not None:
                class_score.score = float(answer.scores[row, column])
    return result
