"""Encodes the requests of TensorFlow Serving's API that hold Examples, and decodes their replies.

Source: classification.proto, regression.proto, inference.proto and input.proto of
tensorflow_serving/apis, and TensorFlow Serving's document of its RESTful API.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from tpuserve.client import arrays
from tpuserve.client.apis import rest_v1
from tpuserve.client.apis.grpc_v1 import parse_message, set_model
from tpuserve.client.arrays import Array
from tpuserve.client.call import Call, ModelReference, Steps
from tpuserve.proto import prediction_service_pb2 as pb

ExampleMethod: TypeAlias = Literal["classify", "regress"]

_SERVICE = "/tensorflow.serving.PredictionService"


def run(
    is_http: bool,
    method: ExampleMethod,
    model: ModelReference,
    signature_name: str,
    examples: pb.Input,
) -> Steps[dict[str, Array]]:
    """Run a Classify or Regress request over REST or gRPC.

    Returns:
      For Classify "classes", an object array of bytes, and "scores", both [examples, classes]; for
      Regress "outputs" [examples].
    """
    if is_http:
        document = _to_json(examples)
        if signature_name:
            document["signature_name"] = signature_name
        body = json.dumps(document).encode()
        reply = yield Call(f"{rest_v1.path(model)}:{method}", body, rest_v1.JSON_HEADERS)
        try:
            results = rest_v1.decode_json(reply)["results"]
            return _regressions(results) if method == "regress" else _classifications(results)
        except rest_v1.MALFORMED as error:
            raise rest_v1.invalid_reply("its results have another form", reply) from error
    kind = pb.RegressionRequest if method == "regress" else pb.ClassificationRequest
    request: Any = kind(input=examples)
    set_model(request.model_spec, model)
    request.model_spec.signature_name = signature_name
    reply = yield Call(f"{_SERVICE}/{method.capitalize()}", request.SerializeToString())
    if method == "regress":
        return _regressions_of(parse_message(pb.RegressionResponse, reply).result)
    return _classifications_of(parse_message(pb.ClassificationResponse, reply).result)


def run_several(
    model: ModelReference, tasks: Sequence[pb.InferenceTask], examples: pb.Input
) -> Steps[dict[str, Array]]:
    """Run a MultiInference request over gRPC; REST has none.

    Returns:
      "SIGNATURE/OUTPUT" → array, with the outputs of `run`.
    """
    request = pb.MultiInferenceRequest(tasks=tasks, input=examples)
    for task in request.tasks:
        task.model_spec.ClearField("version_choice")
        set_model(task.model_spec, model)
    reply = yield Call(f"{_SERVICE}/MultiInference", request.SerializeToString())
    outputs = {}
    for result in parse_message(pb.MultiInferenceResponse, reply).results:
        if result.WhichOneof("result") == "regression_result":
            named = _regressions_of(result.regression_result)
        else:
            named = _classifications_of(result.classification_result)
        for name, array in named.items():
            outputs[f"{result.model_spec.signature_name}/{name}"] = array
    return outputs


def _to_json(examples: pb.Input) -> dict[str, Any]:
    if examples.WhichOneof("kind") != "example_list_with_context":
        return {"examples": list(map(_example, examples.example_list.examples))}
    message = examples.example_list_with_context
    return {
        "context": _example(message.context),
        "examples": list(map(_example, message.examples)),
    }


def _example(message: pb.Example) -> dict[str, list[Any]]:
    return {name: _values(feature) for name, feature in message.features.feature.items()}


def _values(feature: pb.Feature) -> list[Any]:
    kind = feature.WhichOneof("kind")
    if kind == "bytes_list":
        return [{"b64": b64encode(value).decode("ascii")} for value in feature.bytes_list.value]
    return list(getattr(feature, kind).value) if kind else []


def _regressions_of(result: pb.RegressionResult) -> dict[str, Array]:
    return _regressions([regression.value for regression in result.regressions])


def _classifications_of(result: pb.ClassificationResult) -> dict[str, Array]:
    return _classifications(
        [[(each.label, each.score) for each in row.classes] for row in result.classifications]
    )


def _regressions(values: Sequence[float]) -> dict[str, Array]:
    return {"outputs": np.array(values, np.float32)}


def _classifications(rows: Sequence[Sequence[tuple[str, float]]]) -> dict[str, Array]:
    shape = (len(rows), len(rows[0]) if rows else 0)
    labels = [label.encode() for row in rows for label, _ in row]
    return {
        "classes": arrays.object_array(labels).reshape(shape),
        "scores": np.array([score for row in rows for _, score in row], np.float32).reshape(shape),
    }
