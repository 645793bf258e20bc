"""Prints the results of compiling a SavedModel as tables for a terminal."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpuserve.compilation import chips
from tpuserve.compilation.compile_report import Compilation, CompileAdvice, CompileReport

# Headings are broken into lines so that a row fits a terminal of 80 columns.
_HEADINGS = (
    "\n\ntopology",
    "\nbatch\nsize",
    "\nest.\ntime",
    "est.\nrows/s\n/chip",
    "\n\nbound",
    "\n\nFLOPs",
    "\nbytes\nmoved",
    "\nHBM,\nargs",
    "memory of\na chip, of\ncapacity",
)
_MEASURING_WIDTH = 1000
_LARGE_UNITS = ("", "k", "M", "G", "T", "P")
_SECOND_UNITS = ("s", "ms", "us", "ns")


def print_report(report: CompileReport, console: Console | None = None) -> None:
    """Print a table, the compile errors and the advice for each signature, then the notes."""
    console = console or Console()
    for advice in report.advice:
        compilations = [
            compilation
            for compilation in report.compilations
            if compilation.signature == advice.signature
        ]
        table = _build_table(advice.signature, compilations)
        # On a narrow terminal, wrap cells and do not truncate them: a truncated number would be
        # read as another number.
        unbounded = console.options.update(width=_MEASURING_WIDTH)
        table.width = console.measure(table, options=unbounded).maximum
        console.print(table, crop=False)
        print_errors(console, compilations)
        _print_chip_advice(console, advice, compilations)
        _print_latency_advice(console, advice)
        _print_batch_size_advice(console, advice, report)
    for note in report.notes:
        console.print(Text.assemble(("note: ", "bold"), note), soft_wrap=True)
    print_remarks(console, report.compilations)


def make_table(title: str, headings: Iterable[str]) -> Table:
    """Return a table without rows. Text is aligned to the left, and numbers to the right."""
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for heading in headings:
        justify = "left" if heading.strip() in ("topology", "bound") else "right"
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    return table


def print_remarks(console: Console, compilations: Sequence[Any]) -> None:
    """Print what the estimates in the tables mean; nothing if there are no estimates."""
    all_stats = [compilation.stats for compilation in compilations if compilation.stats]
    if all_stats:
        text = (
            "Times and rows/s are the compiler's estimates, for the TPU alone. Nothing has run on "
            "a TPU."
        )
        console.print(text, soft_wrap=True)
    if any(stats.untimed_operations for stats in all_stats):
        text = ">: excludes operations for which the compiler has no time estimate."
        console.print(text, soft_wrap=True, style="dim")


def _build_table(signature: str, compilations: list[Compilation]) -> Table:
    """Build the table of one signature, with a line for each batch size, grouped by topology."""
    table = make_table(f"signature {signature}", _HEADINGS)
    by_topology: dict[str, list[Compilation]] = {}
    for compilation in compilations:
        by_topology.setdefault(compilation.topology.name, []).append(compilation)
    for topology, group in by_topology.items():
        # Write the name of a topology only into the first of its lines, so that the groups of lines
        # stand out.
        name = topology
        for compilation in group:
            table.add_row(name, str(compilation.batch_size), *_figure_cells(compilation))
            name = ""
    return table


def _figure_cells(compilation: Compilation) -> list[Text | str]:
    """Return the table cells for the figures of a compilation, the estimated time first."""
    stats = compilation.stats
    if stats is None:
        return [Text("fails", style="red")]
    rows = compilation.estimated_rows_per_second_per_chip
    return [
        (">" if stats.untimed_operations else "") + format_seconds(stats.seconds),
        "" if rows is None else format_quantity(rows),
        compilation.bound or "",
        format_quantity(stats.flops),
        format_quantity(stats.bytes_moved),
        format_quantity(stats.argument_bytes),
        _format_memory(compilation),
    ]


def _format_memory(compilation: Compilation) -> str:
    """Format the memory that a chip needs: "1.43M/32G <1%"; without a known capacity "1.43M"."""
    used, capacity = compilation.chip_bytes, compilation.capacity_bytes
    if used is None:
        return ""
    if capacity is None:
        return format_quantity(used)
    percent = 100 * used / capacity
    shown = "<1%" if percent < 1 else f"{percent:.0f}%"
    return f"{format_quantity(used)}/{format_quantity(capacity)} {shown}"


def print_errors(console: Console, compilations: Sequence[Any]) -> None:
    """Print each compile error once, with the topologies and batch sizes for which it occurred.

    The arguments are those of `print_remarks`.
    """
    cases_by_error: dict[str, list[str]] = {}
    for compilation in compilations:
        if compilation.error is not None:
            case = f"{compilation.topology.name} at batch size {compilation.batch_size}"
            cases_by_error.setdefault(compilation.error, []).append(case)
    for error, cases in cases_by_error.items():
        line = Text.assemble((f"{', '.join(cases)}: ", "bold red"), " ".join(error.split()))
        console.print(line, soft_wrap=True)


def _print_chip_advice(
    console: Console, advice: CompileAdvice, compilations: list[Compilation]
) -> None:
    """Print the recommended topology: the smallest chip for which all batch sizes compile."""
    if advice.smallest_topology is not None:
        line = Text.assemble(
            ("smallest chip that fits: ", "bold"),
            advice.smallest_topology,
            _describe_limit(advice.smallest_topology, compilations),
        )
        console.print(line, soft_wrap=True)
        return
    topologies = dict.fromkeys(compilation.topology.name for compilation in compilations)
    unknown = [name for name in topologies if chips.find_generation(name) is None]
    reason = "no topology compiles every batch size"
    if unknown:
        known = " ".join(generation.generation for generation in chips.GENERATIONS)
        names = ", ".join(map(repr, unknown))
        verb = "is not one" if len(unknown) == 1 else "are not"
        reason = f"{names} {verb} of the known generations ({known})"
        if len(unknown) < len(topologies):
            reason += ", and no other topology compiles every batch size"
    console.print(Text.assemble(("no chip recommendation: ", "bold"), reason), soft_wrap=True)


def _describe_limit(topology: str, compilations: list[Compilation]) -> str:
    """Return a remark on how much of the recommended chip's memory the model needs."""
    largest = max(
        (compilation for compilation in compilations if compilation.topology.name == topology),
        key=lambda compilation: compilation.batch_size,
        default=None,
    )
    if largest is None or largest.chip_bytes is None:
        return ""
    return (
        f" ({_format_memory(largest)} of its memory at batch size {largest.batch_size}, the "
        f"largest that was compiled; other models on the chip need memory too)"
    )


def _print_latency_advice(console: Console, advice: CompileAdvice) -> None:
    """Print the recommended chip and batch size for a latency goal."""
    if advice.latency is None:
        return
    pick, goal = advice.latency.compilation, format_seconds(advice.latency.goal_seconds)
    text = "no compiled chip and batch size"
    if pick is not None and pick.stats is not None:
        text = (
            f"{pick.topology.name} up to batch size {pick.batch_size} "
            f"(estimated {format_seconds(pick.stats.seconds)})"
        )
    console.print(
        Text.assemble(
            (f"within {goal}: ", "bold"),
            f"{text}. This is the compiler's estimate for a batch on the TPU alone, and no p99: "
            f"queue, host and network come on top.",
        ),
        soft_wrap=True,
    )


def _print_batch_size_advice(
    console: Console, advice: CompileAdvice, report: CompileReport
) -> None:
    """Print the recommended batch sizes, and how much padding they cause for the request mix."""
    if advice.buckets is None:
        return
    sizes = list(advice.buckets.batch_sizes)
    if report.load is None:
        mix = (
            f"if all request sizes from 1 to {sizes[-1]} are equally likely; describe yours with "
            f"--load"
        )
    else:
        mix = f"for the request mix --load {report.format_load()}"
    console.print(
        Text.assemble(
            ("recommended allowed_batch_sizes: ", "bold"),
            f"{sizes} ({advice.buckets.padding:.0%} padding {mix})",
        ),
        soft_wrap=True,
    )


def format_quantity(number: float) -> str:
    """Format a number with three significant digits and a unit prefix: 1230000 → "1.23M"."""
    power = 0
    while number >= 999.5 and power < len(_LARGE_UNITS) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.3g}{_LARGE_UNITS[power]}"


def format_seconds(number: float) -> str:
    """Format a time in seconds with three significant digits and a unit: 0.00123 → "1.23ms"."""
    power = 0
    while number < 0.9995 and power < len(_SECOND_UNITS) - 1:
        number, power = number * 1000, power + 1
    return f"{number:.3g}{_SECOND_UNITS[power]}"
