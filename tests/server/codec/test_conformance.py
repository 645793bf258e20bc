"""TensorFlow Serving's own test cases of its JSON conversion pass here as well."""

import numpy as np
import pytest

from server.codec import json_parser, requests, responses
from tests.server.codec.cases import (
    Case,
    array_of,
    body_of,
    cases,
    name_of,
    parse_case,
    signature_of,
)
from tpuserve.errors import Code, TpuserveError

# The cases that differ: TensorFlow Serving accepts any nesting, see docs/serve.md.
DEEPLY_NESTED = ("JsontensorTest.DeeplyNestedWellFormed", "JsontensorTest.DeeplyNestedMalformed")


def test_every_case_is_replayed_by_some_test() -> None:
    kinds = {
        "predict_request_from_json": 31,
        "json_from_tensors": 16,
        # test_examples.py replays each of these cases twice: as a request to classify and to
        # regress.
        "classify_and_regress_request_from_json": 11,
        "json_from_classification_result": 2,
        "json_from_regression_result": 3,
        "json_from_status": 3,
    }
    assert {kind: len(cases(kind)) for kind in kinds} == kinds
    assert sum(kinds.values()) == len(cases())


def assert_refused_as_expected(case: Case, error: TpuserveError) -> None:
    assert error.code.name == case["expect"]["status"]
    assert case["expect"]["message_contains"] in str(error)


@pytest.mark.parametrize("case", cases("predict_request_from_json"), ids=name_of)
def test_predict_request(case: Case) -> None:
    expect = case["expect"]
    if case["test"] in DEEPLY_NESTED:
        with pytest.raises(TpuserveError, match="nested more than 512 levels deep") as caught:
            decode_request(case)
        assert caught.value.code is Code.INVALID_ARGUMENT
        return None
    if expect["status"] != "OK":
        with pytest.raises(TpuserveError) as caught:
            decode_request(case)
        return assert_refused_as_expected(case, caught.value)
    request, inputs = decode_request(case)
    assert len(inputs) == expect["num_inputs"]
    assert requests.get_signature_name(request) == expect.get("signature_name", "")
    if "format" in expect:
        assert requests.is_row_format(request) == (expect["format"] == "row")
    for name, tensor in expect.get("inputs", {}).items():
        expected = array_of(tensor)
        assert (inputs[name].dtype, inputs[name].shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(inputs[name], expected, strict=True)
        if expected.dtype.kind == "f":
            assert (np.signbit(inputs[name]) == np.signbit(expected)).all()


def decode_request(case: Case) -> tuple[json_parser.Json, requests.Arrays]:
    request = json_parser.parse_json(body_of(case))
    requests.get_signature_name(request)
    return request, requests.decode_inputs(request, signature_of(case))


@pytest.mark.parametrize("case", cases("json_from_tensors"), ids=name_of)
def test_predict_response(case: Case) -> None:
    outputs = {name: array_of(tensor) for name, tensor in case["tensors"].items()}
    encode = (
        responses.encode_row_format if case["format"] == "row" else responses.encode_columnar_format
    )
    expect = case["expect"]
    if expect["status"] != "OK":
        if not case["tensors"].get("tensor", {}).get("has_shape", True):
            outputs = {"tensor": np.array(1, np.int32)}
        with pytest.raises(TpuserveError) as caught:
            encode(outputs)
        return assert_refused_as_expected(case, caught.value)
    as_text = expect["compare"] == "numbers_as_text"
    assert parse_case(encode(outputs).decode(), as_text) == parse_case(expect["json"], as_text)


@pytest.mark.parametrize("case", cases("json_from_status"), ids=name_of)
def test_error_body(case: Case) -> None:
    if case["status"] == "OK":
        return  # A status without an error has no body to compare: the server encodes only errors.
    assert parse_case(responses.encode_error(case["message"]).decode(), False) == parse_case(
        case["expect"]["json"], False
    )
