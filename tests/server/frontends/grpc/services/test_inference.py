"""Classify, Regress, MultiInference and GetModelMetadata answer TensorFlow Serving's stubs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from server.admission.memory_budget import MemoryBudget
from server.dataplane import DataPlane
from server.frontends import output_memory
from server.models.manager import Manager
from tests.server.aspired_versions import aspire
from tests.server.dataplane.models import ExamplesModel
from tests.server.frontends.grpc import clients
from tests.server.frontends.grpc.clients import Client, example, example_list
from tpuserve.saved_model.signature import CLASSIFY_METHOD, REGRESS_METHOD

CLASSIFY, REGRESS = {"name": "half"}, {"name": "half", "signature_name": "regress"}


class RecordingModel(ExamplesModel):
    """Records the examples of the last request."""

    def _run(self, signature_name: str, inputs: Any) -> Any:
        self.received_examples = list(inputs["inputs"])
        return super()._run(signature_name, inputs)


@pytest.fixture
def model() -> RecordingModel:
    return RecordingModel()


@pytest.fixture
def client(model: RecordingModel) -> Iterator[Client]:
    manager = Manager(lambda directory: model)
    aspire(manager, "half", {3: Path("/models/half/3")})
    with (
        clients.serving(DataPlane(manager), memory_budget=MemoryBudget(1 << 30)) as server,
        clients.connect(server.address) as client,
    ):
        yield client
    manager.close(1)


@pytest.mark.numeric
def test_classify_returns_the_classes_of_each_example(client: Client) -> None:
    tf_example = example(x=1)
    reply = client.classify(example_list([tf_example, tf_example]), **CLASSIFY)
    spec = reply.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("half", 3, "serving_default")
    first, _ = reply.result.classifications
    score = 1 / len(tf_example.SerializeToString())
    assert [entry.label for entry in first.classes] == ["short", "long"]
    assert [entry.score for entry in first.classes] == pytest.approx([score, 1 - score])


def test_scores_alone_have_no_labels(client: Client) -> None:
    reply = client.classify(example_list([example(x=1)]), name="half", signature_name="scores")
    assert [entry.label for entry in reply.result.classifications[0].classes] == ["", ""]


def test_label_that_is_not_utf8_is_sent_with_replacements(
    client: Client, model: RecordingModel
) -> None:
    from tests.server.dataplane.models import strings

    model.outputs["classes"] = strings([b"a\xff", b"b"])
    reply = client.classify(example_list([example(x=1)]), **CLASSIFY)
    assert reply.result.classifications[0].classes[0].label == "a\ufffd"


def test_regress_returns_the_value_of_each_example(client: Client) -> None:
    tf_example = example(x=1)
    reply = client.regress(example_list([tf_example, tf_example]), **REGRESS)
    assert [regression.value for regression in reply.result.regressions] == [
        tf_example.ByteSize()
    ] * 2
    assert reply.model_spec.signature_name == "regress"


def test_examples_reach_the_model_unchanged(client: Client, model: RecordingModel) -> None:
    client.classify(example_list([example(x=1), example(x=2)]), **CLASSIFY)
    assert model.received_examples == [
        example(x=1).SerializeToString(),
        example(x=2).SerializeToString(),
    ]


def test_context_precedes_each_example_and_the_example_wins(
    client: Client, model: RecordingModel
) -> None:
    import tensorflow as tf

    input_message = example_list([example(x=1), example(y=2)], context=example(x=7))
    client.classify(input_message, **CLASSIFY)
    merged = [
        tf.train.Example.FromString(example).features.feature for example in model.received_examples
    ]
    assert [features["x"].float_list.value[0] for features in merged] == [1, 7]
    assert merged[1]["y"].float_list.value[0] == 2


def classify(client: Client) -> Any:
    return client.classify(example_list([example(x=1)]), **CLASSIFY)


def regress(client: Client) -> Any:
    return client.regress(example_list([example(x=1)]), **REGRESS)


def infer(client: Client) -> Any:
    return client.multi_inference(example_list([example(x=1)]), (REGRESS, REGRESS_METHOD))


@pytest.mark.parametrize("call", [classify, regress, infer])
def test_result_without_memory_for_its_message_is_refused(
    call: Callable[[Client], Any], client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    call(client)
    # The memory budget has fewer bytes.
    monkeypatch.setattr(output_memory, "_BYTES_PER_MESSAGE", 2**60)
    with pytest.raises(grpc.RpcError) as caught:
        call(client)
    assert clients.status_and_text(caught)[0] == "RESOURCE_EXHAUSTED"


def test_multi_inference_answers_all_tasks(client: Client) -> None:
    reply = client.multi_inference(
        example_list([example(x=1)]), (CLASSIFY, CLASSIFY_METHOD), (REGRESS, REGRESS_METHOD)
    )
    first, second = reply.results
    assert first.model_spec.signature_name == "serving_default"
    assert len(first.classification_result.classifications) == 1
    assert second.WhichOneof("result") == "regression_result"
    assert second.model_spec.version.value == 3


@pytest.mark.parametrize("method", ["classify", "regress"])
@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({}, "Missing ModelSpec"),
        ({"name": ""}, "ModelSpec has no name specified."),
        ({"name": "half", "signature_name": "S"}, "No signature was found with the name: S"),
        ({"name": "half", "version_label": "L"}, "Unrecognized servable version label: L"),
    ],
)
def test_invalid_model_spec_is_refused(client: Client, method: str, spec: Any, text: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        getattr(client, method)(example_list([example(x=1)]), **spec)
    assert clients.status_and_text(caught) == ("INVALID_ARGUMENT", text)


def test_request_without_examples_is_refused(client: Client) -> None:
    for call, spec in ((client.classify, CLASSIFY), (client.regress, REGRESS)):
        for input_message in (None, example_list([]), example_list([], context=example(x=1))):
            with pytest.raises(grpc.RpcError) as caught:
                call(input_message, **spec)
            assert clients.status_and_text(caught) == ("INVALID_ARGUMENT", "Input is empty.")


OTHER = {"name": "other", "signature_name": "regress"}
UNKNOWN = {"name": "half", "signature_name": "S"}


@pytest.mark.parametrize(
    ("tasks", "code", "text"),
    [
        ([], "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        ([(OTHER, REGRESS_METHOD)], "NOT_FOUND", "Servable not found for request: Latest(other)"),
        (
            [(CLASSIFY, CLASSIFY_METHOD), (OTHER, REGRESS_METHOD)],
            "INVALID_ARGUMENT",
            "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
        ),
        (
            [(REGRESS, REGRESS_METHOD)] * 2,
            "INVALID_ARGUMENT",
            "Duplicate evaluation of signature: regress",
        ),
        (
            [(UNKNOWN, REGRESS_METHOD)],
            "INVALID_ARGUMENT",
            "Requested signature not found in model graph: S",
        ),
        (
            [(REGRESS, "tensorflow/serving/predict")],
            "UNIMPLEMENTED",
            "Unsupported signature method_name: tensorflow/serving/predict",
        ),
    ],
)
def test_invalid_tasks_are_refused(client: Client, tasks: Any, code: str, text: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.multi_inference(example_list([example(x=1)]), *tasks)
    assert clients.status_and_text(caught) == (code, text)


def test_metadata_has_the_complete_signatures(client: Client, model: RecordingModel) -> None:
    from tensorflow.core.protobuf import meta_graph_pb2
    from tensorflow_serving.apis import get_model_metadata_pb2

    signature = meta_graph_pb2.SignatureDef(method_name=REGRESS_METHOD)
    signature.inputs["inputs"].name = "examples:0"
    signature.defaults["inputs"].string_val.append(b"d")
    model.signature_defs = {"regress": signature, "bytes": signature.SerializeToString()}
    reply = client.metadata("signature_def", name="half")
    spec = reply.model_spec
    assert (spec.name, spec.version.value, spec.signature_name) == ("half", 3, "")
    assert list(reply.metadata) == ["signature_def"]
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert reply.metadata["signature_def"].Unpack(signatures)
    assert dict(signatures.signature_def) == {"regress": signature, "bytes": signature}


@pytest.mark.parametrize(
    ("fields", "spec", "code", "text"),
    [
        (["signature_def"], {}, "INVALID_ARGUMENT", "Missing ModelSpec"),
        (
            [],
            CLASSIFY,
            "INVALID_ARGUMENT",
            "GetModelMetadataRequest must specify at least one metadata_field",
        ),
        (["X"], CLASSIFY, "INVALID_ARGUMENT", "Metadata field X is not supported"),
        (
            ["signature_def"],
            {"name": "half", "version": 99},
            "NOT_FOUND",
            "Servable not found for request: Specific(half, 99)",
        ),
    ],
)
def test_invalid_metadata_request_is_refused(
    client: Client, fields: Any, spec: Any, code: str, text: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.metadata(*fields, **spec)
    assert clients.status_and_text(caught) == (code, text)
