"""The tables that the benchmark prints."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.train.ratios import Ratio
from benchmarks.train.rounds import Result

UNITS = {
    "steps_per_second": "steps/s",
    "ms_per_step": "ms a step",
    "first_step_seconds": "s to 1st step",
    "peak_memory_mb": "peak MB",
}


def show(console: Console, results: Sequence[Result]) -> None:
    """Prints a table for each case, and what failed."""
    for result in results:
        console.print()
        if result.ratios:
            console.print(_table(result.case.title, result.ratios))
        else:
            console.print(result.case.title)
        for side, said in result.failures.items():
            console.print(f"[red]{side} failed:[/red] ", end="")
            console.print(said, markup=False, soft_wrap=True)
    console.print()
    console.print(_versions(results), style="dim")


def _table(title: str, ratios: Sequence[Ratio]) -> Table:
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
    for each in ratios:
        comparison = each.comparison
        table.add_row(
            UNITS[comparison.quantity],
            f"{comparison.baseline} {_number(each.baseline)}",
            f"{comparison.candidate} {_number(each.candidate)}",
            f"{each.value:.2f}",
            f"{each.lowest:.2f}–{each.highest:.2f}",
            f"{'≥' if comparison.at_least else '≤'} {comparison.target:g}",
            "[green]met[/green]" if each.is_met else "[red]missed[/red]",
        )
    return table


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _versions(results: Sequence[Result]) -> str:
    found = {
        f"{'original' if result.case.sides[side].is_original else 'here'}: TensorFlow "
        f"{measured['tensorflow']}, Python {measured['python']}"
        for result in results
        for each in result.rounds
        for side, measured in each.items()
    }
    return "; ".join(sorted(found, reverse=True))
