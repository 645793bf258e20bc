"""Prints the results of compiling a training step as a table for a terminal."""

from rich.console import Console
from rich.text import Text

from tpuserve.compilation.report_tables import (
    format_quantity,
    format_seconds,
    make_table,
    print_errors,
    print_remarks,
)
from tpuserve.compilation.train_step.train_step_report import StepCompilation, TrainStepReport

# Headings are broken into lines so that a row fits a terminal of 80 columns.
_HEADINGS = (
    "\ntopology",
    "\nreplicas",
    "batch\nsize",
    "est. time\nof a step",
    "est.\nrows/s",
    "HBM of\na chip",
    "\nof it",
    "bytes\nreduced",
    "all-\nreduces",
)


def print_report(report: TrainStepReport, console: Console | None = None) -> None:
    """Print a table of the results, then each compile error.

    The table has a line for each batch size and topology.
    """
    console = console or Console()
    table = make_table("training step", _HEADINGS)
    for compilation in report.compilations:
        table.add_row(*_cells(compilation))
    console.print(table, crop=False)
    print_errors(console, report.compilations)
    print_remarks(console, report.compilations)


def _cells(compilation: StepCompilation) -> list[Text | str]:
    cells: list[Text | str] = [
        compilation.topology.name,
        str(compilation.replicas),
        str(compilation.batch_size),
    ]
    stats, result = compilation.stats, compilation.result
    if stats is None or compilation.hbm_bytes is None:
        return [*cells, Text("fails", style="red")]
    rows, fraction = compilation.estimated_rows_per_second, compilation.hbm_fraction
    time = format_seconds(stats.seconds) if stats.seconds > 0 else "none"
    return [
        *cells,
        (">" if stats.untimed_operations and stats.seconds > 0 else "") + time,
        "" if rows is None else format_quantity(rows),
        format_quantity(compilation.hbm_bytes),
        "" if fraction is None else f"{fraction:.2%}",
        format_quantity(result.reduced_bytes),
        "" if result.num_all_reduces is None else str(result.num_all_reduces),
    ]
