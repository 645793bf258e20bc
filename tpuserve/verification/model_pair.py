"""Runs both metagraphs of a SavedModel on the same inputs, and compares and times them."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpuserve.errors import TpuserveError
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.verification.comparison import compare_outputs
from tpuserve.verification.inputs.cases import InputCase
from tpuserve.verification.report import Run, Timing
from tpuserve.verification.xla_refusals import XlaRefusals

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class ModelPair:
    """The loaded baseline and candidate of one SavedModel.

    Attributes:
      baseline: The {serve} metagraph.
      candidate: The {serve, tpu} metagraph, or the error that prevented loading it.
      atol: Absolute tolerance of the comparison.
      rtol: Relative tolerance of the comparison.
      runs: How often each metagraph runs again after its first run, for the median time.
      refusals: Collects the ops that XLA refuses.
      clock: Returns the current time in seconds.
    """

    baseline: LoadedModel
    candidate: LoadedModel | TpuserveError
    atol: float
    rtol: float
    runs: int
    refusals: XlaRefusals
    clock: Callable[[], float] = time.perf_counter

    def run(self, signature_name: str, case: InputCase) -> Run:
        """Run one signature in both metagraphs and compare the outputs.

        An error of either metagraph becomes the `failure` of the result.
        """
        try:
            baseline, baseline_timing = self._run_timed(self.baseline, signature_name, case.inputs)
        except TpuserveError as error:
            advice = " Give inputs that it accepts." if case.source == "generated" else ""
            return Run(
                case.batch_size,
                case.source,
                failure=f"the baseline {{serve}} failed: {error}.{advice}".replace("..", "."),
            )
        try:
            if isinstance(self.candidate, TpuserveError):
                raise self.candidate
            candidate, candidate_timing = self._run_timed(
                self.candidate, signature_name, case.inputs
            )
        except TpuserveError as error:
            reason = self.refusals.record(error) or str(error)
            return Run(
                case.batch_size,
                case.source,
                baseline=baseline_timing,
                failure=f"the candidate {{serve, tpu}} failed: {reason}",
            )
        outputs = tuple(
            compare_outputs(name, baseline[name], candidate[name], atol=self.atol, rtol=self.rtol)
            for name in sorted(baseline)
        )
        return Run(case.batch_size, case.source, outputs, baseline_timing, candidate_timing)

    def close(self) -> None:
        """Unload both metagraphs."""
        self.baseline.close()
        if not isinstance(self.candidate, TpuserveError):
            self.candidate.close()

    def _run_timed(self, model: LoadedModel, name: str, inputs: Arrays) -> tuple[Arrays, Timing]:
        """Run a signature 1 + `runs` times; return the first run's outputs, and the wall times."""
        outputs, first_seconds = self._run_once(model, name, inputs)
        later_seconds = [self._run_once(model, name, inputs)[1] for _ in range(self.runs)]
        median = statistics.median(later_seconds) if later_seconds else None
        return outputs, Timing(first_seconds, median)

    def _run_once(self, model: LoadedModel, name: str, inputs: Arrays) -> tuple[Arrays, float]:
        """Run a signature; return its outputs and the wall time in seconds."""
        start = self.clock()
        outputs = model.run(name, inputs)
        return outputs, self.clock() - start
