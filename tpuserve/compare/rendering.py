"""Prints the report of a comparison as tables in the terminal."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpuserve.compare.report import PERCENTILES, Report, SignatureReport
from tpuserve.comparison import format_difference


def print_report(report: Report, console: Console | None = None) -> None:
    """Print the tables of the signatures, the worst differences, and what was left out."""
    console = console or Console()
    for side in report.sides:
        console.print(Text(f"{side.name}: {side}", style="bold"), soft_wrap=True)
    for signature in report.signatures.values():
        console.print()
        _print_signature(signature, console)
    if report.worst:
        console.print()
        console.print(Text("The worst differences", style="bold"))
        for result in report.worst:
            size = format_difference(result.largest_absolute)
            text = result.difference or f"within the tolerances, {size}"
            line = f"request {result.number}, {result.where}, {result.signature}: {text}"
            console.print(Text(line), soft_wrap=True)
    console.print()
    for reason, count in report.left_out.items():
        console.print(Text(f"left out: {count} of {reason}"), soft_wrap=True)
    for note in report.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)
    console.print(_verdict(report), soft_wrap=True)


def _print_signature(report: SignatureReport, console: Console) -> None:
    method = "" if report.method == "predict" else f" ({report.method})"
    console.print(
        Text(
            f"{report.signature}{method}: {report.num_differing} of {report.num_requests} "
            f"requests differ"
        ),
        soft_wrap=True,
    )
    if report.outputs:
        outputs = _new_table("output", "dtype", numbers=("absolute", "relative", "differ"))
        for name, output in report.outputs.items():
            differences = (output.largest_absolute, output.largest_relative)
            numbers = [*map(format_difference, differences), str(output.num_differing)]
            outputs.add_row(Text(name), output.dtype, *numbers)
        console.print(outputs)
    sides = _new_table("", numbers=("errors", *(f"p{each} ms" for each in PERCENTILES)))
    for side, name in enumerate(("baseline", "candidate")):
        latencies = [f"{value:.1f}" for value in report.percentiles_ms(side)]
        sides.add_row(name, str(report.num_errors[side]), *latencies)
    console.print(sides)


def _new_table(*titles: str, numbers: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
    for title in titles:
        table.add_column(title, overflow="fold")
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _verdict(report: Report) -> Text:
    earlier = f", {report.num_earlier} of them before" if report.num_earlier else ""
    so_far = " so far" if report.failure else ""
    compared = f"{report.num_requests} requests{so_far}{earlier}"
    if report.num_differing:
        text = f"different: {report.num_differing} of {compared}"
        return Text(text, style="bold red")
    return Text(f"same: {compared}", style="bold green")
