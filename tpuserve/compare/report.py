"""Sums up the results of a comparison: by signature, and the worst differences."""

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tpuserve.compare.result import Result
from tpuserve.compare.side import Side
from tpuserve.comparison import find_largest

NUM_WORST = 10
"""The number of the worst differences that a report has."""
PERCENTILES = (50, 99)


@dataclass
class OutputReport:
    """The differences of an output in all answers.

    Attributes:
      num_differing: the number of requests whose values differ beyond the tolerances.
    """

    dtype: str
    largest_absolute: float | None = None
    largest_relative: float | None = None
    num_differing: int = 0


@dataclass
class SignatureReport:
    """The results of all requests of a method to a signature, or to several with MultiInference.

    Attributes:
      milliseconds: the latencies of the baseline, and those of the candidate.
      num_errors: the errors of the baseline, and those of the candidate.
    """

    signature: str
    method: str
    num_requests: int = 0
    num_differing: int = 0
    num_errors: list[int] = field(default_factory=lambda: [0, 0])
    milliseconds: "tuple[array[float], array[float]]" = field(
        default_factory=lambda: (array("d"), array("d"))
    )
    outputs: dict[str, OutputReport] = field(default_factory=dict)

    def add(self, result: Result) -> None:
        """Add the result of a request."""
        self.num_requests += 1
        self.num_differing += bool(result.difference)
        self.milliseconds[0].append(result.baseline_ms)
        self.milliseconds[1].append(result.candidate_ms)
        for side, error in enumerate((result.baseline_error, result.candidate_error)):
            self.num_errors[side] += bool(error)
        for output in result.outputs:
            report = self.outputs.setdefault(output.name, OutputReport(output.dtype))
            report.num_differing += not output.passed
            report.largest_absolute = find_largest(
                (report.largest_absolute, output.largest_absolute)
            )
            report.largest_relative = find_largest(
                (report.largest_relative, output.largest_relative)
            )

    def percentiles_ms(self, side: int) -> list[float]:
        """Return the `PERCENTILES` of the latencies of a side: 0 is the baseline."""
        return [float(value) for value in np.percentile(self.milliseconds[side], PERCENTILES)]


@dataclass
class Report:
    """The result of a comparison.

    Attributes:
      left_out: why records of a log were not sent → their number.
      notes: sentences about the comparison, such as on damaged files.
      num_earlier: the number of requests that an earlier run had compared.
      failure: why the comparison has ended before the last request; "" if it has not.
      first_error: the first error of the baseline; "" if it has answered all requests.
    """

    baseline: Side
    candidate: Side
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    num_earlier: int = 0
    signatures: dict[tuple[str, str], SignatureReport] = field(default_factory=dict)
    worst: list[Result] = field(default_factory=list)
    failure: str = ""
    first_error: str = ""

    @property
    def sides(self) -> tuple[Side, Side]:
        """The baseline and the candidate."""
        return self.baseline, self.candidate

    @property
    def num_requests(self) -> int:
        """The number of compared requests."""
        return sum(signature.num_requests for signature in self.signatures.values())

    @property
    def num_differing(self) -> int:
        """The number of requests whose answers differ."""
        return sum(signature.num_differing for signature in self.signatures.values())

    @property
    def num_answered(self) -> int:
        """The number of requests that at least the baseline or the candidate has answered."""
        return sum(
            signature.num_requests - min(signature.num_errors)
            for signature in self.signatures.values()
        )

    def add(self, result: Result) -> None:
        """Add the result of a request."""
        key = result.signature, result.method
        self.signatures.setdefault(key, SignatureReport(*key)).add(result)
        self.first_error = self.first_error or result.baseline_error
        if result.difference or result.largest_absolute:
            self.worst.append(result)
            self.worst.sort(key=lambda each: each.badness, reverse=True)
            del self.worst[NUM_WORST:]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dict that can be written as JSON; infinity becomes None."""
        return {
            "baseline": str(self.baseline),
            "candidate": str(self.candidate),
            "same": not self.num_differing and not self.failure,
            "failure": self.failure,
            "requests": self.num_requests,
            "differing": self.num_differing,
            "left_out": dict(self.left_out),
            "notes": list(self.notes),
            "signatures": [_signature_to_dict(each) for each in self.signatures.values()],
            "worst": [
                {
                    "request": result.number,
                    "where": result.where,
                    "signature": result.signature,
                    "method": result.method,
                    "largest_absolute": _finite(result.largest_absolute),
                    "difference": result.difference,
                }
                for result in self.worst
            ],
        }


def _signature_to_dict(report: SignatureReport) -> dict[str, Any]:
    sides = tuple(enumerate(("baseline", "candidate")))
    return {
        "signature": report.signature,
        "method": report.method,
        "requests": report.num_requests,
        "differing": report.num_differing,
        "errors": {name: report.num_errors[side] for side, name in sides},
        "latency_ms": {
            name: {
                f"p{percentile}": value
                for percentile, value in zip(PERCENTILES, report.percentiles_ms(side), strict=True)
            }
            for side, name in sides
        },
        "outputs": {
            name: {
                "dtype": output.dtype,
                "largest_absolute": _finite(output.largest_absolute),
                "largest_relative": _finite(output.largest_relative),
                "differing": output.num_differing,
            }
            for name, output in report.outputs.items()
        },
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
