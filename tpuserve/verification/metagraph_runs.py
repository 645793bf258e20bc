"""Runs a metagraph of a SavedModel on sets of inputs, and compares the runs of two metagraphs."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tpuserve.errors import TpuserveError
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.verification.comparison import compare_outputs
from tpuserve.verification.inputs.cases import InputCase
from tpuserve.verification.report import Run, Timing
from tpuserve.verification.xla_refusals import XlaRefusals

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class TimedOutputs:
    """The outputs of a signature for one set of inputs.

    Attributes:
      outputs: Alias → array.
      timing: The wall time of the runs.
    """

    outputs: Arrays
    timing: Timing


Outcome: TypeAlias = TimedOutputs | TpuserveError


def run_cases(
    load: Callable[[], LoadedModel | TpuserveError],
    cases: Sequence[tuple[str, InputCase]],
    runs: int,
    report_start: Callable[[str], None],
    clock: Callable[[], float] = time.perf_counter,
) -> list[Outcome]:
    """Load a metagraph, run it on sets of inputs, and unload it.

    Args:
      load: Loads the metagraph, or returns why it cannot be loaded.
      cases: Signature name and inputs of each case.
      runs: How often each case runs again after its first run, for the median time.
      report_start: Called with a description of each case before it runs.
      clock: Returns the current time in seconds.

    Returns:
      For each case the outputs of the first run, or the error of the metagraph.
    """
    model = load()
    if isinstance(model, TpuserveError):
        return [model] * len(cases)
    outcomes: list[Outcome] = []
    try:
        for name, case in cases:
            report_start(f"{name}, batch size {case.batch_size or 'fixed'}")
            try:
                outcomes.append(_run_timed(model, name, case.inputs, runs, clock))
            except TpuserveError as error:
                outcomes.append(error)
    finally:
        model.close()
    return outcomes


def _run_timed(
    model: LoadedModel, name: str, inputs: Arrays, runs: int, clock: Callable[[], float]
) -> TimedOutputs:
    """Run a signature once for its outputs and then `runs` times; time all these runs."""

    def run_once() -> tuple[Arrays, float]:
        start = clock()
        outputs = model.run(name, inputs)
        return outputs, clock() - start

    outputs, first_seconds = run_once()
    later_seconds = [run_once()[1] for _ in range(runs)]
    median = statistics.median(later_seconds) if later_seconds else None
    return TimedOutputs(outputs, Timing(first_seconds, median))


def compare_runs(
    case: InputCase,
    baseline: Outcome,
    candidate: Outcome | None,
    *,
    atol: float,
    rtol: float,
    refusals: XlaRefusals,
) -> Run:
    """Compare the outputs of both metagraphs for one case.

    Args:
      case: The inputs.
      baseline: Outcome of {serve}.
      candidate: Outcome of {serve, tpu}; None if it did not run because the baseline failed.
      atol: Absolute tolerance.
      rtol: Relative tolerance.
      refusals: Collects the ops that XLA refuses.

    Returns:
      The comparison. If a metagraph failed, `failure` of the comparison is the error.
    """
    if isinstance(baseline, TpuserveError) or candidate is None:
        advice = " Give inputs that it accepts." if case.source == "generated" else ""
        return Run(
            case.batch_size,
            case.source,
            failure=f"the baseline {{serve}} failed: {baseline}.{advice}".replace("..", "."),
        )
    if isinstance(candidate, TpuserveError):
        reason = refusals.record(candidate) or str(candidate)
        return Run(
            case.batch_size,
            case.source,
            baseline=baseline.timing,
            failure=f"the candidate {{serve, tpu}} failed: {reason}",
        )
    outputs = tuple(
        compare_outputs(name, baseline.outputs[name], candidate.outputs[name], atol=atol, rtol=rtol)
        for name in sorted(baseline.outputs)
    )
    return Run(case.batch_size, case.source, outputs, baseline.timing, candidate.timing)
