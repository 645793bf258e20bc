"""Prints the result of a conversion as tables for a terminal."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpuserve.export.conversion.conversion_report import Conversion, ConvertedSignature

# The table of a signature's ops on the host shows at most this number of ops.
_MOST_ROWS = 20
_WIDTH = 400


def print_tables(conversion: Conversion, console: Console | None = None) -> None:
    """Print for each signature which ops run on the TPU, which on the host, and why."""
    console = console or Console()
    heading = f"{conversion.out}: {{serve}} of {conversion.directory}, and {{serve, tpu}}"
    console.print(Text(heading, style="bold"), soft_wrap=True)
    table = _new_table("signature", "ops on the TPU", "ops on the host", "TPU computations")
    for signature in conversion.signatures:
        functions = ", ".join(signature.functions) or "none"
        table.add_row(
            Text(signature.name),
            str(signature.num_tpu_ops),
            str(signature.num_host_ops),
            Text(functions),
        )
    console.print(table)
    for signature in conversion.signatures:
        if signature.host_ops:
            _print_host_ops(signature, console)
    for note in conversion.notes:
        console.print(Text(f"note: {note}"), soft_wrap=True)


def _print_host_ops(signature: ConvertedSignature, console: Console) -> None:
    console.print()
    console.print(Text(f"On the host, in signature {signature.name}"))
    table = _new_table("op", "place", "reason", "node")
    for host_op in signature.host_ops[:_MOST_ROWS]:
        table.add_row(
            host_op.op, host_op.place or "left out", Text(host_op.reason), Text(host_op.node)
        )
    # Print each op of the table on one line, however long, and let the terminal wrap it. The rich
    # library would otherwise truncate the node names.
    Console(file=console.file, width=_WIDTH).print(table)
    more = len(signature.host_ops) - _MOST_ROWS
    if more > 0:
        console.print(Text(f"and {more} other ops; --json lists them all"))


def _new_table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, show_edge=False)
    for title in titles:
        table.add_column(title, no_wrap=True, overflow="ignore")
    return table
