"""A report as a picture: estimated time and throughput over batch size."""

from pathlib import Path
from typing import Any

from tpuserve.compilation.reporting.report import Compilation, CompileReport
from tpuserve.errors import InvalidInput

_FORMATS = (".pdf", ".png", ".svg")


def check_plot_path(path: Path) -> None:
    """Refuses a file that no plot can be written to.

    Raises:
      InvalidInput: another suffix, or no such directory.
    """
    if path.suffix.lower() not in _FORMATS:
        raise InvalidInput(f"{path} is no {', '.join(_FORMATS)}. Name the plot's file as one.")
    if not path.parent.is_dir():
        raise InvalidInput(f"no directory {path.parent} for {path.name}. Make it first.")


def plot(report: CompileReport, path: Path) -> None:
    """Writes a row of two diagrams for each signature, with one line for each topology."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    check_plot_path(path)
    names = [each.signature for each in report.advice]
    # Without pyplot nothing asks for a display, and no figure stays in memory.
    figure = Figure(figsize=(11, 4.2 * len(names)), layout="constrained")
    rows: Any = figure.subplots(len(names), 2, squeeze=False)
    for name, (time_axes, rows_axes) in zip(names, rows, strict=True):
        mine = [each for each in report.compilations if each.signature == name]
        for topology, style in zip(
            dict.fromkeys(each.topology.name for each in mine),
            mpl.rcParams["axes.prop_cycle"](),
            strict=False,
        ):
            found = [each for each in mine if each.topology.name == topology]
            _draw(time_axes, rows_axes, topology, found, style["color"])
        sizes = sorted({each.batch_size for each in mine})
        _label(time_axes, f"{name}: estimated time", "microseconds", sizes)
        _label(rows_axes, f"{name}: estimated throughput", "rows per second and chip", sizes)
        if time_axes.lines:
            rows_axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), fontsize="small")
    figure.suptitle("Estimates of the TPU compiler, for the TPU alone; nothing has run")
    beside = path.with_name(f".{path.stem}.unfinished{path.suffix}")
    figure.savefig(beside, dpi=120)
    beside.replace(path)


def _draw(
    time_axes: Any, rows_axes: Any, topology: str, compilations: list[Compilation], color: Any
) -> None:
    drawn: list[tuple[int, float, float]] = sorted(
        (each.batch_size, each.figures.seconds, each.estimated_rows_per_second_per_chip)
        for each in compilations
        if each.figures is not None and each.estimated_rows_per_second_per_chip is not None
    )
    missing = len(compilations) - len(drawn)
    label = f"{topology} ({missing} without)" if missing else topology
    if not drawn:
        return
    sizes = [size for size, _, _ in drawn]
    style = {"marker": "o", "label": label, "color": color}
    time_axes.plot(sizes, [1e6 * time for _, time, _ in drawn], **style)
    rows_axes.plot(sizes, [rows for _, _, rows in drawn], **style)


def _label(axes: Any, title: str, unit: str, sizes: list[int]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(title=title, xlabel="batch size, in rows", ylabel=unit)
    if not axes.lines:
        axes.text(0.5, 0.5, "no estimate", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(sizes, [str(each) for each in sizes])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.grid(visible=True, alpha=0.25)
