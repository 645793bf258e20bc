"""Results of classify and regress are encoded in TensorFlow Serving's layout."""

import re

import numpy as np
import pytest

from server.codec.responses import encode_classifications, encode_regressions
from tests.server.codec.cases import Case, cases, name_of, parse_case
from tpuserve.errors import InvalidTensor


@pytest.mark.parametrize("case", cases("json_from_classification_result"), ids=name_of)
def test_classifications_of_the_reference(case: Case) -> None:
    labels = re.findall(r'label: "(.*)"', case["result_textproto"])
    scores = [float(number) for number in re.findall(r"score: (\S+)", case["result_textproto"])]
    shape = (len(labels) // 3, 3)
    classes = np.array([label.encode() for label in labels], object).reshape(shape)
    if case["expect"]["status"] != "OK":
        with pytest.raises(InvalidTensor, match=case["expect"]["message_contains"]):
            encode_classifications(classes, None)
        return
    encoded = encode_classifications(classes, np.array(scores, np.float32).reshape(shape))
    assert parse_case(encoded.decode(), False) == parse_case(case["expect"]["json"], False)


@pytest.mark.parametrize("case", cases("json_from_regression_result"), ids=name_of)
def test_regressions_of_the_reference(case: Case) -> None:
    values = [float(number) for number in re.findall(r"value: (\S+)", case["result_textproto"])]
    array = np.array(values, np.float32)
    if case["expect"]["status"] != "OK":
        with pytest.raises(InvalidTensor, match=case["expect"]["message_contains"]):
            encode_regressions(array)
        return
    as_text = case["expect"]["compare"] == "numbers_as_text"
    encoded = encode_regressions(array).decode()
    assert parse_case(encoded, as_text) == parse_case(case["expect"]["json"], as_text)


def test_missing_labels_are_empty_and_missing_scores_are_zero() -> None:
    labels = np.array([[b"a"], [b"b"]], object)
    scores = np.array([[0.5], [1e-5]], np.float32)
    layout = b'{\n    "results": [[[%s]], [[%s]]\n    ]\n}'
    assert encode_classifications(labels, None) == layout % (b'"a", 0.0', b'"b", 0.0')
    assert encode_classifications(None, scores) == layout % (b'"", 0.5', b'"", 1e-05')
