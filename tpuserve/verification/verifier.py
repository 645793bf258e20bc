"""Verifies a SavedModel: compares its two metagraphs, and finds what may fail on a TPU."""

import math
import os
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tpuserve import tags, validation
from tpuserve.comparison import compare_outputs
from tpuserve.errors import InvalidType, TpuserveError
from tpuserve.export import debug_info
from tpuserve.runtime.loaded_model import LoadedModel
from tpuserve.samples import cases
from tpuserve.samples.cases import InputCase, InputCases
from tpuserve.saved_model.signature import Signature
from tpuserve.verification import metagraph_hazards, metagraphs, node_hazards
from tpuserve.verification.metagraphs import MetaGraphPair
from tpuserve.verification.verification_report import Hazard, Report, Run, Timing, VerifiedSignature
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


Progress = Callable[[int, int, str], None]


def verify(
    directory: str | bytes | os.PathLike[str],
    *,
    inputs: str | os.PathLike[str] | None = None,
    signatures: Sequence[str] | None = None,
    batch_sizes: Sequence[int] | None = None,
    atol: float = 1e-5,
    rtol: float = 1e-5,
    seed: int = 0,
    runs: int = 5,
    progress: Progress | None = None,
) -> Report:
    """Compare the {serve, tpu} metagraph of a SavedModel with its {serve} metagraph.

    Both metagraphs run in this process on the same inputs. The TPU metagraph is lowered to the CPU
    and compiled by XLA.

    Example:
      report = tpuserve.verification.verify("/models/half/1")
      assert report.passed, report.signatures

    Args:
      inputs: An .npz file whose arrays are named "INPUT" or "SIGNATURE/INPUT".
      batch_sizes: Batch sizes for signatures with an open first dimension. None for the sizes of
        the inputs in the file or in the warm-up records. If there are no such inputs, None means
        the allowed_batch_sizes of the model's BatchFunction ops, or else 1 and 8.
      runs: How often each metagraph runs again after its first run, to measure the median time.
      progress: Called with the number of finished runs, the number of all runs, and a description
        of the step that starts now.
    """
    validation.check_number("atol", atol, least=0, below=math.inf)
    validation.check_number("rtol", rtol, least=0, below=math.inf)
    validation.check_sizes("batch_sizes", batch_sizes, optional=True)
    if signatures is not None:
        _check_signatures(signatures)
    validation.check_integer("runs", runs, least=0)
    validation.check_integer("seed", seed, least=0)
    inputs_path = None if inputs is None else _to_path("inputs", inputs)
    pair = metagraphs.read_metagraph_pair(_to_path("directory", directory))
    selected = pair.signatures(tuple(signatures or ()))
    failures = {name: metagraphs.describe_difference(name, pair) for name in selected}
    input_cases = cases.collect_cases(
        pair.directory,
        pair.baseline.meta_graph_def,
        {name: signature for name, signature in selected.items() if failures[name] is None},
        available=pair.signatures(()),
        inputs=inputs_path,
        batch_sizes=tuple(dict.fromkeys(batch_sizes or ())),
        allowed_batch_sizes=pair.allowed_batch_sizes,
        seed=seed,
    )
    for name, signature_cases in input_cases.by_signature.items():
        failures[name] = cases.refuse_generated(selected[name], signature_cases)
    refusals = XlaRefusals()
    results = _run_cases(pair, input_cases, failures, atol, rtol, runs, refusals, progress)
    verified = tuple(
        VerifiedSignature(name, results.get(name, ()), failures[name]) for name in selected
    )
    return Report(
        directory=pair.directory,
        atol=atol,
        rtol=rtol,
        seed=seed,
        signatures=verified,
        hazards=_find_hazards(pair, selected, refusals, verified),
        notes=(*pair.notes, *input_cases.notes),
    )


def _find_hazards(
    pair: MetaGraphPair,
    selected: Mapping[str, Signature],
    refusals: XlaRefusals,
    verified: Sequence[VerifiedSignature],
) -> tuple[Hazard, ...]:
    """Find the hazards of the selected signatures: what may fail or be slow on a real TPU."""
    available = pair.candidate.description.signatures
    signatures = {name: available[name] for name in selected if name in available}
    return metagraph_hazards.find_hazards(
        pair.candidate.meta_graph_def,
        {
            name: node_hazards.place_nodes(pair.candidate.meta_graph_def, name)
            for name in signatures
        },
        signatures,
        allowed_batch_sizes=pair.allowed_batch_sizes,
        warm_up=pair.warm_up,
        refusals=refusals,
        verified=verified,
        line_of=debug_info.load_line_lookup(pair.directory),
    )


def _run_cases(
    pair: MetaGraphPair,
    input_cases: InputCases,
    failures: Mapping[str, str | None],
    atol: float,
    rtol: float,
    runs: int,
    refusals: XlaRefusals,
    progress: Progress | None,
) -> dict[str, tuple[Run, ...]]:
    """Run both metagraphs on each set of inputs, and compare their outputs."""
    all_cases = [
        (name, case)
        for name, cases in input_cases.by_signature.items()
        if failures[name] is None
        for case in cases
    ]
    steps = _Steps(2 * len(all_cases), progress or _ignore_progress)
    # Unload the first metagraph before the second is loaded, so that only one copy of the variables
    # is in memory.
    steps.report(0, f"loading {tags.format_tags(tags.SERVE)}")
    baseline = run_cases(
        lambda: metagraphs.load_baseline(pair.directory), all_cases, runs, steps.start
    )
    ran = [
        number for number, result in enumerate(baseline) if not isinstance(result, TpuserveError)
    ]
    steps.report(len(all_cases), f"loading {tags.format_tags(tags.SERVE_TPU)}")
    outcomes = run_cases(
        lambda: metagraphs.load_candidate(pair.directory),
        [all_cases[number] for number in ran],
        runs,
        steps.start,
    )
    steps.report(2 * len(all_cases), "done")
    candidate = dict(zip(ran, outcomes, strict=True))
    results: dict[str, tuple[Run, ...]] = dict.fromkeys(input_cases.by_signature, ())
    for number, (name, case) in enumerate(all_cases):
        run = compare_runs(
            case,
            baseline[number],
            candidate.get(number),
            atol=atol,
            rtol=rtol,
            refusals=refusals,
        )
        results[name] += (run,)
    return results


class _Steps:
    """Counts the finished runs of a verification, and reports them to a progress function."""

    def __init__(self, total: int, progress: Progress) -> None:
        self._done = 0
        self._total = total
        self._progress = progress

    def report(self, done: int, step: str) -> None:
        self._done = done
        self._progress(done, self._total, step)

    def start(self, step: str) -> None:
        """Report the start of a run. The next report counts this run as finished."""
        self._progress(self._done, self._total, step)
        self._done += 1


def _ignore_progress(done: int, total: int, step: str) -> None:
    pass


def _check_signatures(signatures: Any) -> None:
    is_list = isinstance(signatures, Collection) and not isinstance(
        signatures, str | bytes | Mapping
    )
    if not is_list or not all(isinstance(name, str) for name in signatures):
        raise InvalidType(f"signatures is {signatures!r}. Give a list of names, or None.")


def _to_path(argument: str, value: Any) -> Path:
    """Convert a path that a user has passed as str, bytes or path-like object to a Path."""
    if not isinstance(value, str | bytes | os.PathLike):
        raise InvalidType(f"{argument} is {value!r}. Give a path.")
    return Path(os.fsdecode(value))
