"""Compares the answers of both sides to a request."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tpuserve.compare.requests import Method, Request
from tpuserve.compare.side import Answer
from tpuserve.comparison import Array, Comparison, compare_outputs, find_largest

_DEFAULT_TOLERANCE = 1e-5
# The dtypes whose values have fewer digits than the default tolerance.
_TOLERANCES = {"float16": 1e-3, "bfloat16": 1e-2}


@dataclass(frozen=True)
class Tolerances:
    """The tolerances of floats: |baseline - candidate| <= atol + rtol * |baseline|.

    Attributes:
      atol: name of a dtype, or "" for all others → absolute tolerance.
      rtol: name of a dtype, or "" for all others → relative tolerance.
    """

    atol: Mapping[str, float] = field(default_factory=dict)
    rtol: Mapping[str, float] = field(default_factory=dict)

    def compare(self, name: str, baseline: Array, candidate: Array) -> Comparison:
        """Compare the values of an output with the tolerances for its dtype."""
        dtype = str(baseline.dtype)
        default = _TOLERANCES.get(dtype, _DEFAULT_TOLERANCE)
        atol, rtol = (given.get(dtype, given.get("", default)) for given in (self.atol, self.rtol))
        return compare_outputs(name, baseline, candidate, atol=atol, rtol=rtol)


@dataclass(frozen=True)
class Result:
    """The comparison of both sides' answers to a request.

    Attributes:
      number: the position of the request among those that are sent, from 0.
      where: the record that the request is from.
      signature: the name of the signature; the names of several are joined by commas.
      baseline_ms: the time until the answer of the baseline, in milliseconds.
      baseline_error: the code and the text of the baseline's error; "" after success.
      outputs: the comparisons of the outputs that both sides have.
      difference: what differs beyond the tolerances; "" if nothing does.
    """

    number: int
    where: str
    method: Method
    signature: str
    baseline_ms: float
    candidate_ms: float
    baseline_error: str
    candidate_error: str
    outputs: tuple[Comparison, ...]
    difference: str

    @property
    def largest_absolute(self) -> float | None:
        """The largest absolute difference of all outputs; None if no numbers were compared."""
        return find_largest(output.largest_absolute for output in self.outputs)

    @property
    def badness(self) -> tuple[bool, bool, float]:
        """A key that sorts results by their differences: the worst is the largest."""
        largest = self.largest_absolute
        is_incomparable = bool(self.difference) and not any(
            output.num_out_of_tolerance for output in self.outputs
        )
        return bool(self.difference), is_incomparable, largest or 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the result as a dict that can be written as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Result":
        """Return the result that `to_dict` has returned as a dict."""
        outputs = tuple(Comparison(**output) for output in data["outputs"])
        return cls(**{**data, "outputs": outputs})


def compare_answers(
    number: int,
    request: Request,
    baseline: Answer,
    candidate: Answer,
    tolerances: Tolerances,
    is_same_protocol: bool,
) -> Result:
    """Compare the answers of both sides to a request.

    Args:
      is_same_protocol: whether both sides are called over the same protocol and API. If not, the
        texts of errors are not compared, and codes that HTTP does not tell apart are the same.
    """
    outputs = tuple(
        tolerances.compare(name, array, candidate.outputs[name])
        for name, array in baseline.outputs.items()
        if name in candidate.outputs
    )
    errors = [_format_error(answer) for answer in (baseline, candidate)]
    if baseline.error is None and candidate.error is None:
        difference = _describe_outputs(baseline, candidate, outputs)
    else:
        is_same = (
            errors[0] == errors[1]
            if is_same_protocol
            else type(baseline.error) is type(candidate.error)
        )
        shown = [error or "answered" for error in errors]
        difference = "" if is_same else f"{shown[0]} (baseline), {shown[1]} (candidate)"
    return Result(
        number,
        request.where,
        request.method,
        ",".join(request.signatures),
        baseline.milliseconds,
        candidate.milliseconds,
        errors[0],
        errors[1],
        outputs,
        difference,
    )


def _describe_outputs(baseline: Answer, candidate: Answer, outputs: tuple[Comparison, ...]) -> str:
    texts = [
        f"only the {side} has the output {name}"
        for side, ours, others in (
            ("baseline", baseline.outputs, candidate.outputs),
            ("candidate", candidate.outputs, baseline.outputs),
        )
        for name in ours
        if name not in others
    ]
    for output in outputs:
        if output.failure:
            texts.append(f"{output.name}: {output.failure}")
        elif not output.passed:
            count = f"{output.num_out_of_tolerance} of {math.prod(output.shape)} values differ"
            largest = output.largest_absolute
            texts.append(
                f"{output.name}: {count}" + ("" if largest is None else f", by {largest:.1e}")
            )
    return "; ".join(texts)


def _format_error(answer: Answer) -> str:
    return "" if answer.error is None else f"{answer.error.code.name}: {answer.error}"
