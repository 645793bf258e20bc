"""Prints the tables of the training benchmark."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.train.ratios import Ratio
from benchmarks.train.rounds import Result

UNITS = {
    "steps_per_second": "steps/s",
    "ms_per_step": "ms per step",
    "first_step_seconds": "s to 1st step",
    "peak_memory_mb": "peak MB",
}


def print_results(console: Console, results: Sequence[Result]) -> None:
    """Print a table for each case, the errors of failed sides, and the versions."""
    for result in results:
        console.print()
        if result.ratios:
            console.print(_build_table(result.case.title, result.ratios))
        else:
            console.print(result.case.title)
        for side, message in result.failures.items():
            console.print(f"[red]{side} failed:[/red] ", end="")
            console.print(message, markup=False, soft_wrap=True)
    console.print()
    console.print(_format_versions(results), style="dim")


def _build_table(title: str, ratios: Sequence[Ratio]) -> Table:
    table = Table(
        title=title,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("medians of", no_wrap=True)
    for name in ("baseline", "candidate", "ratio", "rounds", "target", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for ratio in ratios:
        comparison = ratio.comparison
        table.add_row(
            UNITS[comparison.quantity],
            f"{comparison.baseline} {_format_number(ratio.baseline)}",
            f"{comparison.candidate} {_format_number(ratio.candidate)}",
            f"{ratio.value:.2f}",
            f"{ratio.lowest:.2f}–{ratio.highest:.2f}",
            f"{'≥' if comparison.at_least else '≤'} {comparison.target:g}",
            "[green]met[/green]" if ratio.is_met else "[red]missed[/red]",
        )
    return table


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _format_versions(results: Sequence[Result]) -> str:
    versions = {
        f"{'original' if result.case.sides[side].is_original else 'here'}: TensorFlow "
        f"{measured['tensorflow']}, Python {measured['python']}"
        for result in results
        for measurements in result.rounds
        for side, measured in measurements.items()
    }
    return "; ".join(sorted(versions, reverse=True))
