"""The command of `make bench-train`."""

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
    help="Run this case alone; may be given again.",
)
@click.option("--rounds", "count", default=5, show_default=True, type=click.IntRange(1))
@click.option(
    "--seconds",
    default=2.5,
    show_default=True,
    type=click.FloatRange(0.1),
    help="How long each process is watched after its warm-up.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, allow_dash=True, dir_okay=False),
    help="Write all numbers here; - for standard output.",
)
@click.option(
    "--plot",
    "plot_path",
    default=DEFAULT_PLOT,
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the ratios here, if matplotlib is installed.",
)
def bench(
    only: tuple[str, ...], count: int, seconds: float, json_path: Path | None, plot_path: Path
) -> None:
    """Train the same programs with TensorFlow's TPUEstimator and with ours, in turns.

    Each measurement is a process of its own; sides alternate within a round, so that a noisy
    machine is noisy for both. Prints medians, their ratio, and the ratios of single rounds.
    Takes about eight minutes, and the first time as long as installing TensorFlow 2.15 takes.
    """
    console = Console(stderr=json_path == Path("-"))
    cases = [case for name, case in CASES.items() if not only or name in only]
    try:
        python = original.python(console) if any(each.needs_original for each in cases) else None
    except OriginalNotFound as error:
        raise click.ClickException(str(error)) from error
    results = rounds.run(cases, count, seconds, python, Console(stderr=True))
    report.show(console, results)
    ratios = [ratio for result in results for ratio in result.ratios]
    if json_path is not None:
        text = json.dumps([each.as_json() for each in results], indent=2)
        click.open_file(str(json_path), "w").write(text + "\n")
    if ratios and plot.draw(ratios, plot_path):
        console.print(f"plot: {plot_path}")
    if any(result.failures for result in results):
        sys.exit(1)


if __name__ == "__main__":
    bench(prog_name="python -m benchmarks.train")
