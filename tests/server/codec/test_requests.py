"""Row format and columnar format mean what they mean to TensorFlow Serving."""

import sys
from typing import Any

import numpy as np
import pytest

from server.codec import json_to_array, requests
from tests.server.fakes import FakeModel, spec
from tpuserve.errors import Code, CodedError, InvalidInput
from tpuserve.saved_model.signature import Signature

HALF = FakeModel.signatures["serving_default"]
TWO = FakeModel.signatures["two"]
ECHO = FakeModel.signatures["echo"]
# A signature whose input is called "b64", like the key that marks base64 text.
B64 = Signature({"b64": spec("float32")}, {})


def decode(document: Any, signature: Signature) -> dict[str, Any]:
    return {
        name: array.tolist() for name, array in requests.decode_inputs(document, signature).items()
    }


@pytest.mark.parametrize(
    ("signature", "document", "expected"),
    [
        (HALF, {"instances": [1, 2]}, {"x": [1, 2]}),
        (HALF, {"instances": [{"x": 1}, {"x": 2}]}, {"x": [1, 2]}),
        (HALF, {"inputs": [1, 2]}, {"x": [1, 2]}),
        (HALF, {"inputs": {"x": [1, 2]}}, {"x": [1, 2]}),
        (HALF, {"inputs": {"x": [1], "unknown": "ignored"}}, {"x": [1]}),
        (HALF, {"inputs": 5}, {"x": 5}),
        (TWO, {"instances": [{"a": 1, "b": 2}]}, {"a": [1], "b": [2]}),
        (TWO, {"inputs": {"a": [1, 3], "b": [[2]]}}, {"a": [1, 3], "b": [[2]]}),
        (ECHO, {"instances": [{"b64": "aGk="}, "ho"]}, {"text": [b"hi", b"ho"]}),
        (ECHO, {"instances": [{"text": {"b64": "aGk="}}]}, {"text": [b"hi"]}),
        (ECHO, {"inputs": {"b64": "aGk="}}, {"text": b"hi"}),
        (B64, {"instances": [{"b64": 1}, {"b64": 2}]}, {"b64": [1, 2]}),
        (FakeModel.signatures["nothing"], {"inputs": {}}, {}),
    ],
)
def test_every_form_gives_the_same_arrays(
    signature: Signature, document: Any, expected: dict[str, Any]
) -> None:
    assert decode(document, signature) == expected


ROW = "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "


@pytest.mark.parametrize(
    ("signature", "document", "text"),
    [
        (HALF, {}, "Missing 'inputs' or 'instances' key"),
        (HALF, {"instances": [1], "inputs": [1]}, "Not formatted correctly"),
        (HALF, {"instances": 5}, "Expecting 'instances' to be an list/array"),
        (FakeModel.signatures["nothing"], {"inputs": 5}, "inputs is a plain value/list"),
        (FakeModel.signatures["nothing"], {"instances": [5]}, "instances is a plain list"),
        (HALF, {"instances": []}, "No values in 'instances' array"),
        (TWO, {"instances": [1]}, "instances is a plain list, but expecting list of objects"),
        (TWO, {"inputs": [1]}, "inputs is a plain value/list, but expecting an object"),
        (TWO, {"inputs": {"a": [1]}}, "Missing named input: b in 'inputs' object."),
        (TWO, {"instances": [{"a": 1}]}, "keys must be equal to: a,b"),
        (HALF, {"instances": [{"x": 1, "y": 1}]}, "JSON object: does not have named input: y"),
        (HALF, {"instances": [{"x": 1}, [1]]}, ROW + "Expecting object but got list"),
        (HALF, {"instances": [[1], {"x": 1}]}, ROW + "Expecting value/list but got object"),
        (HALF, {"instances": [[1, 2], [3]]}, ROW + "Expecting tensor size: 2 but got: 1"),
        (HALF, {"instances": [[1, 2], [[3, 4]]]}, ROW + "Expecting shape [2] but got: [1,2]"),
        (HALF, {"instances": [1, [1]]}, ROW + "Expecting shape [] but got: [1]"),
        (HALF, {"instances": [1, "a"]}, ROW + 'JSON Value: "a" Type: String is not of expected'),
        (HALF, {"instances": [{"x": 1}, {"x": "a"}]}, "element: 1 key: x of 'instances' list."),
        (B64, {"instances": [{"b64": 1}, {"b64": "aGk="}]}, ROW + "Expecting object but got value"),
    ],
)
def test_invalid_documents_are_refused_with_their_text(
    signature: Signature, document: Any, text: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        requests.decode_inputs(document, signature)
    assert text in str(caught.value)


def test_the_invalid_row_of_ten_thousand_is_found_in_less_than_forty_decodings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # 10,000 rows are halved ten times, until 16 or fewer are left. Then row 0 and at most ten rows
    # are decoded one by one.
    decoded = []

    def decode_value(value: Any, *args: Any, **kwargs: Any) -> Any:
        decoded.append(value)
        return array_decoder(value, *args, **kwargs)

    array_decoder = json_to_array.decode_value
    monkeypatch.setattr(requests, "decode_value", decode_value)
    for position in (1, 4711, 9999):
        decoded.clear()
        rows: list[Any] = [1] * 10_000
        rows[position] = "a"
        with pytest.raises(InvalidInput, match=f"element: {position} of"):
            requests.decode_inputs({"instances": rows}, HALF)
        assert len(decoded) < 40


def test_the_first_invalid_row_is_named_among_rows_with_as_many_dimensions_as_possible() -> None:
    row: Any = 1
    for _ in range(32):
        row = [row]
    # 40 of these rows cannot be decoded together, because their array would have 33 dimensions.
    rows = [row] * 40
    rows[30] = rows[39] = "a"
    with pytest.raises(InvalidInput, match="element: 30 of"):
        requests.decode_inputs({"instances": rows}, HALF)


def test_bytes_of_arrays_include_their_strings() -> None:
    floats, strings = np.zeros([2, 3], np.float32), np.array([[b"ab"], [b"c"]], object)
    # 6 floats of 4 bytes, 2 pointers of 8 bytes, and the two strings with the overhead of Python
    # objects.
    expected = 24 + 16 + sys.getsizeof(b"ab") + sys.getsizeof(b"c")
    assert requests.count_bytes({"x": floats, "text": strings}) == expected


def test_unsupported_type_is_so_in_columns_and_invalid_in_rows() -> None:
    signature = Signature({"x": spec("float16")}, {})
    with pytest.raises(CodedError, check=lambda error: error.code is Code.UNIMPLEMENTED):
        requests.decode_inputs({"inputs": [1.0]}, signature)
    with pytest.raises(InvalidInput, match="Error: UNIMPLEMENTED: Conversion of JSON Value: 1.0"):
        requests.decode_inputs({"instances": [1.0]}, signature)


def test_signature_name_defaults_to_none() -> None:
    assert requests.get_signature_name({"instances": [1]}) == ""
    assert requests.get_signature_name({"signature_name": "two"}) == "two"


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([1, 2], "JSON Value: [\n    1,\n    2\n] Is not object"),
        ({"signature_name": 5}, "'signature_name' key must be a string value."),
    ],
)
def test_body_without_a_readable_signature_name_is_refused(document: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        requests.get_signature_name(document)
    assert str(caught.value).endswith(text)
