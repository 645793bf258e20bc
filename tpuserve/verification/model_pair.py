"""Both metagraphs on the same inputs: what they answer, and how long it takes."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuserve.errors import LoweringError, TpuserveError
from tpuserve.runtime.loader import LoadedModel
from tpuserve.verification.comparison import compare_outputs
from tpuserve.verification.inputs.cases import InputCase
from tpuserve.verification.report import Run, Timing
from tpuserve.verification.xla_refusals import XlaRefusals

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class ModelPair:
    """Both metagraphs in memory.

    Attributes:
      candidate: or why it cannot be there.
      refused: collects what XLA refuses.
      runs: how often to run again for the median time.
      clock: gives the time in seconds.
    """

    baseline: LoadedModel
    candidate: LoadedModel | LoweringError
    atol: float
    rtol: float
    runs: int
    refused: XlaRefusals
    clock: Callable[[], float] = time.perf_counter

    def run(self, signature_name: str, case: InputCase) -> Run:
        """What both answer to one set of inputs; a failure of one is told in the result."""
        try:
            expected, baseline = self._timed(self.baseline, signature_name, case.inputs)
        except TpuserveError as error:
            advice = " Give inputs that it takes." if case.source == "generated" else ""
            return Run(
                case.batch_size,
                case.source,
                failure=f"the baseline {{serve}} failed: {error}.{advice}".replace("..", "."),
            )
        try:
            if isinstance(self.candidate, LoweringError):
                raise self.candidate
            found, candidate = self._timed(self.candidate, signature_name, case.inputs)
        except TpuserveError as error:
            reason = self.refused.read(error) or str(error)
            return Run(
                case.batch_size,
                case.source,
                baseline=baseline,
                failure=f"the candidate {{serve, tpu}} failed: {reason}",
            )
        outputs = tuple(
            compare_outputs(name, expected[name], found[name], atol=self.atol, rtol=self.rtol)
            for name in sorted(expected)
        )
        return Run(case.batch_size, case.source, outputs, baseline, candidate)

    def close(self) -> None:
        """Frees both."""
        self.baseline.close()
        if isinstance(self.candidate, LoadedModel):
            self.candidate.close()

    def _timed(self, model: LoadedModel, name: str, inputs: Arrays) -> tuple[Arrays, Timing]:
        outputs, first = self._once(model, name, inputs)
        later = [self._once(model, name, inputs)[1] for _ in range(self.runs)]
        return outputs, Timing(first, statistics.median(later) if later else None)

    def _once(self, model: LoadedModel, name: str, inputs: Arrays) -> tuple[Arrays, float]:
        start = self.clock()
        outputs = model.run(name, inputs)
        return outputs, self.clock() - start
