"""Ahead-of-time (AOT) compilation of a SavedModel's TPU metagraph for chosen TPU topologies."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

from tpuserve import validation
from tpuserve.compilation import chips, compile_report
from tpuserve.compilation.cache import CompileCache
from tpuserve.compilation.compile_report import (
    Compilation,
    CompileAdvice,
    CompileReport,
    LatencyPick,
)
from tpuserve.compilation.compiler import Compiler
from tpuserve.compilation.planning import CompilePlan, CompileRequest, plan_compilations
from tpuserve.compilation.stats import CompileResult, CompileStats, CompileTarget
from tpuserve.errors import InvalidSetting, UnsupportedOnTpu
from tpuserve.export import debug_info
from tpuserve.stablehlo.translator import StableHloTranslator


def pick_for_latency(compilations: Sequence[Compilation], goal_seconds: float) -> LatencyPick:
    """Pick the smallest chip that meets a latency goal at any batch size.

    The batch size is the largest one at which this chip meets the goal. A compilation is ignored if
    the compiler has no time estimate for some of its operations.

    Args:
      goal_seconds: The longest acceptable time of a batch, in seconds.
    """
    within = [
        compilation
        for compilation in compilations
        if compilation.stats is not None
        and not compilation.stats.untimed_operations
        and compilation.stats.seconds <= goal_seconds
    ]
    by_size = chips.sort_by_size(list({compilation.topology.name for compilation in within}))
    if not by_size:
        return LatencyPick(goal_seconds, None)
    candidates = [compilation for compilation in within if compilation.topology.name == by_size[0]]
    return LatencyPick(
        goal_seconds, max(candidates, key=lambda compilation: compilation.batch_size)
    )


UNKNOWN_DIMENSION = 128
MOST_BATCH_SIZES = 4

Progress = Callable[[int, int, str], None]

# A compilation job is a pair: the fingerprint of a StableHLO module, and the name of the topology
# to compile the module for.
Job = tuple[str, str]


def _ignore_progress(done: int, total: int, step: str) -> None:
    pass


def compile(
    directory: str | os.PathLike[str],
    *,
    topologies: Sequence[str] = chips.DEFAULT_TOPOLOGIES,
    signature_names: Sequence[str] | None = None,
    batch_sizes: Sequence[int] | None = None,
    unknown_dimension: int = UNKNOWN_DIMENSION,
    inputs: str | os.PathLike[str] | None = None,
    load: Mapping[int, float] | None = None,
    most_batch_sizes: int = MOST_BATCH_SIZES,
    latency_goal_ms: float | None = None,
    processes: int | None = None,
    cache: CompileCache | None = None,
    compiler: Compiler | None = None,
    progress: Progress = _ignore_progress,
) -> CompileReport:
    """Compile the TPU metagraph of a SavedModel with the TPU compiler, libtpu.

    No TPU is needed.

    Args:
      topologies: TPU topologies to compile for, in libtpu's notation, such as "v5e:1x1"; by
        default one topology of each generation.
      batch_sizes: Batch sizes, in examples; None for the allowed_batch_sizes of the model's
        BatchFunction ops, or 1, 8 and 64 if the model has no such ops.
      inputs: An .npz file whose arrays are named "INPUT" or "SIGNATURE/INPUT", as for `verify`.
      load: Expected request mix: number of examples of a request → relative frequency of such
        requests. None means that all sizes up to the largest batch size are equally likely.
      most_batch_sizes: The largest number of batch sizes that the report recommends.
      latency_goal_ms: The longest acceptable time of a batch, in milliseconds. The report
        recommends a chip and a batch size whose estimated time is not longer. None for no goal.
      processes: Number of compiler processes; None for the number of processor cores.
      compiler: A `Compiler` to use, inside of its `with` block, so that several calls can share its
        processes.
      progress: Called with the number of finished compilations, the number of compilations that
        are not in the cache (0 until it is known), and a description of the current step.

    Raises:
      ExtraNotInstalled: A package of the extra compile, such as jax or libtpu, is
        missing, or the version of jax is not supported.
      InvalidInput: A topology is unknown, no signature runs anything on the TPU, the model does not
        accept a batch size, the inputs do not fit, or a number is out of range.
    """
    _check_numbers(batch_sizes, unknown_dimension, load, most_batch_sizes)
    validation.check_number("latency_goal_ms", latency_goal_ms, above=0, optional=True)
    with nullcontext(compiler) if compiler else Compiler(processes, cache) as workers:
        targets = workers.describe_targets(list(dict.fromkeys(topologies)))
        progress(0, 0, "reading the graph")
        plan = plan_compilations(
            Path(directory),
            signature_names,
            batch_sizes,
            unknown_dimension,
            None if inputs is None else Path(inputs),
        )
        translator = StableHloTranslator(
            plan.graph, debug_info.load_line_lookup(directory), platform="TPU"
        )
        compilations = _compile_plan(plan, translator, targets, workers, progress)
    by_signature: dict[str, list[Compilation]] = {}
    for compilation in compilations:
        by_signature.setdefault(compilation.signature, []).append(compilation)
    return CompileReport(
        directory=str(directory),
        load=load,
        compilations=tuple(compilations),
        advice=tuple(
            _advise(name, signature_compilations, load, most_batch_sizes, latency_goal_ms)
            for name, signature_compilations in by_signature.items()
        ),
        notes=plan.notes,
    )


def _check_numbers(
    batch_sizes: Sequence[int] | None,
    unknown_dimension: int,
    load: Mapping[int, float] | None,
    most_batch_sizes: int,
) -> None:
    validation.check_sizes("batch_sizes", batch_sizes, optional=True)
    validation.check_integer("unknown_dimension", unknown_dimension, least=1)
    validation.check_integer("most_batch_sizes", most_batch_sizes, least=1)
    if load is None:
        return
    validation.check_sizes("load", list(load))
    for rows, weight in load.items():
        validation.check_number(f"The weight of {rows} in load", weight, above=0)
    if not load:
        raise InvalidSetting("load is empty. Give a size of requests and its weight, or None.")


@dataclass
class _JobList:
    """The compilation jobs of a SavedModel, divided into finished jobs and jobs to compile."""

    fingerprints: dict[CompileRequest, list[str]] = field(default_factory=dict)
    results: dict[Job, CompileResult] = field(default_factory=dict)
    modules: dict[str, bytes] = field(default_factory=dict)
    pending: list[Job] = field(default_factory=list)


def _compile_plan(
    plan: CompilePlan,
    translator: StableHloTranslator,
    targets: Sequence[CompileTarget],
    compiler: Compiler,
    progress: Progress,
) -> list[Compilation]:
    """Compile the XLA clusters of a plan, except those whose results are in the cache."""
    jobs = _collect_jobs(plan, translator, targets, compiler, progress)
    results = dict(jobs.results)
    done = 0

    def on_done() -> None:
        nonlocal done
        done += 1
        progress(done, len(jobs.pending), "compiling")

    progress(0, len(jobs.pending), "compiling")
    results.update(compiler.compile(jobs.modules, jobs.pending, on_done))
    return [
        _summarize(request, target, jobs.fingerprints[request], results, frozenset(jobs.results))
        for request in plan.requests
        for target in targets
    ]


def _collect_jobs(
    plan: CompilePlan,
    translator: StableHloTranslator,
    targets: Sequence[CompileTarget],
    compiler: Compiler,
    progress: Progress,
) -> _JobList:
    """Find out which compilation jobs a plan needs."""
    jobs = _JobList()
    for request in plan.requests:
        jobs.fingerprints[request] = []
        for cluster in request.clusters:
            fingerprint = translator.fingerprint(cluster)
            jobs.fingerprints[request].append(fingerprint)
            missing = []
            for job in [(fingerprint, target.name) for target in targets]:
                if job in jobs.results or job in jobs.pending:
                    continue
                cached = compiler.find_cached(*job)
                if cached is None:
                    missing.append(job)
                else:
                    jobs.results[job] = cached
            if missing and fingerprint not in jobs.modules:
                progress(0, 0, f"translating batch size {request.batch_size} to StableHLO")
                try:
                    jobs.modules[fingerprint] = translator.translate(cluster)
                except UnsupportedOnTpu as error:
                    jobs.results.update({job: CompileResult(error=str(error)) for job in missing})
                    continue
            jobs.pending += missing
    return jobs


def _summarize(
    request: CompileRequest,
    target: CompileTarget,
    fingerprints: Sequence[str],
    results: Mapping[Job, CompileResult],
    settled: frozenset[Job],
) -> Compilation:
    """Combine the results of all XLA clusters of a signature into one result."""
    jobs = [(fingerprint, target.name) for fingerprint in fingerprints]
    job_results = [results[job] for job in jobs]
    errors = [result.error for result in job_results if result.error]
    error = request.error or next(iter(errors), None)
    stats = [result.stats for result in job_results if result.stats is not None]
    return Compilation(
        signature=request.signature,
        topology=target,
        batch_size=request.batch_size,
        stats=None if error else reduce(_add_stats, stats),
        error=error,
        computations=len(jobs),
        is_cached=bool(jobs) and all(job in settled for job in jobs),
    )


def _add_stats(first: CompileStats, second: CompileStats) -> CompileStats:
    """Combine the figures of two programs that run one after the other on the same device."""
    return CompileStats(
        flops=first.flops + second.flops,
        bytes_moved=first.bytes_moved + second.bytes_moved,
        argument_bytes=first.argument_bytes + second.argument_bytes,
        output_bytes=first.output_bytes + second.output_bytes,
        temporary_bytes=max(first.temporary_bytes, second.temporary_bytes),
        code_bytes=first.code_bytes + second.code_bytes,
        seconds=first.seconds + second.seconds,
        untimed_operations=first.untimed_operations + second.untimed_operations,
        compile_seconds=first.compile_seconds + second.compile_seconds,
    )


def _advise(
    name: str,
    compilations: Sequence[Compilation],
    load: Mapping[int, float] | None,
    most_batch_sizes: int,
    latency_goal_ms: float | None,
) -> CompileAdvice:
    """Recommend batch sizes and a TPU topology for one signature."""
    topologies = list(dict.fromkeys(compilation.topology.name for compilation in compilations))
    failed_topologies = {
        compilation.topology.name for compilation in compilations if compilation.error is not None
    }
    fitting = chips.sort_by_size(
        [topology for topology in topologies if topology not in failed_topologies]
    )
    failed_sizes = {
        compilation.batch_size for compilation in compilations if compilation.error is not None
    }
    sizes = {compilation.batch_size for compilation in compilations} - failed_sizes
    # If no batch size compiles for every topology, choose among the batch sizes that compile for at
    # least one topology.
    sizes = sizes or {
        compilation.batch_size for compilation in compilations if compilation.error is None
    }
    buckets = None
    if sizes:
        request_mix = load or compile_report.uniform_load(max(sizes))
        buckets = compile_report.choose_batch_buckets(request_mix, sorted(sizes), most_batch_sizes)
    pick = None
    if latency_goal_ms is not None:
        pick = pick_for_latency(compilations, latency_goal_ms / 1000)
    return CompileAdvice(name, buckets, fitting[0] if fitting else None, pick)
