"""Implements `tpuserve analyse`, which finds the fastest flags of a server for a latency goal."""

import json
from pathlib import Path
from typing import Any

import click

from tpuserve.commands import bench_options
from tpuserve.commands.bench_options import measurement_options
from tpuserve.commands.common_options import import_ops_option, json_option
from tpuserve.commands.exit_on_sigterm import exit_on_sigterm
from tpuserve.commands.path_type import LocalPath, MultiValueCommand
from tpuserve.commands.progress import progress_bar
from tpuserve.files.plot_file import check_plot_path

# Value of the option --percentile → the percentile as a number. A benchmark computes only
# these percentiles.
_PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}

# The character \b tells click to keep the line breaks of the examples.
_EXAMPLES = """\b
Examples:
  tpuserve analyse /models/half --goal-ms 20
  tpuserve analyse /models/half --protocol rest --goal-ms 50 --percentile p99.9 --batch-size 8
"""


@click.command(cls=MultiValueCommand, epilog=_EXAMPLES)
@click.argument("directory", type=LocalPath(file_okay=False))
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
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Time for all configurations, with the starts of their servers, e.g. `--seconds 600`. "
    "Windows are shortened to fit into it. When it is over, no further configuration is measured.",
)
@import_ops_option
@measurement_options
@json_option
def analyse(
    directory: Path,
    goal_ms: float | None,
    percentile: str,
    signature: str,
    protocol: Any,
    concurrency: tuple[int, ...],
    seconds: float,
    import_ops: tuple[str, ...],
    plot_path: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Find the fastest flags of `tpuserve serve` for a latency goal.

    DIRECTORY is the base path of a model. The model is served with each engine of this machine,
    with and without batching; then with several sizes and timeouts of batches, and with a frontend
    process. Each configuration is measured as by `tpuserve bench`. The flags with the most requests
    per second that meet the goal are printed. The exit status is 1 if no configuration meets it.
    """
    # Import TensorFlow here, after `tpuserve.cli` has set the log level in the environment, because
    # TensorFlow reads the level during the import.
    from tpuserve.runtime import tf_logging

    choice = bench_options.input_choice(options)
    if plot_path is not None:
        check_plot_path(plot_path)
    tf_logging.import_tensorflow()
    from tpuserve.bench import analysis, rendering
    from tpuserve.bench.load import Load

    model, requests = analysis.read_model_and_requests(directory, signature, choice)
    limit_ms = float("inf") if goal_ms is None else goal_ms
    plan = analysis.Plan(
        model,
        requests,
        signature,
        protocol,
        [Load(concurrency=clients) for clients in concurrency],
        bench_options.procedure(options),
        analysis.Goal(_PERCENTILES[percentile], limit_ms),
        seconds,
        import_ops,
    )
    click.echo(rendering.format_plan(plan), err=True)
    with exit_on_sigterm(), progress_bar() as progress:
        analyses = analysis.analyse(plan, progress)
    best = analysis.choose(analyses, plan.goal)
    if as_json:
        click.echo(json.dumps(rendering.to_dict(analyses, best, plan.goal), indent=2))
    else:
        rendering.print_analyses(analyses)
        if best is None:
            click.echo(f"no configuration has a {percentile} within {limit_ms:g} ms")
        else:
            click.echo(rendering.format_choice(best, directory, plan.goal.percentile))
    if plot_path is not None:
        results = {measured.configuration.name: measured.results for measured in analyses}
        rendering.plot_results(results, plot_path)
    if best is None:
        click.get_current_context().exit(1)
