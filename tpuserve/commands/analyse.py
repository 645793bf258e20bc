"""Implements `tpuserve analyse`, which finds the fastest flags of a server for a latency goal."""

import json
from pathlib import Path
from typing import Any

import click

from tpuserve.commands.exit_on_sigterm import exit_on_sigterm
from tpuserve.commands.options import bench_options
from tpuserve.commands.options.bench_options import measurement_options
from tpuserve.commands.options.common_options import json_option
from tpuserve.commands.options.multi_value_option import MultiValueCommand
from tpuserve.commands.options.path_type import LocalBasePath
from tpuserve.commands.progress import progress_bar
from tpuserve.files.plot_file import check_plot_path

# Value of the option --percentile → the percentile as a number. A benchmark computes only these.
_PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}

# The character \b tells click to keep the line breaks of the examples.
_EXAMPLES = """\b
Examples:
  tpuserve analyse /models/half --goal-ms 20
  tpuserve analyse /models/half --protocol rest --goal-ms 50 --percentile p99.9 --batch-size 8
"""


@click.command(cls=MultiValueCommand, epilog=_EXAMPLES)
@click.argument("directory", type=LocalBasePath())
@click.option(
    "--goal-ms",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MILLISECONDS",
    help="Largest acceptable latency, e.g. `--goal-ms 20`. Default: no limit.",
)
@click.option(
    "--percentile",
    type=click.Choice(list(_PERCENTILES)),
    default="p99",
    show_default=True,
    help="Percentile of the latency that the goal is for.",
)
@click.option(
    "--signature", default="", metavar="NAME", help="Signature to run. Default: serving_default."
)
@click.option(
    "--protocol",
    type=click.Choice(["rest", "grpc"]),
    default="grpc",
    show_default=True,
    help="Protocol of the requests.",
)
@click.option(
    "--concurrency",
    multiple=True,
    type=click.IntRange(min=1),
    default=(1, 4, 16),
    show_default=True,
    metavar="CLIENTS...",
    help="Numbers of clients that send a request when the last one is answered, e.g. "
    "`--concurrency 1 8`.",
)
@measurement_options
@json_option
def analyse(
    directory: Path,
    goal_ms: float | None,
    percentile: str,
    signature: str,
    protocol: Any,
    concurrency: tuple[int, ...],
    plot_path: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Find the fastest flags of `tpuserve serve` for a latency goal.

    DIRECTORY is the base path of a model. The model is served with each engine that is installed,
    with and without batching, and measured as by `tpuserve bench`. The flags with the most requests
    per second within the goal are printed. The exit status is 1 if none is within the goal.
    """
    from tpuserve.bench import analysis, benchmark, plot, rendering
    from tpuserve.bench.benchmark import Target

    choice = bench_options.input_choice(options)
    if plot_path is not None:
        check_plot_path(plot_path)
    with exit_on_sigterm(), progress_bar() as progress:
        analyses = analysis.analyse(
            directory,
            signature,
            protocol,
            choice,
            concurrency,
            bench_options.procedure(options),
            progress,
        )
    limit_ms = float("inf") if goal_ms is None else goal_ms
    best = analysis.choose(analyses, _PERCENTILES[percentile], limit_ms)
    if as_json:
        target = Target("", analysis.model_name(directory))
        report = {
            "goal_ms": goal_ms,
            "percentile": percentile,
            "configurations": [
                {
                    "name": measured.configuration.name,
                    "flags": dict(measured.configuration.flags),
                    "batching_parameters": measured.configuration.batching_parameters,
                    "error": measured.error,
                    "results": benchmark.to_dict(target, measured.results)["results"],
                }
                for measured in analyses
            ],
            "choice": None if best is None else best.analysis.configuration.name,
        }
        click.echo(json.dumps(report, indent=2))
    else:
        rendering.print_analyses(analyses)
        if best is None:
            click.echo(f"no configuration has a {percentile} within {limit_ms:g} ms")
        else:
            click.echo(rendering.format_choice(best, directory, _PERCENTILES[percentile]))
    if plot_path is not None:
        results = {measured.configuration.name: measured.results for measured in analyses}
        plot.plot_results(results, plot_path)
    if best is None:
        click.get_current_context().exit(1)
