"""The methods Classify, Regress and MultiInference: run signatures on tf.train.Examples.

Source: tensorflow_serving/apis/classification.proto, regression.proto, inference.proto.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from tensorflow_serving.apis import classification_pb2, inference_pb2, regression_pb2

from server.dataplane import Classification, DataPlane, Regression
from server.frontends import output_memory
from server.frontends.grpc.call_context import CallContext
from server.frontends.grpc.services.call_handler import UnaryFunction
from server.frontends.grpc.services.model_service import (
    decode_model_spec,
    decode_request_model_spec,
    serialize_model_spec,
)
from server.frontends.grpc.services.parsing import parse_within_limits
from server.proto.serialized_input_pb2 import ExamplesRequest, Input, MultiInferenceRequest
from server.servables import pending
from server.servables.pending import Pending
from server.tensors.parsing_cost import EXAMPLES_REQUEST


def read_examples(proto: Input) -> list[bytes]:
    """Return the serialised tf.train.Examples of an Input message.

    If the message has an ExampleListWithContext, the bytes of the context are put before the bytes
    of each example.
    """
    if proto.WhichOneof("kind") == "example_list":
        return list(proto.example_list.examples)
    with_context = proto.example_list_with_context
    return [with_context.context + example for example in with_context.examples]


_Result = TypeVar("_Result", Classification, Regression)
_WriteResult: TypeAlias = Callable[[Any, _Result], None]


def classify_function(dataplane: DataPlane) -> UnaryFunction:
    """Return the implementation of the method Classify.

    Args:
      dataplane: finds the model of a request and runs the model. The returned implementation raises
        the same errors as `dataplane.start_classify`.
    """
    return _examples_function(
        dataplane.start_classify, classification_pb2.ClassificationResponse, _write_classification
    )


def regress_function(dataplane: DataPlane) -> UnaryFunction:
    """Return the implementation of the method Regress.

    Args:
      dataplane: finds the model of a request and runs the model. The returned implementation raises
        the same errors as `dataplane.start_regress`.
    """
    return _examples_function(
        dataplane.start_regress, regression_pb2.RegressionResponse, _write_regression
    )


def multi_inference_function(dataplane: DataPlane) -> UnaryFunction:
    """Return the implementation of the method MultiInference.

    Args:
      dataplane: finds the model of a request and runs the model. The returned implementation raises
        the same errors as `dataplane.start_multi_inference`.
    """

    def multi_inference(raw: bytes | memoryview, call: CallContext) -> bytes | Pending[bytes]:
        message = parse_within_limits(MultiInferenceRequest, raw, EXAMPLES_REQUEST, call)
        tasks = [(decode_model_spec(task.model_spec), task.method_name) for task in message.tasks]
        if tasks:
            call.set_model_spec(tasks[0][0])
        examples = read_examples(message.input)
        results = dataplane.start_multi_inference(call.request, tasks, examples)
        return pending.transform(results, lambda result: serialize(result, call))

    def serialize(results: Sequence[Classification | Regression], call: CallContext) -> bytes:
        response = inference_pb2.MultiInferenceResponse()
        for result in results:
            call.version = result.version
            output_memory.reserve_for_result_as_message(result, call.request.reserve)
            proto = response.results.add()
            _write_model_spec(proto.model_spec, result)
            if isinstance(result, Classification):
                _write_classification(proto.classification_result, result)
            else:
                _write_regression(proto.regression_result, result)
        return bytes(response.SerializeToString())

    return multi_inference


def _examples_function(
    start: Callable[..., _Result | Pending[_Result]],
    response_type: Callable[[], Any],
    write_result: _WriteResult[_Result],
) -> UnaryFunction:
    """Return the implementation of a method that runs one signature on examples."""

    def run_on_examples(raw: bytes | memoryview, call: CallContext) -> bytes | Pending[bytes]:
        message = parse_within_limits(ExamplesRequest, raw, EXAMPLES_REQUEST, call)
        call.set_model_spec(decode_request_model_spec(message))
        examples = read_examples(message.input)
        result = start(call.request, call.model_spec, examples)
        return pending.transform(result, lambda inference: serialize(inference, call))

    def serialize(result: _Result, call: CallContext) -> bytes:
        call.version = result.version
        output_memory.reserve_for_result_as_message(result, call.request.reserve)
        response = response_type()
        _write_model_spec(response.model_spec, result)
        write_result(response.result, result)
        return bytes(response.SerializeToString())

    return run_on_examples


def _write_model_spec(proto: Any, result: Classification | Regression) -> None:
    proto.MergeFromString(serialize_model_spec(result.model, result.version, result.signature_name))


def _write_classification(proto: Any, result: Classification) -> None:
    # Mark `proto`, the value of the field `result`, as present in the response. Otherwise protobuf
    # would omit the field if there are no examples, because `proto` is then empty.
    proto.SetInParent()
    labels = None if result.classes is None else result.classes.tolist()
    scores = None if result.scores is None else result.scores.tolist()
    for row, columns in enumerate(labels if labels is not None else scores or []):
        classes = proto.classifications.add().classes
        for column in range(len(columns)):
            class_proto = classes.add()
            if labels is not None:
                # Replace bytes that are not UTF-8: the field `label` must be UTF-8, but a model may
                # return any bytes.
                class_proto.label = labels[row][column].decode("utf-8", "replace")
            if scores is not None:
                class_proto.score = scores[row][column]


def _write_regression(proto: Any, result: Regression) -> None:
    proto.SetInParent()
    for value in result.values.tolist():
        proto.regressions.add(value=value)
