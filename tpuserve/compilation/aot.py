"""A SavedModel's TPU metagraph, compiled for TPUs that are not there."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import reduce
from pathlib import Path

from tpuserve.compilation import chips
from tpuserve.compilation.cache import CompileCache
from tpuserve.compilation.compiler import Compiler
from tpuserve.compilation.reporting import advice
from tpuserve.compilation.reporting.report import Compilation, CompileAdvice, CompileReport
from tpuserve.compilation.stats import CompileResult, CompileStats, CompileTarget
from tpuserve.compilation.translation.planning import CompilePlan, CompileRequest, plan_compilations
from tpuserve.compilation.translation.stablehlo import StableHloTranslator
from tpuserve.errors import InvalidSetting, UnsupportedOnTpu
from tpuserve.export import debug_info

UNKNOWN_DIMENSION = 128
MOST_BATCH_SIZES = 4

Progress = Callable[[int, int, str], None]


def compile(
    directory: str | os.PathLike[str],
    *,
    topologies: Sequence[str] = chips.DEFAULT_TOPOLOGIES,
    signature_names: Sequence[str] | None = None,
    batch_sizes: Sequence[int] | None = None,
    unknown_dimension: int = UNKNOWN_DIMENSION,
    load: Mapping[int, float] | None = None,
    most_batch_sizes: int = MOST_BATCH_SIZES,
    processes: int | None = None,
    cache: CompileCache | None = None,
    compiler: Compiler | None = None,
    progress: Progress = lambda done, total, what: None,
) -> CompileReport:
    """Whether and how the TPU metagraph of a SavedModel compiles, by the TPU's own compiler.

    Nothing runs, no variable is read and no TPU is needed. The figures, and above all the times,
    are the compiler's estimates; what the host does comes on top.

    Args:
      directory: holds saved_model.pb.
      topologies: what to compile for, in libtpu's words; by default one chip of each generation.
      signature_names: which; None for all.
      batch_sizes: in rows; None for those that the model's batch functions allow, else 1, 8, 64.
      unknown_dimension: what a dimension is taken as that neither the signature nor the batch
        size tells.
      load: rows of a request → how often it comes, for the advice; None for each number of rows up
        to the largest batch size as often.
      most_batch_sizes: how many batch sizes the advice may name.
      processes: how many compile at once; None for one a core.
      cache: where results are kept; None for nowhere.
      compiler: what has been entered to compile many SavedModels, with its own processes and cache;
        None for one that ends with this call.
      progress: called with the jobs done, the jobs in all and what is being done.

    Raises:
      ExtraNotInstalled: jax or libtpu is missing.
      SavedModelNotFound, DamagedSavedModel, MetagraphNotFound, SignatureNotFound: nothing to
        compile.
      LoweringError: an op has no form here.
      InvalidInput: an unknown topology, a batch size that the model does not take, or an
        impossible number.
    """
    _check(batch_sizes, unknown_dimension, load, most_batch_sizes)
    with nullcontext(compiler) if compiler else Compiler(processes, cache) as workers:
        described = workers.describe(list(dict.fromkeys(topologies)))
        progress(0, 0, "reading the graph")
        planned = plan_compilations(
            Path(directory), signature_names, batch_sizes, unknown_dimension
        )
        translator = StableHloTranslator(planned.graph, debug_info.load_line_lookup(directory))
        compilations = _compilations(planned, translator, described, workers, progress)
    names = dict.fromkeys(each.signature for each in compilations)
    return CompileReport(
        directory=str(directory),
        load=_in_words(load),
        compilations=tuple(compilations),
        advice=tuple(
            _advice(name, [each for each in compilations if each.signature == name], load, most)
            for name in names
            for most in [most_batch_sizes]
        ),
        notes=planned.notes,
    )


def _check(
    batch_sizes: Sequence[int] | None,
    unknown_dimension: int,
    load: Mapping[int, float] | None,
    most_batch_sizes: int,
) -> None:
    named = [("batch_size", each) for each in batch_sizes or ()]
    named += [("unknown_dimension", unknown_dimension), ("most_batch_sizes", most_batch_sizes)]
    named += [("a request of load", rows) for rows in load or ()]
    for name, number in named:
        if number < 1:
            raise InvalidSetting(f"{name} is {number}. Give a whole number of at least 1.")
    if load is not None and not (load and all(weight > 0 for weight in load.values())):
        raise InvalidSetting(f"load is {load}. Give each number of rows a weight above 0.")


def _compilations(
    planned: CompilePlan,
    translator: StableHloTranslator,
    topologies: Sequence[CompileTarget],
    compiler: Compiler,
    progress: Progress,
) -> list[Compilation]:
    outcomes: dict[tuple[str, str], CompileResult] = {}
    modules: dict[str, bytes] = {}
    jobs: list[tuple[str, str]] = []
    fingerprints: dict[CompileRequest, list[str]] = {}
    for request in planned.requests:
        fingerprints[request] = []
        for piece in request.pieces:
            fingerprint = translator.fingerprint(piece)
            fingerprints[request].append(fingerprint)
            keys = [(fingerprint, each.name) for each in topologies]
            keys = [each for each in keys if each not in outcomes and each not in jobs]
            cached = {each: compiler.cached(*each) for each in keys}
            outcomes.update({key: each for key, each in cached.items() if each is not None})
            missing = [key for key, each in cached.items() if each is None]
            if missing and fingerprint not in modules:
                progress(0, 0, f"translating batch size {request.batch_size} to StableHLO")
                try:
                    modules[fingerprint] = translator.translate(piece)
                except UnsupportedOnTpu as error:
                    outcomes.update({key: CompileResult(error=str(error)) for key in missing})
                    continue
            jobs += missing
    found_before = frozenset(outcomes)
    done = 0

    def on_done() -> None:
        nonlocal done
        done += 1
        progress(done, len(jobs), "compiling")

    progress(0, len(jobs), "compiling")
    outcomes.update(compiler.compile(modules, jobs, on_done))
    return [
        _compilation(request, topology, fingerprints[request], outcomes, found_before)
        for request in planned.requests
        for topology in topologies
    ]


def _compilation(
    request: CompileRequest,
    topology: CompileTarget,
    fingerprints: Sequence[str],
    outcomes: Mapping[tuple[str, str], CompileResult],
    found_before: frozenset[tuple[str, str]],
) -> Compilation:
    keys = [(each, topology.name) for each in fingerprints]
    error = request.error or next(
        (outcomes[key].error for key in keys if outcomes[key].error), None
    )
    figures = [found for key in keys if (found := outcomes[key].figures) is not None]
    return Compilation(
        signature=request.signature,
        topology=topology,
        batch_size=request.batch_size,
        figures=None if error else reduce(_one_after_the_other, figures),
        error=error,
        computations=len(keys),
        is_cached=bool(keys) and all(key in found_before for key in keys),
    )


def _one_after_the_other(first: CompileStats, second: CompileStats) -> CompileStats:
    """The figures of two programs on one device of which the second runs when the first is done."""
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


def _advice(
    name: str,
    compilations: Sequence[Compilation],
    load: Mapping[int, float] | None,
    most_batch_sizes: int,
) -> CompileAdvice:
    sizes = {each.batch_size for each in compilations}
    topologies = list(dict.fromkeys(each.topology.name for each in compilations))
    refused = {each.topology.name for each in compilations if each.error is not None}
    fitting = chips.sort_by_size([each for each in topologies if each not in refused])
    compiling = sizes - {each.batch_size for each in compilations if each.error is not None}
    # Where no batch size compiles everywhere, those that compile somewhere have to do.
    compiling = compiling or {each.batch_size for each in compilations if each.error is None}
    cover = None
    if compiling:
        load = load or advice.uniform_load(max(compiling))
        cover = advice.choose_batch_buckets(load, sorted(compiling), most_batch_sizes)
    return CompileAdvice(name, cover, fitting[0] if fitting else None)


def _in_words(load: Mapping[int, float] | None) -> str:
    if load is None:
        return "each number of rows up to the largest batch size comes as often"
    return ", ".join(f"{rows} rows with weight {weight:g}" for rows, weight in sorted(load.items()))
