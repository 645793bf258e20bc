"""Examples in JSON become TensorFlow's messages; these are read back by TensorFlow."""

from typing import Any

import pytest
from google.protobuf import text_format
from tensorflow.core.example import example_pb2
from tensorflow_serving.apis import classification_pb2, regression_pb2

from server.codec import examples, json_parser, requests
from tests.server.codec.cases import Case, body_of, cases, name_of
from tpuserve.errors import InvalidJson

pytestmark = pytest.mark.slow

MESSAGES = {
    "classify": classification_pb2.ClassificationRequest,
    "regress": regression_pb2.RegressionRequest,
}


def merged(request: Any) -> list[Any]:
    """The examples of a request, each with its context before it."""
    with_context = request.input.example_list_with_context
    found = [*request.input.example_list.examples, *with_context.examples]
    for each in found:
        own = example_pb2.Example()
        own.CopyFrom(each)
        each.CopyFrom(with_context.context)
        each.MergeFrom(own)
    return found


@pytest.mark.parametrize("method", MESSAGES)
@pytest.mark.parametrize("case", cases("classify_and_regress_request_from_json"), ids=name_of)
def test_requests_of_the_reference(case: Case, method: str) -> None:
    expect = case["expect"]
    if expect["status"] != "OK":
        with pytest.raises(InvalidJson) as caught:
            read(body_of(case))
        assert expect["message_contains"] in str(caught.value)
        return
    expected = text_format.Parse(expect["request_textproto"], MESSAGES[method]())
    signature_name, found = read(body_of(case))
    assert signature_name == expected.model_spec.signature_name
    # Compared as text, in which NaN equals NaN.
    assert [str(example_pb2.Example.FromString(each)) for each in found] == [
        str(each) for each in merged(expected)
    ]


def read(body: bytes) -> tuple[str, list[bytes]]:
    request = json_parser.parse(body)
    return requests.signature_name(request), examples.decode(request)


def test_the_example_wins_over_its_context() -> None:
    (found,) = read(b'{"context": {"a": 1, "b": 2}, "examples": [{"a": 300}]}')[1]
    features = example_pb2.Example.FromString(found).features.feature
    assert (features["a"].int64_list.value, features["b"].int64_list.value) == ([300], [2])


def test_extremes_keep_their_worth() -> None:
    body = (
        b'{"examples": [{"i": [-9223372036854775808, -1], "f": [1e39, -1e39], "n": [], "e": ""}]}'
    )
    (found,) = read(body)[1]
    features = example_pb2.Example.FromString(found).features.feature
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
def test_other_forms_are_refused_with_their_text(body: bytes, text: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        read(body)
    assert str(caught.value) == text
