"""Requests that hold Examples have TensorFlow Serving's form, and their replies become arrays."""

import json
from typing import Any

import numpy as np
import pytest

from tpuserve.client.apis import examples
from tpuserve.client.call import Call, ModelReference, Reply
from tpuserve.errors import InvalidReply
from tpuserve.proto import prediction_service_pb2 as pb

HALF = ModelReference("half", label="stable")


def some_examples() -> pb.Input:
    message = pb.Input()
    context = message.example_list_with_context.context.features.feature
    context["name"].bytes_list.value.append(b"\xff")
    feature = message.example_list_with_context.examples.add().features.feature
    feature["x"].float_list.value.extend([1.0, float("nan")])
    feature["n"].int64_list.value.append(3)
    feature["none"].SetInParent()
    return message


def answer(body: bytes, *arguments: Any) -> tuple[Call, dict[str, Any]]:
    steps = examples.run(*arguments)
    call = next(steps)
    with pytest.raises(StopIteration) as stop:
        steps.send(Reply(body))
    return call, stop.value.value


def test_rest_sends_examples_as_json() -> None:
    body = b'{"results": [[["a", 0.25], ["b", 1]]]}'
    call, outputs = answer(body, True, "classify", HALF, "sizes", some_examples())
    assert call.path == "/v1/models/half/labels/stable:classify"
    assert call.body is not None
    assert json.loads(call.body.replace(b"NaN", b"2")) == {
        "signature_name": "sizes",
        "context": {"name": [{"b64": "/w=="}]},
        "examples": [{"x": [1.0, 2], "n": [3], "none": []}],
    }
    assert outputs["classes"].tolist() == [[b"a", b"b"]]
    assert outputs["scores"].tolist() == [[0.25, 1.0]]
    assert outputs["scores"].dtype == np.float32


def test_grpc_sends_examples_as_they_are() -> None:
    response = pb.RegressionResponse()
    response.result.regressions.add(value=0.5)
    body = response.SerializeToString()
    call, outputs = answer(body, False, "regress", HALF, "", some_examples())
    assert call.path == "/tensorflow.serving.PredictionService/Regress"
    assert call.body is not None
    request = pb.RegressionRequest.FromString(call.body)
    assert request.model_spec.version_label == "stable"
    assert request.input == some_examples()
    assert outputs["outputs"].tolist() == [0.5]


@pytest.mark.parametrize("body", [b"[]", b'{"results": 7}', b'{"results": [["a"]]}'])
def test_results_of_another_form_are_refused(body: bytes) -> None:
    steps = examples.run(True, "classify", HALF, "", some_examples())
    next(steps)
    with pytest.raises(InvalidReply):
        steps.send(Reply(body))
