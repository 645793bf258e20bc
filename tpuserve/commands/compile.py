"""Implements `tpuserve compile`, which runs the TPU compiler on a model without a TPU."""

import json
from dataclasses import dataclass
from pathlib import Path

import click

from tpuserve.commands.common_options import (
    TopologyType,
    batch_size_option,
    import_ops_option,
    import_tensorflow,
    json_option,
    signature_option,
)
from tpuserve.commands.exit_on_sigterm import exit_on_sigterm
from tpuserve.commands.path_type import MultiValueCommand, PatternType, SavedModelPath
from tpuserve.commands.progress import progress_bar
from tpuserve.errors import InvalidInput
from tpuserve.files.plot_file import check_plot_path


def _parse_load(text: str) -> tuple[int, float]:
    """Parse a value of the option --load, ROWS or ROWS:WEIGHT.

    Returns:
      The number of examples of a request, and the relative frequency of such requests: WEIGHT, or
      1 without a WEIGHT.
    """
    rows, _, weight = text.partition(":")
    return int(rows), float(weight or 1)


def _list_topologies(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    """Print the table of TPU topologies and exit; the callback of the option --list-topologies."""
    if not value or context.resilient_parsing:
        return
    from tpuserve.compilation import topology_table

    topology_table.print_topologies()
    context.exit()


_TRAIN_TOPOLOGIES = ("v5e:2x2", "v6e:2x2")

# The character \b tells click to keep the line breaks of the examples.
_EXAMPLES = """\b
Examples:
  tpuserve compile /models/half/1
  tpuserve compile /models/half/1 --topology v5e:1x1 --batch-size 1 8 64
  tpuserve compile /models/half/1 --load 1:10 8:1 --plot estimates.png
  tpuserve compile --train program.py --topology v5e:2x2 v6e:2x2 --batch-size 256 1024
"""


class _CompileCommand(MultiValueCommand):
    """A command that says how the options of a program are passed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if not any(word.partition("=")[0] == "--train" for word in args):
                raise
            raise click.NoSuchOption(
                error.option_name,
                f"{error.message.rstrip('.')}. Give the options of the program after --, at the "
                f"end of the line: -- {error.option_name}.",
                error.possibilities,
                ctx,
            ) from None


@click.command(cls=_CompileCommand, epilog=_EXAMPLES)
@click.argument("arguments", metavar="DIRECTORY", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--train",
    "program",
    metavar="PROGRAM.py",
    help="Compile the training step of this TPUEstimator program in place of a SavedModel. The "
    "arguments after `--` are passed to the program.",
)
@click.option(
    "--topology",
    "topologies",
    type=TopologyType(),
    multiple=True,
    help="TPUs to compile for, e.g. `--topology v5e:1x1 v4:2x2x1`, or by a generation, v5e, or a "
    "type of Cloud TPU, v5litepod-4. Default: the smallest topology of each of the seven "
    "generations; with --train, v5e:2x2 and v6e:2x2.",
)
@click.option(
    "--list-topologies",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_topologies,
    help="Print the usual topologies with their names, chips and memory, and exit.",
)
@batch_size_option(
    "Batch sizes to compile at, e.g. `--batch-size 1 8 64`. Default: the allowed_batch_sizes of "
    "the model's batch functions, or 1 8 64 if it has none; with --train, the program's "
    "train_batch_size."
)
@signature_option("Compile")
@click.option(
    "--load",
    type=PatternType("ROWS:WEIGHT", r"\d+(:\d+(\.\d+)?)?", _parse_load, example="8:1"),
    multiple=True,
    help="Expected request mix, e.g. `--load 1:10 8:1` for ten requests of one row to one request "
    "of eight rows; only affects the batch-size advice. Default: all request sizes up to the "
    "largest batch size are equally likely.",
)
@click.option(
    "--most-batch-sizes",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    metavar="SIZES",
    help="Recommend at most this many batch sizes.",
)
@click.option(
    "--p99-ms",
    "latency_goal_ms",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MILLISECONDS",
    help="Pick the smallest chip, and its largest batch size, whose estimated time is within this "
    "goal. The compiler's estimate covers the TPU alone, without queue, host and network.",
)
@click.option(
    "--unknown-dimension",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    metavar="SIZE",
    help="Size to assume for dimensions left open by the signature, --batch-size and the inputs.",
)
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Take the shapes of these arrays, each named INPUT or SIGNATURE/INPUT, as `tpuserve "
    "verify` does. Default: the warm-up records, else generated inputs.",
)
@import_ops_option
@json_option
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Plot the estimated time and throughput over batch size into this PNG, SVG or PDF file.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="PROCESSES",
    help="Number of modules to compile in parallel. Default: one for each processor core.",
)
@click.option(
    "--no-cache",
    is_flag=True,
    help="Neither read nor write the cache of earlier compilations.",
)
@click.pass_context
def compile(
    context: click.Context,
    arguments: tuple[str, ...],
    program: str | None,
    topologies: tuple[str, ...],
    batch_sizes: tuple[int, ...],
    signatures: tuple[str, ...],
    load: tuple[tuple[int, float], ...],
    most_batch_sizes: int,
    latency_goal_ms: float | None,
    unknown_dimension: int,
    inputs: Path | None,
    import_ops: tuple[str, ...],
    as_json: bool,
    plot_path: Path | None,
    jobs: int | None,
    no_cache: bool,
) -> int:
    """Compile a TPU metagraph with the TPU compiler, without a TPU.

    DIRECTORY holds a saved_model.pb, such as /models/half/1, or is a base path, such as
    /models/half, whose newest version is meant.

    For each signature, topology and batch size the output says whether the model compiles, how
    much memory of the chip it needs, and the compiler's estimate of the time per batch. It also
    recommends a chip and allowed_batch_sizes.

    Only the dimension of the batch changes. All other sizes are those of the signature, of
    --inputs, of the warm-up records or of generated inputs, on which the model runs, on this
    machine's CPU, if the sizes between host and TPU are known only in a run.

    With --train, PROGRAM.py runs up to its first call of TPUEstimator.train. In place of the
    training, its step is compiled for a replica on each device of a topology, with the all-reduce,
    at global batch sizes. The output says for each case whether the step compiles, how much memory
    of a chip it needs, how many bytes it sums over the replicas, and the compiler's estimate of the
    time per step. Nothing is trained.

    The exit status is 0 if everything compiles, else 1.

    This command needs the extra: pip install '.[compile]'
    """
    from tpuserve.compilation.compiler import require_extra

    require_extra()
    if plot_path is not None:
        check_plot_path(plot_path)
    if program is not None:
        run = _TrainRun(program, arguments, topologies, batch_sizes, jobs)
        return _compile_train_step(context, run, import_ops, as_json, plot_path)
    directory = _parse_directory(context, arguments)
    from tpuserve.saved_model import metagraph

    # Read the SavedModel first, so that an error in the SavedModel is reported before the slow
    # import of TensorFlow.
    metagraph.read_metagraphs(directory)
    with exit_on_sigterm(), progress_bar() as progress:
        progress(0, 0, "importing TensorFlow")
        import_tensorflow(import_ops)
        from tpuserve.compilation import aot, cache, chips, plot, report_tables

        report = aot.compile(
            directory,
            topologies=topologies or chips.DEFAULT_TOPOLOGIES,
            signature_names=signatures or None,
            batch_sizes=batch_sizes or None,
            unknown_dimension=unknown_dimension,
            inputs=inputs,
            load=dict(load) or None,
            most_batch_sizes=most_batch_sizes,
            latency_goal_ms=latency_goal_ms,
            processes=jobs,
            cache=None if no_cache else cache.CompileCache.for_user(),
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    else:
        report_tables.print_report(report)
    if plot_path is not None:
        plot.plot(report, plot_path)
    return 0 if report.passed else 1


@dataclass(frozen=True)
class _TrainRun:
    """The options of `tpuserve compile --train`.

    Attributes:
      program: the Python file that trains a TPUEstimator.
      arguments: the command line arguments of the program.
      topologies: the TPU topologies to compile for; empty for the default topologies.
      batch_sizes: the global batch sizes; empty for the batch size that the program sets.
      jobs: the number of compiler processes; None for the number of processor cores.
    """

    program: str
    arguments: tuple[str, ...]
    topologies: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    jobs: int | None


def _parse_directory(context: click.Context, arguments: tuple[str, ...]) -> Path:
    if len(arguments) != 1:
        arguments_text = f"found {len(arguments)}" if arguments else "found none"
        raise click.UsageError(
            f"Give one DIRECTORY with a SavedModel, or --train PROGRAM.py; {arguments_text}.",
            context,
        )
    parameter = next(
        parameter for parameter in context.command.params if parameter.name == "arguments"
    )
    directory: Path = SavedModelPath().convert(arguments[0], parameter, context)
    return directory


def _compile_train_step(
    context: click.Context,
    run: _TrainRun,
    import_ops: tuple[str, ...],
    as_json: bool,
    plot_path: Path | None,
) -> int:
    """Run a program up to its first training, compile its training step, and print the report.

    Returns:
      The exit status of the command: 0 if the step compiles in all cases, else 1.
    """
    # Check the program's path first, so that a wrong path is reported before the slow imports.
    if not Path(run.program).exists():
        raise InvalidInput(f"there is no program {run.program}. Name a Python file.")
    from tpuserve.compilation import plot
    from tpuserve.compilation.compiler import Compiler
    from tpuserve.compilation.train_step import report_table
    from tpuserve.compilation.train_step.request import TrainStepRequest, pending

    names = list(dict.fromkeys(run.topologies or _TRAIN_TOPOLOGIES))
    with exit_on_sigterm(), progress_bar() as progress, Compiler(run.jobs) as compiler:
        targets = compiler.describe_targets(names)
        progress(0, 0, "importing TensorFlow")
        import_tensorflow(import_ops)
        request = TrainStepRequest(compiler, targets, run.batch_sizes, progress)
        with pending(request):
            _run_program(context, run.program, run.arguments)
    report = request.report
    if report is None:
        raise InvalidInput(
            f"{run.program} has ended without a call of TPUEstimator.train, so there is no "
            f"training step to compile. Pass the arguments with which the program trains after --."
        )
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    else:
        report_table.print_report(report)
    if plot_path is not None:
        plot.plot_compilations({"training step": report.compilations}, plot_path)
    return 0 if report.passed else 1


def _run_program(context: click.Context, program: str, arguments: tuple[str, ...]) -> None:
    """Run a program as `tpuserve run` does, until it exits.

    Raises:
      SystemExit: the program has failed.
    """
    assert context.parent is not None
    assert isinstance(context.parent.command, click.Group)
    run = context.parent.command.get_command(context.parent, "run")
    assert run is not None
    try:
        with run.make_context("run", [program, *arguments], parent=context.parent) as run_context:
            run.invoke(run_context)
    except SystemExit as exit_:
        if exit_.code:
            raise
