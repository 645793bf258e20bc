"""Prints the results of benchmarks as tables in the terminal."""

import math
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpuserve.bench import benchmark, model_files
from tpuserve.bench.analysis import Analysis, Choice, Goal, Plan
from tpuserve.bench.windows import PERCENTILES, Result
from tpuserve.files.plot_file import check_plot_path, save_figure

_PLOTTED = (50.0, 99.0)


def plot_results(results_by_name: Mapping[str, Sequence[Result]], path: Path) -> None:
    """Write a figure of the latency percentiles p50 and p99 over the requests per second.

    Args:
      results_by_name: name of a model or a configuration → its results. Each name has a line in the
        figure.

    Raises:
      InvalidInput: the file name has another ending, or its directory does not exist.
    """
    check_plot_path(path)
    from matplotlib.figure import Figure

    # Do not use pyplot: it keeps each figure in memory and may need a display.
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    diagrams: Any = figure.subplots(1, len(_PLOTTED))
    for axes, percentile in zip(diagrams, _PLOTTED, strict=True):
        for name, results in results_by_name.items():
            axes.plot(
                [result.requests_per_second for result in results],
                [result.percentiles_ms[percentile] for result in results],
                marker="o",
                label=name,
            )
            for result in results:
                load = result.load
                axes.annotate(
                    f"{load.concurrency if load.rate is None else load.rate:g}",
                    (result.requests_per_second, result.percentiles_ms[percentile]),
                    textcoords="offset points",
                    xytext=(4, 4),
                    fontsize="x-small",
                )
        axes.set(title=f"p{percentile:g}", xlabel="requests per second", ylabel="milliseconds")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.25)
    diagrams[-1].legend(fontsize="small")
    save_figure(figure, path)


def print_results(results: Sequence[Result], console: Console | None = None) -> None:
    """Print a table with one line for each load, then notes on errors and on unstable results."""
    console = console or Console()
    is_closed = results[0].load.rate is None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("clients" if is_closed else "rate", justify="right")
    for name in (
        "requests/s",
        "mean ms",
        *(f"p{percentile:g}" for percentile in PERCENTILES),
        "errors",
    ):
        table.add_column(name, justify="right")
    for result in results:
        load = result.load
        table.add_row(
            str(load.concurrency) if load.rate is None else f"{load.rate:g}",
            f"{result.requests_per_second:.1f}",
            format_ms(result.mean_ms),
            *(format_ms(result.percentiles_ms[percentile]) for percentile in PERCENTILES),
            str(result.num_errors),
        )
    console.print(table)
    for result in results:
        if not result.is_stable:
            text = f"{result.load}: not stable after {len(result.windows)} windows"
            console.print(Text(f"note: {text}"), soft_wrap=True)
        if result.first_error:
            console.print(Text(f"note: {result.load}: {result.first_error}"), soft_wrap=True)


def format_ms(value: float) -> str:
    """Format a time in milliseconds with three significant digits; "-" for NaN."""
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def print_analyses(analyses: Sequence[Analysis], console: Console | None = None) -> None:
    """Print a table of the results of each server configuration.

    The table has a line for each number of clients. Notes below the table say why configurations
    were not measured.
    """
    console = console or Console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("configuration")
    for name in ("clients", "requests/s", "p50 ms", "p99 ms", "errors"):
        table.add_column(name, justify="right", no_wrap=True)
    for measured in analyses:
        for position, result in enumerate(measured.results):
            table.add_row(
                "" if position else measured.configuration.name,
                str(result.load.concurrency),
                f"{result.requests_per_second:.1f}",
                *(format_ms(result.percentiles_ms[percentile]) for percentile in (50.0, 99.0)),
                str(result.num_errors),
            )
    console.print(table)
    names_by_error: dict[str, list[str]] = {}
    for measured in analyses:
        if measured.error:
            names_by_error.setdefault(measured.error, []).append(measured.configuration.name)
    for error, names in names_by_error.items():
        console.print(Text(f"note: {'; '.join(names)}: {error}"), soft_wrap=True)


def format_plan(plan: Plan) -> str:
    """Return a text that says how many configurations a plan has, and how long they may take."""
    num_loads = len(plan.loads)
    return (
        f"measuring up to {plan.num_configurations} configurations with {num_loads} "
        f"load{'s' if num_loads > 1 else ''} each: at most about {plan.expected_seconds:.0f} s"
    )


def to_dict(analyses: Sequence[Analysis], choice: Choice | None, goal: Goal) -> dict[str, object]:
    """Return measurements as dicts, lists and finite numbers, which JSON can hold.

    Args:
      choice: the best configuration; None if no configuration meets the goal.
    """
    return {
        "goal_ms": goal.limit_ms if math.isfinite(goal.limit_ms) else None,
        "percentile": f"p{goal.percentile:g}",
        "configurations": [
            {
                "name": measured.configuration.name,
                "flags": dict(measured.configuration.flags),
                "environment": dict(measured.configuration.engine.environment),
                "batching_parameters": measured.configuration.batching_parameters,
                "error": measured.error,
                "results": [benchmark.result_to_dict(result) for result in measured.results],
            }
            for measured in analyses
        ],
        "choice": None if choice is None else choice.analysis.configuration.name,
    }


def format_choice(choice: Choice, base_path: Path, percentile: float) -> str:
    """Return a text with a configuration's throughput, latency and `tpuserve serve` command.

    Args:
      percentile: the percentile of the latency to show, such as 99.
    """
    result, configuration = choice.result, choice.analysis.configuration
    latency = format_ms(result.percentiles_ms[percentile])
    name = model_files.model_name(base_path)
    flags = {"model_name": name, "model_base_path": base_path.resolve(), **configuration.flags}
    command = " ".join(
        shlex.quote(f"--{flag}={str(value).lower() if isinstance(value, bool) else value}")
        for flag, value in flags.items()
    )
    clients = "1 client" if result.load.concurrency == 1 else f"{result.load.concurrency} clients"
    lines = [
        f"{result.requests_per_second:.0f} requests/s of {clients} with a p{percentile:g} of "
        f"{latency} ms:"
    ]
    if configuration.batching_parameters:
        command += " --batching_parameters_file=batching.config"
        lines += ["batching.config:", textwrap.indent(configuration.batching_parameters, "  ")]
    variables = "".join(
        f"{variable}={value} " for variable, value in configuration.engine.environment.items()
    )
    return "\n".join([*lines, f"  {variables}tpuserve serve {command}"])
