"""`tpuserve compile`."""

import json
from pathlib import Path

import click

from tpuserve.commands.exit_on_sigterm import exit_on_sigterm
from tpuserve.commands.multi_value_option import MultiValueCommand, PatternType
from tpuserve.commands.path_type import SavedModelPath
from tpuserve.commands.progress import progress_bar


def _load(text: str) -> tuple[int, float]:
    rows, _, weight = text.partition(":")
    return int(rows), float(weight or 1)


# No zero: libtpu divides by the number of chips.
_TOPOLOGY = r"[a-z]\w*:[1-9]\d*(x[1-9]\d*)*(_(un)?twisted)?"


@click.command(cls=MultiValueCommand)
@click.argument("directory", type=SavedModelPath())
@click.option(
    "--topology",
    "topologies",
    type=PatternType("GENERATION:CHIPS", _TOPOLOGY),
    multiple=True,
    help="What to compile for, such as v5e:1x1; several may follow. By default one chip of each "
    "of the seven generations.",
)
@click.option(
    "--batch-size",
    "batch_sizes",
    type=click.IntRange(min=1),
    metavar="ROWS",
    multiple=True,
    help="In rows; several may follow. By default what the model's batch functions allow, else "
    "1 8 64.",
)
@click.option("--signature", "signatures", multiple=True, help="Which; by default all.")
@click.option(
    "--load",
    type=PatternType("ROWS:WEIGHT", r"\d+(:\d+(\.\d+)?)?", _load),
    multiple=True,
    help="How often requests of so many rows come, for the advice; several may follow. By default "
    "each number of rows up to the largest batch size comes as often.",
)
@click.option(
    "--most-batch-sizes",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="How many batch sizes the advice may name.",
)
@click.option(
    "--unknown-dimension",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="What a dimension is taken as that neither the signature nor the batch size tells.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw estimated time and throughput over batch size into a PNG, SVG or PDF file.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="How many compile at once.  [one a core]")
@click.option("--no-cache", is_flag=True, help="Compile anew what an earlier run has compiled.")
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
    """Compile the TPU metagraph of a SavedModel by the TPU's own compiler, without a TPU.

    DIRECTORY holds a saved_model.pb. For each signature, topology and batch size: whether it
    compiles, what it takes of the chip's memory, and the compiler's estimate of its time. Ends
    with 0 if everything compiles, else with 1.

    Needs: pip install 'tpuserve[compile]'
    """
    from tpuserve.compilation.compiler import require_extra
    from tpuserve.compilation.reporting.plot import check_plot_path

    require_extra()
    if plot_path is not None:
        check_plot_path(plot_path)
    from tpuserve.runtime import tf_logging
    from tpuserve.saved_model import metagraph

    # Before TensorFlow is imported, which takes a while.
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
            cache=None if no_cache else cache.CompileCache.of_user(),
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
    else:
        report_tables.print_report(report)
    if plot_path is not None:
        plot.plot(report, plot_path)
    return 0 if report.passed else 1
