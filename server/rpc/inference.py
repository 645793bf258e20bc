"""Classify, Regress and MultiInference: examples in, classes or values out."""

from typing import Any

from tensorflow_serving.apis import classification_pb2, inference_pb2, regression_pb2

from server.dataplane import Classification, DataPlane, Regression
from server.rpc import calls, specs
from server.rpc.serialized_input import ExamplesRequest, TasksRequest, read_examples


class Classify:
    """Answers from a data plane."""

    def __init__(self, dataplane: DataPlane) -> None:
        """Takes the data plane to answer from."""
        self._dataplane = dataplane

    def __call__(self, raw: bytes, timeout_ms: float | None) -> bytes:
        """The classes of each example in the request; errors as of `DataPlane.classify`."""
        request = calls.parse(ExamplesRequest, raw)
        target = specs.read_target(request)
        examples = read_examples(request.input)
        found = self._dataplane.classify(target, examples, timeout_ms=timeout_ms)
        response = classification_pb2.ClassificationResponse()
        _set_spec(response.model_spec, found)
        _write_classes(response.result, found)
        return bytes(response.SerializeToString())


class Regress:
    """Answers from a data plane."""

    def __init__(self, dataplane: DataPlane) -> None:
        """Takes the data plane to answer from."""
        self._dataplane = dataplane

    def __call__(self, raw: bytes, timeout_ms: float | None) -> bytes:
        """The value of each example in the request; errors as of `DataPlane.regress`."""
        request = calls.parse(ExamplesRequest, raw)
        target = specs.read_target(request)
        examples = read_examples(request.input)
        found = self._dataplane.regress(target, examples, timeout_ms=timeout_ms)
        response = regression_pb2.RegressionResponse()
        _set_spec(response.model_spec, found)
        _write_values(response.result, found)
        return bytes(response.SerializeToString())


class MultiInference:
    """Answers from a data plane."""

    def __init__(self, dataplane: DataPlane) -> None:
        """Takes the data plane to answer from."""
        self._dataplane = dataplane

    def __call__(self, raw: bytes, timeout_ms: float | None) -> bytes:
        """The result of each task in the request; errors as of `DataPlane.multi_inference`."""
        request = calls.parse(TasksRequest, raw)
        tasks = [(specs.target_of(each.model_spec), each.method_name) for each in request.tasks]
        examples = read_examples(request.input)
        found = self._dataplane.multi_inference(tasks, examples, timeout_ms=timeout_ms)
        response = inference_pb2.MultiInferenceResponse()
        for each in found:
            result = response.results.add()
            _set_spec(result.model_spec, each)
            if isinstance(each, Classification):
                _write_classes(result.classification_result, each)
            else:
                _write_values(result.regression_result, each)
        return bytes(response.SerializeToString())


def _set_spec(spec: Any, found: Classification | Regression) -> None:
    spec.MergeFromString(specs.encode(found.model, found.version, found.signature_name))


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
