"""The command `tpuserve compile`."""

import json
from pathlib import Path

import click

from tpuserve.commands.exit_on_sigterm import exit_on_sigterm
from tpuserve.commands.multi_value_option import MultiValueCommand, PatternType
from tpuserve.commands.options import (
    batch_size_option,
    directory_argument,
    json_option,
    signature_option,
)
from tpuserve.commands.progress import progress_bar


def _parse_load(text: str) -> tuple[int, float]:
    """Parse a value of --load, ROWS or ROWS:WEIGHT, as (rows, weight); the default weight is 1."""
    rows, _, weight = text.partition(":")
    return int(rows), float(weight or 1)


# The pattern of a topology. It has no dimension of 0, for which libtpu would crash, because libtpu
# divides by the number of chips.
_TOPOLOGY = r"[a-z]\w*:[1-9]\d*(x[1-9]\d*)*(_(un)?twisted)?"


# The character \b tells click to keep the line breaks of the examples.
_EXAMPLES = """\b
Examples:
  tpuserve compile /models/half/1
  tpuserve compile /models/half/1 --topology v5e:1x1 --batch-size 1 8 64
  tpuserve compile /models/half/1 --load 1:10 8:1 --plot estimates.png
"""


@click.command(cls=MultiValueCommand, epilog=_EXAMPLES)
@directory_argument
@click.option(
    "--topology",
    "topologies",
    type=PatternType("GENERATION:CHIPS", _TOPOLOGY, example="v5e:1x1"),
    multiple=True,
    help="TPUs to compile for, e.g. `--topology v5e:1x1 v4:2x2x1`. Default: the smallest topology "
    "of each of the seven generations.",
)
@batch_size_option(
    "Batch sizes to compile at, e.g. `--batch-size 1 8 64`. Default: the allowed_batch_sizes of "
    "the model's batch functions, or 1 8 64 if it has none."
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
    help="Recommend at most this many batch sizes.",
)
@click.option(
    "--unknown-dimension",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="Size to assume for dimensions left open by both the signature and --batch-size.",
)
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
    help="Number of modules to compile in parallel. Default: one for each processor core.",
)
@click.option(
    "--no-cache",
    is_flag=True,
    help="Neither read nor write the cache of earlier compilations.",
)
def compile(
    directory: Path,
    topologies: tuple[str, ...],
    batch_sizes: tuple[int, ...],
    signatures: tuple[str, ...],
    load: tuple[tuple[int, float], ...],
    most_batch_sizes: int,
    unknown_dimension: int,
    as_json: bool,
    plot_path: Path | None,
    jobs: int | None,
    no_cache: bool,
) -> int:
    """Compile the TPU metagraph of a SavedModel with the TPU compiler, without a TPU.

    DIRECTORY holds a saved_model.pb: a version directory such as /models/half/1.

    For each signature, topology and batch size the output says whether the model compiles, how
    much memory of the chip it needs, and the compiler's estimate of the time per batch. It also
    recommends a chip and allowed_batch_sizes.

    The exit status is 0 if everything compiles, else 1.

    This command needs the extra: pip install 'tpuserve[compile]'
    """
    from tpuserve.compilation.compiler import require_extra
    from tpuserve.compilation.reporting.plot import check_plot_path

    require_extra()
    if plot_path is not None:
        check_plot_path(plot_path)
    from tpuserve.runtime import tf_logging
    from tpuserve.saved_model import metagraph

    # Read the SavedModel first, to report an error in it before the slow import of TensorFlow.
    metagraph.read_metagraphs(directory)
    with exit_on_sigterm(), progress_bar() as progress:
        progress(0, 0, "importing TensorFlow")
        tf_logging.import_tensorflow()
        from tpuserve.compilation import aot, cache, chips
        from tpuserve.compilation.reporting import plot, report_tables

        report = aot.compile(
            directory,
            topologies=topologies or chips.DEFAULT_TOPOLOGIES,
            signature_names=signatures or None,
            batch_sizes=batch_sizes or None,
            unknown_dimension=unknown_dimension,
            load=dict(load) or None,
            most_batch_sizes=most_batch_sizes,
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
