"""Comparisons of two arrays with differences worked out by hand."""

from typing import Any

import numpy as np
import pytest

from tpuserve.comparison import Comparison, compare_outputs

INF, NAN = float("inf"), float("nan")


def compare_values(baseline: Any, candidate: Any, dtype: Any = np.float32) -> Comparison:
    return compare_outputs(
        "y", np.array(baseline, dtype), np.array(candidate, dtype), atol=1e-3, rtol=1e-2
    )


def test_the_largest_differences_of_floats_are_reported() -> None:
    comparison = compare_values([1, -4, 0], [1.5, -5, 0.25])
    assert comparison.largest_absolute == 1.0
    # A baseline of 0 has no relative difference; the others have 0.5 and 0.25.
    assert comparison.largest_relative == 0.5
    assert comparison.num_out_of_tolerance == 3
    assert not comparison.passed


def test_a_float_passes_within_atol_and_rtol_of_the_baseline() -> None:
    # The tolerance for a baseline of 100 is 0.001 + 0.01 * 100 = 1.001.
    assert compare_values([100], [101]).passed
    assert not compare_values([100], [101.01]).passed
    assert compare_values([0], [0.0009]).passed


def test_rows_of_another_class_are_counted() -> None:
    comparison = compare_values([[1, 2], [3, 1], [0, 5]], [[2, 1], [3, 1], [5, 0]])
    assert (comparison.num_mismatched, comparison.compared) == (2, 3)


def test_a_single_column_has_no_classes() -> None:
    assert compare_values([[1], [2]], [[1], [3]]).num_mismatched is None


@pytest.mark.parametrize("special", [NAN, INF, -INF])
def test_nan_and_infinity_equal_only_themselves(special: float) -> None:
    assert compare_values([special, 1], [special, 1]).passed
    comparison = compare_values([special, 1], [1, 1])
    assert not comparison.passed
    assert comparison.num_out_of_tolerance == 1
    assert comparison.failure is not None
    assert comparison.failure.startswith("1 ")
    assert comparison.largest_absolute == 0.0


def test_opposite_infinities_differ() -> None:
    assert not compare_values([INF], [-INF]).passed


def test_a_nan_in_the_candidate_is_reported() -> None:
    assert compare_values([1.0], [NAN]).failure == "1 NaN in the candidate and not in the baseline"


@pytest.mark.parametrize(
    ("baseline", "candidate", "dtype"),
    [([1, 2], [1, 3], np.int64), ([b"a", b"b"], [b"a", b"c"], object), ([1, 0], [1, 1], bool)],
)
def test_integers_strings_and_bools_have_to_be_equal(
    baseline: Any, candidate: Any, dtype: Any
) -> None:
    comparison = compare_values(baseline, candidate, dtype)
    assert (comparison.num_mismatched, comparison.compared, comparison.passed) == (1, 2, False)
    assert compare_values(baseline, baseline, dtype).passed


def test_whole_numbers_differ_without_overflow() -> None:
    limits = np.iinfo(np.int64)
    assert compare_values([limits.min], [limits.max], np.int64).largest_absolute == float(2**64 - 1)


def test_another_shape_and_another_type_fail() -> None:
    assert (
        compare_values([[1]], [1]).failure == "shape [1, 1] in the baseline, [1] in the candidate"
    )
    comparison = compare_outputs("y", np.zeros(1, np.int32), np.zeros(1, np.int64), atol=1, rtol=1)
    assert comparison.failure == "int32 in the baseline, int64 in the candidate"


def test_bfloat16_is_a_float() -> None:
    import tensorflow as tf

    assert (
        compare_values([1.0], [1.0078125], tf.bfloat16.as_numpy_dtype).largest_absolute == 0.0078125
    )


def test_empty_arrays_are_equal() -> None:
    assert compare_values(np.zeros([0, 3]), np.zeros([0, 3])).passed


def test_scalars_are_compared() -> None:
    assert compare_outputs("y", b"a", b"a", atol=0, rtol=0).passed  # type: ignore[arg-type]
