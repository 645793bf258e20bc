"""Implements the command of `make bench-train`."""

import json
import sys
from pathlib import Path

import click
from rich.console import Console

from benchmarks.train import original, plot, report, rounds
from benchmarks.train.cases import CASES
from benchmarks.train.original import OriginalNotFound

DEFAULT_PLOT = Path("build/bench-train.png")


@click.command()
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(sorted(CASES)),
    help="Run only this case (repeatable).",
)
@click.option(
    "--rounds",
    "round_count",
    default=5,
    show_default=True,
    type=click.IntRange(1),
    help="Number of measurements of each side.",
)
@click.option(
    "--seconds",
    default=2.5,
    show_default=True,
    type=click.FloatRange(0.1),
    help="Seconds to measure in each process, after the warm-up.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, allow_dash=True, dir_okay=False),
    help="Write all measurements to this file; - means standard output.",
)
@click.option(
    "--plot",
    "plot_path",
    default=DEFAULT_PLOT,
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the ratios to this file, if matplotlib is installed.",
)
def bench(
    only: tuple[str, ...], round_count: int, seconds: float, json_path: Path | None, plot_path: Path
) -> None:
    """Train the same programs with TensorFlow 2.15's TPUEstimator and with tpuserve, in turns.

    Each measurement runs in its own process. The sides alternate within a round, so that other
    programs of the machine affect both sides. The command prints the medians, their ratio, and the
    ratios of single rounds. The command takes about 20 minutes. The first call also installs
    TensorFlow 2.15.
    """
    console = Console(stderr=json_path == Path("-"))
    cases = [case for name, case in CASES.items() if not only or name in only]
    try:
        needs_original = any(case.needs_original for case in cases)
        python = original.install_original(console) if needs_original else None
    except OriginalNotFound as error:
        raise click.ClickException(str(error)) from error
    results = rounds.measure_cases(cases, round_count, seconds, python, Console(stderr=True))
    report.print_results(console, results)
    ratios = [ratio for result in results for ratio in result.ratios]
    if json_path is not None:
        text = json.dumps([result.as_json() for result in results], indent=2)
        click.open_file(str(json_path), "w").write(text + "\n")
    if ratios and plot.draw_ratios(ratios, plot_path):
        console.print(f"plot: {plot_path}")
    if any(result.failures for result in results):
        sys.exit(1)


if __name__ == "__main__":
    bench(prog_name="python -m benchmarks.train")
