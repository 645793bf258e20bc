"""Prints the usual TPU topologies, for `tpuserve compile --list-topologies`."""

from rich import box
from rich.console import Console
from rich.table import Table

from tpuserve.compilation.topology_names import list_topologies

_HEADINGS = ("topology", "Cloud TPU", "chips", "GB/chip", "GB", "bf16 TFLOP/s")


def print_topologies(console: Console | None = None) -> None:
    """Print a table with the names, chips, memory and peak compute of each TPU topology."""
    console = console or Console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in _HEADINGS:
        table.add_column(heading, justify="left" if heading in _HEADINGS[:2] else "right")
    for topology in list_topologies():
        generation, count = topology.generation, topology.num_chips
        table.add_row(
            topology.name,
            topology.cloud_name or "-",
            str(count),
            f"{generation.hbm_bytes / 1e9:g}",
            f"{generation.hbm_bytes * count / 1e9:g}",
            f"{generation.peak_flops * count / 1e12:g}",
        )
    console.print(table)
    console.print(
        "Memory and peak compute are the published figures. A served model runs on one chip; "
        "--train uses all of them. libtpu compiles for other shapes too.",
        soft_wrap=True,
    )
