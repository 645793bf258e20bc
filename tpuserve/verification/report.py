"""What a verification found, as frozen data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Severity = Literal["error", "warning", "note"]
InputSource = Literal["file", "warm-up record", "generated"]


@dataclass(frozen=True)
class Comparison:
    """One output, in the baseline and in the candidate.

    Attributes:
      name: the output's alias.
      dtype, shape: of the baseline's value.
      largest_absolute: largest |baseline - candidate| of the values that are finite in both; None
        where there are no numbers to subtract.
      largest_relative: largest of these divided by |baseline|, where that is not 0.
      num_out_of_tolerance: number of values outside the tolerances; without tolerances, of
        values that are not equal.
      num_mismatched: of outputs with classes in their last axis, the rows whose largest value is of
        another class; of whole numbers, strings and bools the values that are not equal.
      compared: how many such rows or values there are.
      failure: what is wrong beyond the size of differences: another shape, another type, a NaN
        on one side alone.
      nan, infinite: how many values are so in both.
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
        """Whether the two agree."""
        return self.failure is None and self.num_out_of_tolerance == 0


@dataclass(frozen=True)
class Timing:
    """Wall time of one metagraph at one batch size, in seconds.

    Attributes:
      first: of the first run, in which XLA compiles and buffers are made.
      median: of the runs after it; None where there were none.
    """

    first: float
    median: float | None


@dataclass(frozen=True)
class Run:
    """Both metagraphs, run on the same inputs.

    Attributes:
      batch_size: rows of the inputs; None where they have none.
      source: where the inputs are from.
      outputs: by alias; empty where one of the two did not run.
      baseline, candidate: how long each took; None where it did not run.
      failure: why one of them did not run.
    """

    batch_size: int | None
    source: InputSource
    outputs: tuple[Comparison, ...] = ()
    baseline: Timing | None = None
    candidate: Timing | None = None
    failure: str | None = None

    @property
    def passed(self) -> bool:
        """Whether both ran and agree."""
        return self.failure is None and all(each.passed for each in self.outputs)


@dataclass(frozen=True)
class VerifiedSignature:
    """One signature of both metagraphs.

    Attributes:
      name: the signature's.
      runs: one per set of inputs.
      failure: why there could be none.
    """

    name: str
    runs: tuple[Run, ...] = ()
    failure: str | None = None

    @property
    def passed(self) -> bool:
        """Whether it ran in both metagraphs, and they agree."""
        return self.failure is None and bool(self.runs) and all(each.passed for each in self.runs)


@dataclass(frozen=True)
class Hazard:
    """What would fail or surprise on a TPU.

    Attributes:
      kind: "uncompilable", "constant_input", "strings", "int64", "float64", "random",
        "dynamic_shape", "constants", "recompilation", "no_computation", "not_finite".
      severity: "error" is what cannot work on a TPU; "warning" may fail there, or gives other
        results or long waits; "note" is good to know.
      message: what it is, and what to do.
      op, node, function: where in the graph; empty where no single node is to blame.
      line: the line of user code that made the node; None where it is not known.
    """

    kind: str
    severity: Severity
    message: str
    op: str = ""
    node: str = ""
    function: str = ""
    line: str | None = None


@dataclass(frozen=True)
class Report:
    """Whether the {serve, tpu} metagraph of a SavedModel does what its {serve} metagraph does.

    Attributes:
      directory: of the SavedModel.
      atol, rtol: a float passes where |baseline - candidate| <= atol + rtol * |baseline|.
      seed: of generated inputs.
      signatures: in the order of their names.
      hazards: of the {serve, tpu} metagraph, the gravest first.
      notes: what was done to the inputs before they were used.
    """

    directory: Path
    atol: float
    rtol: float
    seed: int
    signatures: tuple[VerifiedSignature, ...]
    hazards: tuple[Hazard, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every signature passed and nothing is known to fail on a TPU."""
        return all(each.passed for each in self.signatures) and not any(
            each.severity == "error" for each in self.hazards
        )

    @property
    def largest_absolute(self) -> float | None:
        """The largest absolute difference of all outputs; None where nothing was compared."""
        found = [
            output.largest_absolute
            for signature in self.signatures
            for run in signature.runs
            for output in run.outputs
            if output.largest_absolute is not None
        ]
        return max(found, default=None)
