"""Defines the report of a verification as frozen dataclasses.

The baseline is the {serve} metagraph of a SavedModel, and the candidate is its {serve, tpu}
metagraph.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tpuserve.comparison import Comparison, find_largest
from tpuserve.samples.cases import InputSource

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Timing:
    """Wall time of one metagraph at one batch size, in seconds.

    Attributes:
      median: Median time of the runs after the first; None if there were none.
    """

    first: float
    median: float | None


@dataclass(frozen=True)
class Run:
    """Result of running both metagraphs on the same inputs.

    Attributes:
      batch_size: Number of examples in the inputs; None if they have no batch dimension.
      outputs: One comparison for each output, sorted by alias; empty if a metagraph did not run.
      baseline: Wall times of the {serve} metagraph; None if it did not run.
      candidate: Wall times of the {serve, tpu} metagraph; None if it did not run.
      failure: Why a metagraph did not run; None if both metagraphs ran.
    """

    batch_size: int | None
    source: InputSource
    outputs: tuple[Comparison, ...] = ()
    baseline: Timing | None = None
    candidate: Timing | None = None
    failure: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the CPU and the TPU metagraph ran and all their outputs agree."""
        return self.failure is None and all(output.passed for output in self.outputs)


@dataclass(frozen=True)
class VerifiedSignature:
    """Result of verifying one signature.

    Attributes:
      failure: Why the signature could not be compared at all, such as different inputs in the two
        metagraphs; None if it was compared.
    """

    name: str
    runs: tuple[Run, ...] = ()
    failure: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the signature ran in the CPU and the TPU metagraph with equal outputs."""
        return self.failure is None and bool(self.runs) and all(run.passed for run in self.runs)


@dataclass(frozen=True)
class Hazard:
    """A property of the TPU metagraph that may cause an error, a delay or wrong results on a TPU.

    Attributes:
      kind: "uncompilable", "platform", "constant_input", "strings", "int64", "float64", "random",
        "dynamic_shape", "constants", "recompilation", "no_computation" or "not_finite".
      severity: "error" if the model cannot work on a TPU; "warning" if it may fail on a TPU, have
        different results than on a CPU, or wait long for compilations; "note" for information.
      op: Type of the node that causes the hazard; empty if no single node does.
      node: Name of this node; empty if no single node causes the hazard.
      function: Name of the function that has the node; empty for the main graph.
      line: "file:number" of the user code that created the node; None if unknown.
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
    """Result of verifying a SavedModel: whether its {serve} and {serve, tpu} metagraphs agree.

    Attributes:
      rtol: Relative tolerance: a float passes if
        |baseline - candidate| <= atol + rtol * |baseline|.
      notes: One sentence for each conversion of an input, for each ignored warm-up record, and for
        a {serve} metagraph that has TPU computations too.
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
        """Whether there are signatures, all have passed, and no hazard has severity "error"."""
        is_safe = all(hazard.severity != "error" for hazard in self.hazards)
        all_agree = all(signature.passed for signature in self.signatures)
        return bool(self.signatures) and all_agree and is_safe

    @property
    def largest_absolute(self) -> float | None:
        """Largest absolute difference over all outputs; None if no numbers were compared."""
        return find_largest(
            output.largest_absolute
            for signature in self.signatures
            for run in signature.runs
            for output in run.outputs
        )
