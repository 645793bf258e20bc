"""Classify, Regress and MultiInference: examples in, classes or values out."""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from tensorflow_serving.apis import classification_pb2, inference_pb2, regression_pb2

from server.dataplane import Classification, DataPlane, Regression
from server.frontends.grpc.services import call_handler, model_spec
from server.frontends.grpc.services.call_context import Answer, CallContext
from server.frontends.grpc.services.serialized_input import (
    ExamplesRequest,
    TasksRequest,
    read_examples,
)

_Found = TypeVar("_Found", Classification, Regression)
_Write: TypeAlias = Callable[[Any, _Found], None]


def classify(dataplane: DataPlane) -> Answer:
    """Answers with the classes of each example; errors as of `DataPlane.classify`."""
    return _by_examples(
        dataplane.classify, classification_pb2.ClassificationResponse, _write_classes
    )


def regress(dataplane: DataPlane) -> Answer:
    """Answers with the value of each example; errors as of `DataPlane.regress`."""
    return _by_examples(dataplane.regress, regression_pb2.RegressionResponse, _write_values)


def multi_inference(dataplane: DataPlane) -> Answer:
    """Answers with the result of each task; errors as of `DataPlane.multi_inference`."""

    def answer(raw: bytes, request: CallContext) -> bytes:
        message = call_handler.parse(TasksRequest, raw)
        tasks = [
            (model_spec.target_of(each.model_spec), each.method_name) for each in message.tasks
        ]
        if tasks:
            request.target = tasks[0][0]
        examples = read_examples(message.input)
        found = dataplane.multi_inference(tasks, examples, timeout_ms=request.timeout_ms)
        response = inference_pb2.MultiInferenceResponse()
        for each in found:
            request.version = each.version
            result = response.results.add()
            _set_spec(result.model_spec, each)
            if isinstance(each, Classification):
                _write_classes(result.classification_result, each)
            else:
                _write_values(result.regression_result, each)
        return bytes(response.SerializeToString())

    return answer


def _by_examples(
    ask: Callable[..., _Found], response_type: Callable[[], Any], write: _Write[_Found]
) -> Answer:
    def answer(raw: bytes, request: CallContext) -> bytes:
        message = call_handler.parse(ExamplesRequest, raw)
        request.target = model_spec.read_target(message)
        examples = read_examples(message.input)
        found = ask(request.target, examples, timeout_ms=request.timeout_ms)
        request.version = found.version
        response = response_type()
        _set_spec(response.model_spec, found)
        write(response.result, found)
        return bytes(response.SerializeToString())

    return answer


def _set_spec(spec: Any, found: Classification | Regression) -> None:
    spec.MergeFromString(model_spec.encode(found.model, found.version, found.signature_name))


def _write_classes(result: Any, found: Classification) -> None:
    # A message without examples is still there.
    result.SetInParent()
    labels = None if found.classes is None else found.classes.tolist()
    scores = None if found.scores is None else found.scores.tolist()
    for row, each in enumerate(labels if labels is not None else scores or []):
        classes = result.classifications.add().classes
        for column in range(len(each)):
            added = classes.add()
            if labels is not None:
                # Labels are text to gRPC, and any bytes to a model.
                added.label = labels[row][column].decode("utf-8", "replace")
            if scores is not None:
                added.score = scores[row][column]


def _write_values(result: Any, found: Regression) -> None:
    result.SetInParent()
    for value in found.values.tolist():
        result.regressions.add(value=value)
