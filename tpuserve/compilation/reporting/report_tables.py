"""A report for people."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpuserve.compilation.reporting.report import Compilation, CompileAdvice, CompileReport

# Short, so that a row fits a terminal of 80 columns.
_HEADINGS = (
    "\n\ntopology",
    "\nbatch\nsize",
    "\nest.\ntime",
    "est.\nrows/s\na chip",
    "\n\nbound",
    "\n\nFLOPs",
    "\nbytes\nmoved",
    "HBM\nbytes:\nargs",
    "\n\ntemp",
    "\n\ncode",
)
_WIDEST = 1000
_PREFIXES = ("", "k", "M", "G", "T", "P")
_SMALL = ("s", "ms", "us", "ns")


def print_report(report: CompileReport, console: Console | None = None) -> None:
    """Prints a table for each signature, what did not compile, and advice."""
    console = console or Console()
    for advice in report.advice:
        mine = [each for each in report.compilations if each.signature == advice.signature]
        table = _table(advice.signature, mine)
        # A figure cut short would be another one: a narrow terminal breaks lines instead.
        unbounded = console.options.update(width=_WIDEST)
        table.width = console.measure(table, options=unbounded).maximum
        console.print(table, crop=False)
        _print_errors(console, mine)
        _print_advice(console, advice, report)
    for note in report.notes:
        console.print(Text.assemble(("note: ", "bold"), note), soft_wrap=True)
    if any(each.figures is not None for each in report.compilations):
        console.print(
            "Times and rows/s are the compiler's estimates, for the TPU alone. Nothing has run.",
            soft_wrap=True,
        )
    if any(each.figures and each.figures.untimed_operations for each in report.compilations):
        console.print(
            ">: without operations that the compiler has no time for.", soft_wrap=True, style="dim"
        )


def _table(signature: str, compilations: list[Compilation]) -> Table:
    table = Table(
        title=f"signature {signature}",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    for heading in _HEADINGS:
        justify = "left" if heading.strip() in ("topology", "bound") else "right"
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    order = list(dict.fromkeys(each.topology.name for each in compilations))
    last = ""
    for each in sorted(compilations, key=lambda each: order.index(each.topology.name)):
        name = each.topology.name
        table.add_row("" if name == last else name, str(each.batch_size), *_cells(each))
        last = name
    return table


def _cells(each: Compilation) -> list[Text | str]:
    if each.figures is None:
        return [Text("fails", style="red")]
    figures = each.figures
    rows = each.estimated_rows_per_second_per_chip
    return [
        (">" if figures.untimed_operations else "") + format_seconds(figures.seconds),
        "" if rows is None else format_quantity(rows),
        each.bound or "",
        format_quantity(figures.flops),
        format_quantity(figures.bytes_moved),
        format_quantity(figures.argument_bytes),
        format_quantity(figures.temporary_bytes),
        format_quantity(figures.code_bytes),
    ]


def _print_errors(console: Console, compilations: list[Compilation]) -> None:
    places: dict[str, list[str]] = {}
    for each in compilations:
        if each.error is not None:
            place = f"{each.topology.name} at batch size {each.batch_size}"
            places.setdefault(each.error, []).append(place)
    for error, found in places.items():
        line = Text.assemble((f"{', '.join(found)}: ", "bold red"), " ".join(error.split()))
        console.print(line, soft_wrap=True)


def _print_advice(console: Console, advice: CompileAdvice, report: CompileReport) -> None:
    fits = advice.smallest_topology or "none of these"
    console.print(Text.assemble(("smallest chip that fits: ", "bold"), fits), soft_wrap=True)
    if advice.cover is not None:
        console.print(
            Text.assemble(
                ("allowed_batch_sizes: ", "bold"),
                f"{list(advice.cover.batch_sizes)}, {advice.cover.padding:.0%} padding (load: "
                f"{report.load})",
            ),
            soft_wrap=True,
        )


def format_quantity(number: float) -> str:
    """A number in three figures: 1230000 → "1.23M"."""
    power = 0
    while number >= 999.5 and power < len(_PREFIXES) - 1:
        number, power = number / 1000, power + 1
    return f"{number:.3g}{_PREFIXES[power]}"


def format_seconds(number: float) -> str:
    """A time in three figures: 0.00123 → "1.23ms"."""
    power = 0
    while number < 0.9995 and power < len(_SMALL) - 1:
        number, power = number * 1000, power + 1
    return f"{number:.3g}{_SMALL[power]}"
