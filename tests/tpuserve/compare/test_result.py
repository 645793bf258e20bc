"""Answers are compared with tolerances by dtype, and errors by code and text."""

import ml_dtypes
import numpy as np
import pytest

from tpuserve import errors
from tpuserve.client.call import ModelReference
from tpuserve.compare.report import Report
from tpuserve.compare.requests import Request
from tpuserve.compare.result import Result, Tolerances, compare_answers
from tpuserve.compare.side import Answer, Side
from tpuserve.errors import TpuserveError

REQUEST = Request("record 0 of a", "predict", ("serving_default",), None, b"")


def compare(
    baseline: Answer, candidate: Answer, tolerances: Tolerances | None = None, number: int = 0
) -> Result:
    return compare_answers(
        number, REQUEST, baseline, candidate, tolerances or Tolerances(), is_same_protocol=True
    )


def values(*numbers: float, dtype: str = "float32", ms: float = 1.0) -> Answer:
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return Answer(ms, {"y": np.array(numbers).astype(kind)})


@pytest.mark.parametrize(
    ("dtype", "near", "far"),
    [("float64", 1.00001, 1.0001), ("float16", 1.001, 1.01), ("bfloat16", 1.0078125, 1.0390625)],
)
def test_the_default_tolerance_is_that_of_the_dtype(dtype: str, near: float, far: float) -> None:
    one = values(1, dtype=dtype)
    assert not compare(one, values(near, dtype=dtype)).difference
    assert compare(one, values(far, dtype=dtype)).difference


def test_a_tolerance_is_for_a_dtype_or_for_all_others() -> None:
    tolerances = Tolerances({"": 0.5, "float16": 0.0}, {"": 0.0})
    assert not compare(values(1), values(1.5), tolerances).difference
    expected = "y: 1 of 2 values differ, by 5.0e-01"
    baseline, candidate = values(1, 2, dtype="float16"), values(1.5, 2, dtype="float16")
    assert compare(baseline, candidate, tolerances).difference == expected


def test_outputs_that_one_side_lacks_are_named() -> None:
    result = compare(values(1), Answer(1, {"z": np.zeros(1)}))
    expected = "only the baseline has the output y; only the candidate has the output z"
    assert result.difference == expected


@pytest.mark.parametrize(
    ("candidate", "difference"),
    [
        (errors.NotFound("no model"), ""),
        (errors.NotFound("gone"), "NOT_FOUND: no model (baseline), NOT_FOUND: gone (candidate)"),
        (errors.Conflict("no model"), None),
        (None, "NOT_FOUND: no model (baseline), answered (candidate)"),
    ],
)
def test_errors_are_compared_by_code_and_text(
    candidate: TpuserveError | None, difference: str | None
) -> None:
    result = compare(Answer(1, {}, errors.NotFound("no model")), Answer(1, {}, candidate))
    expected = "NOT_FOUND: no model (baseline), ABORTED: no model (candidate)"
    assert result.difference == (expected if difference is None else difference)


def test_a_result_is_read_from_its_dict() -> None:
    result = compare(values(1), values(2))
    assert Result.from_dict(result.to_dict()) == result


def test_the_report_has_the_ten_worst_differences_and_the_latencies() -> None:
    model = ModelReference("half")
    report = Report(Side("baseline", "http://a:1", model), Side("candidate", "http://b:1", model))
    for number in range(12):
        report.add(compare(values(0), values(number, ms=number), number=number))
    report.add(compare(values(0), Answer(1, {}, errors.NotFound("no")), number=12))
    assert [result.number for result in report.worst] == [12, *range(11, 2, -1)]
    (signature,) = report.to_dict()["signatures"]
    assert (signature["requests"], signature["differing"]) == (13, 12)
    assert signature["latency_ms"]["baseline"]["p50"] == 1
    assert signature["outputs"]["y"]["largest_absolute"] == 11
