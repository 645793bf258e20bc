"""Implements `tpuserve bench`, which measures how fast a server answers requests to a model."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuserve.commands import bench_options
from tpuserve.commands.bench_options import measurement_options
from tpuserve.commands.common_options import connection_options, json_option
from tpuserve.commands.exit_on_sigterm import exit_on_sigterm
from tpuserve.commands.path_type import MultiValueCommand
from tpuserve.commands.progress import progress_bar
from tpuserve.files.plot_file import check_plot_path

if TYPE_CHECKING:
    from tpuserve.bench.load import Load

_POSITIVE = click.FloatRange(min=0, min_open=True)

# The character \b tells click to keep the line breaks of the examples.
_EXAMPLES = """\b
Examples:
  tpuserve bench http://localhost:8501 --model half --concurrency 1 2 4 8
  tpuserve bench grpc://localhost:8500 --model half --rate 100 500 --poisson
  tpuserve bench http://localhost:8501 --model half --api v2 --plot latency.png
"""


@click.command(cls=MultiValueCommand, epilog=_EXAMPLES)
@click.argument("url")
@click.option("--model", required=True, metavar="NAME", help="Name of the model.")
@click.option(
    "--signature",
    default="",
    metavar="NAME",
    help="Signature to run. Default: serving_default, or with v2 a model's only signature.",
)
@click.option(
    "--api",
    type=click.Choice(["v1", "v2"]),
    default="v1",
    show_default=True,
    help="v1 is TensorFlow Serving's API, v2 the Open Inference Protocol.",
)
@click.option(
    "--concurrency",
    multiple=True,
    type=click.IntRange(min=1),
    metavar="CLIENTS...",
    help="Closed loop: numbers of clients that send a request when the last one is answered, "
    "e.g. `--concurrency 1 2 4 8`, which is the default.",
)
@click.option(
    "--rate",
    "rates",
    multiple=True,
    type=_POSITIVE,
    metavar="RATE...",
    help="Open loop: requests per second that are sent whether or not others are answered. The "
    "latency counts from the time at which a request is due.",
)
@click.option("--poisson", is_flag=True, help="Random times between the requests of an open loop.")
@measurement_options
@connection_options
@json_option
def bench(
    url: str,
    concurrency: tuple[int, ...],
    rates: tuple[float, ...],
    poisson: bool,
    plot_path: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Measure how fast a server answers requests to a model.

    URL is http://HOST:PORT for REST or grpc://HOST:PORT for gRPC, of any server that speaks
    TensorFlow Serving's API or the Open Inference Protocol. Each load runs in windows until three
    in a row agree; the figures are those of these three.
    """
    from tpuserve.bench import benchmark, rendering
    from tpuserve.bench.benchmark import Target

    loads = _loads(concurrency, rates, poisson)
    if plot_path is not None:
        check_plot_path(plot_path)
    ca_file = options["ca_file"]
    target = Target(
        url,
        options["model"],
        options["api"],
        options["signature"],
        options["api_key"],
        None if ca_file is None else str(ca_file),
        options["timeout_s"],
    )
    choice = bench_options.input_choice(options)
    procedure = bench_options.procedure(options)
    with exit_on_sigterm(), progress_bar() as progress:
        requests = benchmark.choose_requests(target, choice)
        results = benchmark.run_benchmark(target, requests, loads, procedure, progress)
    if as_json:
        click.echo(json.dumps(benchmark.to_dict(target, results), indent=2))
    else:
        rendering.print_results(results)
    if plot_path is not None:
        rendering.plot_results({options["model"]: results}, plot_path)


def _loads(concurrency: tuple[int, ...], rates: tuple[float, ...], poisson: bool) -> "list[Load]":
    from tpuserve.bench.load import Load

    if concurrency and rates:
        raise click.UsageError("--concurrency and --rate are given. Give one of them.")
    if poisson and not rates:
        raise click.UsageError("--poisson is for the open loop. Give --rate too.")
    if rates:
        return [Load(rate=rate, is_poisson=poisson) for rate in rates]
    return [Load(concurrency=clients) for clients in concurrency or (1, 2, 4, 8)]
