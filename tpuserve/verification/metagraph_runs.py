"""Runs the {serve} and {serve, tpu} metagraphs on sets of inputs, and compares their outputs."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tpuserve.errors import TpuserveError
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.samples.cases import InputCase
from tpuserve.verification.comparison import compare_outputs
from tpuserve.verification.verification_report import Run, Timing
from tpuserve.verification.xla_refusals import XlaRefusals

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class TimedOutputs:
    """The outputs of a signature for one set of inputs, with the time of the runs."""

    outputs: Arrays
    timing: Timing


Outcome: TypeAlias = TimedOutputs | TpuserveError


def run_cases(
    load: Callable[[], LoadedModel | TpuserveError],
    cases: Sequence[tuple[str, InputCase]],
    runs: int,
    report_start: Callable[[str], None],
) -> list[Outcome]:
    """Load a metagraph, run it on sets of inputs, and unload it.

    After a run of a signature that writes, such as a counter, the metagraph is loaded anew, so that
    each comparison starts from the saved state.

    Args:
      runs: How often the signature runs again after the first run, to measure the median time.
    """
    outcomes: list[Outcome] = []
    model = load()
    try:
        for number, (name, case) in enumerate(cases):
            if isinstance(model, TpuserveError):
                outcomes.append(model)
                continue
            report_start(f"{name}, batch size {case.batch_size or 'fixed'}")
            try:
                outcomes.append(_run_timed(model, name, case.make(), runs))
            except TpuserveError as error:
                outcomes.append(error)
            if model.signatures[name].write is not None and number + 1 < len(cases):
                model.close()
                model = load()
    finally:
        if not isinstance(model, TpuserveError):
            model.close()
    return outcomes


def _run_timed(model: LoadedModel, name: str, inputs: Arrays, runs: int) -> TimedOutputs:
    """Run a signature once for its outputs and then `runs` more times, and measure the times."""

    def run_once() -> tuple[Arrays, float]:
        start = time.perf_counter()
        outputs = model.run(name, inputs)
        return outputs, time.perf_counter() - start

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
    """Compare the outputs of both metagraphs for one set of inputs.

    Args:
      candidate: Outputs or error of the {serve, tpu} metagraph; None if it did not run because
        the {serve} metagraph has failed.
      refusals: The ops that XLA refused to compile. If the error of a run names such ops, they are
        added.
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
