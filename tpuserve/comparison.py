"""Compares the values of an output of a baseline with those of a candidate: two runs of a model."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Comparison:
    """Comparison of an output of a baseline with the same output of a candidate.

    Attributes:
      dtype: Dtype of the output of the baseline, such as "float32".
      largest_absolute: Largest |baseline - candidate| of the values that are finite in both; None
        if the values are not numbers, or if the dtypes or shapes differ.
      largest_relative: Largest |baseline - candidate| / |baseline| where the baseline is not 0.
      num_mismatched: For floats with classes in their last axis, the number of examples for which
        the argmax differs. For integers, bools and strings, the number of values that are not
        equal. None for other outputs.
      compared: Number of examples or values among which `num_mismatched` was counted.
      failure: Description of a difference in dtype or shape, or of a NaN or infinity that only one
        of the two has. None if there is no such difference.
      infinite: Number of values that are infinite in both.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    largest_absolute: float | None = None
    largest_relative: float | None = None
    num_out_of_tolerance: int = 0
    num_mismatched: int | None = None
    compared: int | None = None
    failure: str | None = None
    nan: int = 0
    infinite: int = 0

    @property
    def passed(self) -> bool:
        """Whether all values of the output are equal within the tolerances."""
        return self.failure is None and self.num_out_of_tolerance == 0


def find_largest(differences: Iterable[float | None]) -> float | None:
    """Return the largest of some differences; None if all are None."""
    return max((value for value in differences if value is not None), default=None)


def format_difference(value: float | None) -> str:
    """Format a largest difference for a table: "1.2e-07", or "-" for None."""
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.1e}"


def compare_outputs(
    name: str, baseline: Array, candidate: Array, *, atol: float, rtol: float
) -> Comparison:
    """Compare the values of an output in the baseline and in the candidate.

    Floats are equal if |baseline - candidate| <= atol + rtol * |baseline|.

    Returns:
      The largest differences and the number of values that are not equal. If the dtypes or shapes
      differ, the attribute `failure` describes the difference, and no values are compared.
    """
    # Convert the values to arrays: a TensorFlow session returns scalars that are not arrays.
    baseline, candidate = np.asarray(baseline), np.asarray(candidate)
    dtype = _dtype_name(baseline)
    if _dtype_name(candidate) != dtype:
        return Comparison(
            name,
            dtype,
            baseline.shape,
            failure=f"{dtype} in the baseline, {_dtype_name(candidate)} in the candidate",
        )
    if candidate.shape != baseline.shape:
        return Comparison(
            name,
            dtype,
            baseline.shape,
            failure=f"shape {_format_shape(baseline)} in the baseline, "
            f"{_format_shape(candidate)} in the candidate",
        )
    if _is_float(baseline):
        fields = _compare_floats(baseline, candidate, atol, rtol)
    else:
        fields = _compare_exactly(baseline, candidate)
    return Comparison(name, dtype, baseline.shape, **fields)


def _compare_floats(
    baseline: Array, candidate: Array, atol: float, rtol: float
) -> Mapping[str, Any]:
    """Compare float or complex arrays of the same shape."""
    wide = np.complex128 if baseline.dtype.kind == "c" else np.float64
    baseline, candidate = baseline.astype(wide), candidate.astype(wide)
    is_finite = np.isfinite(baseline) & np.isfinite(candidate)
    # Switch off NumPy's warnings about invalid values. The difference of two infinities is NaN, but
    # such differences are not used.
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        difference = np.abs(baseline - candidate)
        relative = (difference / np.abs(baseline))[is_finite & (baseline != 0)]
        is_within = difference <= atol + rtol * np.abs(baseline)
    is_nan = np.isnan(baseline) & np.isnan(candidate)
    is_identical = (baseline == candidate) | is_nan
    return {
        "largest_absolute": float(difference[is_finite].max(initial=0.0)),
        "largest_relative": float(relative.max(initial=0.0)),
        "num_out_of_tolerance": int(np.sum(~(is_identical | (is_finite & is_within)))),
        "failure": _describe_non_finite(baseline, candidate, is_identical | is_finite),
        "nan": int(np.sum(is_nan)),
        "infinite": int(np.sum(np.isinf(baseline) & np.isinf(candidate))),
        **_compare_classes(baseline, candidate),
    }


def _describe_non_finite(baseline: Array, candidate: Array, is_ignored: Array) -> str | None:
    """Describe how many values are NaN or infinite in only one of two arrays."""
    texts = []
    for kind, test in (("NaN", np.isnan), ("infinite", np.isinf)):
        if count := int(np.sum(test(baseline) & ~is_ignored)):
            texts.append(f"{count} {kind} in the baseline and not in the candidate")
        if count := int(np.sum(test(candidate) & ~is_ignored)):
            texts.append(f"{count} {kind} in the candidate and not in the baseline")
    return "; ".join(texts) or None


def _compare_classes(baseline: Array, candidate: Array) -> Mapping[str, int]:
    """Count how often two arrays [..., num_classes] predict different classes."""
    if baseline.ndim < 2 or baseline.shape[-1] < 2 or baseline.dtype.kind == "c":
        return {}
    is_mismatch = np.argmax(baseline, axis=-1) != np.argmax(candidate, axis=-1)
    return {"num_mismatched": int(np.sum(is_mismatch)), "compared": is_mismatch.size}


def _compare_exactly(baseline: Array, candidate: Array) -> Mapping[str, Any]:
    """Compare arrays of integers, bools or strings, which have to be identical."""
    is_mismatch = baseline != candidate
    num_mismatched = int(np.sum(is_mismatch))
    fields: dict[str, Any] = {
        "num_mismatched": num_mismatched,
        "compared": baseline.size,
        "num_out_of_tolerance": num_mismatched,
    }
    if baseline.dtype.kind in "iu":
        # Subtract as Python integers: the difference of two int64 values may overflow in NumPy.
        differences = [
            abs(int(first) - int(second))
            for first, second in zip(baseline[is_mismatch], candidate[is_mismatch], strict=True)
        ]
        fields["largest_absolute"] = float(max(differences, default=0))
    return fields


def _is_float(array: Array) -> bool:
    # bfloat16 and float8 have the NumPy kind "V", as structured dtypes do. Only the name of the
    # dtype shows that they are floats.
    return array.dtype.kind in "fc" or (array.dtype.kind == "V" and "float" in array.dtype.name)


def _dtype_name(array: Array) -> str:
    return "string" if array.dtype.kind in "OSU" else str(array.dtype.name)


def _format_shape(array: Array) -> str:
    return "[" + ", ".join(map(str, array.shape)) + "]"
