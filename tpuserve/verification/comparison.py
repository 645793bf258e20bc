"""Two arrays of one output → how far they are apart."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tpuserve.verification.report import Comparison

Array = np.ndarray[Any, Any]


def compare_outputs(
    name: str, baseline: Array, candidate: Array, *, atol: float, rtol: float
) -> Comparison:
    """How far a candidate's output is from the baseline's.

    Floats are equal within the tolerances, |baseline - candidate| <= atol + rtol * |baseline|,
    and a NaN is equal to a NaN. All else has to be equal as it is.

    Args:
      name: the output's alias.
      baseline, candidate: any shape and type.
      atol, rtol: the tolerances.
    """
    # What a fetch of a scalar gives is no array.
    baseline, candidate = np.asarray(baseline), np.asarray(candidate)
    dtype = _type_name(baseline)
    if _type_name(candidate) != dtype:
        return Comparison(
            name,
            dtype,
            baseline.shape,
            failure=f"{dtype} in the baseline, {_type_name(candidate)} in the candidate",
        )
    if candidate.shape != baseline.shape:
        return Comparison(
            name,
            dtype,
            baseline.shape,
            failure=f"shape {_show(baseline)} in the baseline, {_show(candidate)} in the candidate",
        )
    if _is_float(baseline):
        return Comparison(
            name, dtype, baseline.shape, **_of_floats(baseline, candidate, atol, rtol)
        )
    return Comparison(name, dtype, baseline.shape, **_of_exact(baseline, candidate))


def _of_floats(a: Array, b: Array, atol: float, rtol: float) -> Mapping[str, Any]:
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    a, b = a.astype(wide), b.astype(wide)
    is_finite = np.isfinite(a) & np.isfinite(b)
    # An infinity less itself is no number, and is not used.
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        difference = np.abs(a - b)
        relative = (difference / np.abs(a))[is_finite & (a != 0)]
        is_within = difference <= atol + rtol * np.abs(a)
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))
    return {
        "largest_absolute": float(difference[is_finite].max(initial=0.0)),
        "largest_relative": float(relative.max(initial=0.0)),
        "num_out_of_tolerance": int(np.sum(~(is_same | (is_finite & is_within)))),
        "failure": _not_finite(a, b, is_same | is_finite),
        "nan": int(np.sum(np.isnan(a) & np.isnan(b))),
        "infinite": int(np.sum(np.isinf(a) & np.isinf(b))),
        **_classes(a, b),
    }


def _not_finite(a: Array, b: Array, is_fine: Array) -> str | None:
    texts = []
    for sort, test in (("NaN", np.isnan), ("infinite", np.isinf)):
        in_a, in_b = test(a) & ~is_fine, test(b) & ~is_fine
        if count := int(np.sum(in_a)):
            texts.append(f"{count} {sort} in the baseline and not in the candidate")
        if count := int(np.sum(in_b)):
            texts.append(f"{count} {sort} in the candidate and not in the baseline")
    return "; ".join(texts) or None


def _classes(a: Array, b: Array) -> Mapping[str, int]:
    if a.ndim < 2 or a.shape[-1] < 2 or a.dtype.kind == "c":
        return {}
    differing = np.argmax(a, axis=-1) != np.argmax(b, axis=-1)
    return {"num_mismatched": int(np.sum(differing)), "compared": differing.size}


def _of_exact(a: Array, b: Array) -> Mapping[str, Any]:
    differing = int(np.sum(a != b))
    found: dict[str, Any] = {
        "num_mismatched": differing,
        "compared": a.size,
        "num_out_of_tolerance": differing,
    }
    if a.dtype.kind in "iu":
        # Python's own numbers do not overflow.
        apart = [abs(int(x) - int(y)) for x, y in zip(a[a != b], b[a != b], strict=True)]
        found["largest_absolute"] = float(max(apart, default=0))
    return found


def _is_float(array: Array) -> bool:
    # Types that numpy does not have by itself, as bfloat16, are of kind V.
    return array.dtype.kind in "fc" or (array.dtype.kind == "V" and "float" in array.dtype.name)


def _type_name(array: Array) -> str:
    return "string" if array.dtype.kind in "OSU" else str(array.dtype.name)


def _show(array: Array) -> str:
    return "[" + ", ".join(str(each) for each in array.shape) + "]"
