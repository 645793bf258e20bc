"""JSON examples become messages that TensorFlow parses back to the same values."""

from typing import Any

import pytest
from google.protobuf import text_format
from tensorflow.core.example import example_pb2
from tensorflow_serving.apis import classification_pb2, regression_pb2

from server.codec import examples, json_parser, requests
from tests.server.codec.cases import Case, body_of, cases, name_of
from tpuserve.errors import InvalidJson

MESSAGES = {
    "classify": classification_pb2.ClassificationRequest,
    "regress": regression_pb2.RegressionRequest,
}


def merge_examples(request: Any) -> list[Any]:
    """Return the examples of a request, each merged with the context."""
    with_context = request.input.example_list_with_context
    messages = [*request.input.example_list.examples, *with_context.examples]
    for message in messages:
        own = example_pb2.Example()
        own.CopyFrom(message)
        message.CopyFrom(with_context.context)
        message.MergeFrom(own)
    return messages


@pytest.mark.parametrize("method", MESSAGES)
@pytest.mark.parametrize("case", cases("classify_and_regress_request_from_json"), ids=name_of)
def test_requests_of_the_reference(case: Case, method: str) -> None:
    expect = case["expect"]
    if expect["status"] != "OK":
        with pytest.raises(InvalidJson) as caught:
            decode_request(body_of(case))
        assert expect["message_contains"] in str(caught.value)
        return
    expected = text_format.Parse(expect["request_textproto"], MESSAGES[method]())
    signature_name, serialized = decode_request(body_of(case))
    assert signature_name == expected.model_spec.signature_name
    # Compare the messages as text, because NaN equals NaN only as text.
    assert [str(example_pb2.Example.FromString(message)) for message in serialized] == [
        str(message) for message in merge_examples(expected)
    ]


def decode_request(body: bytes) -> tuple[str, list[bytes]]:
    request = json_parser.parse_json(body)
    return requests.get_signature_name(request), examples.decode_examples(request)


def test_the_example_wins_over_its_context() -> None:
    (example,) = decode_request(b'{"context": {"a": 1, "b": 2}, "examples": [{"a": 300}]}')[1]
    features = example_pb2.Example.FromString(example).features.feature
    assert (features["a"].int64_list.value, features["b"].int64_list.value) == ([300], [2])


def test_extreme_values_are_kept() -> None:
    body = (
        b'{"examples": [{"i": [-9223372036854775808, -1], "f": [1e39, -1e39], "n": [], "e": ""}]}'
    )
    (example,) = decode_request(body)[1]
    features = example_pb2.Example.FromString(example).features.feature
    assert features["i"].int64_list.value == [-(2**63), -1]
    assert features["f"].float_list.value == [float("inf"), float("-inf")]
    assert features["n"].WhichOneof("kind") is None
    assert features["e"].bytes_list.value == [b""]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{}", "When method is classify, key 'examples' is expected and was not found"),
        (b'{"examples": 5}', "Expecting 'examples' value to be an list/array"),
        (b'{"examples": []}', "'examples' value is an empty array"),
        (b'{"examples": [[1]]}', "Example must be JSON object but got JSON Array"),
        (
            b'{"examples": [{"a": [20, 20.0]}]}',
            "Unexpected element type in feature: a expecting type: int64",
        ),
        (b'{"examples": [{"a": null}]}', "Feature: a has element with unexpected JSON type: Null"),
    ],
)
def test_invalid_documents_are_refused_with_their_text(body: bytes, text: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        decode_request(body)
    assert str(caught.value) == text
