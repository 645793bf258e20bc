"""Plots the results of compilations: estimated time and throughput over batch size."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tpuserve.compilation.compile_report import CompileReport
from tpuserve.compilation.stats import CompileStats, CompileTarget
from tpuserve.files.plot_file import check_plot_path, save_figure


class PlottedCompilation(Protocol):
    """The interface of a compilation result that can be plotted.

    Results of SavedModels and of training steps both implement it.
    """

    @property
    def topology(self) -> CompileTarget:
        """The TPU topology for which the program was compiled."""

    @property
    def batch_size(self) -> int:
        """Number of examples in a batch."""

    @property
    def stats(self) -> CompileStats | None:
        """The compiler's figures for the compiled program; None if it does not compile."""

    @property
    def estimated_rows_per_second_per_chip(self) -> float | None:
        """Estimated examples per second of one chip; None without a time estimate."""


def plot(report: CompileReport, path: Path) -> None:
    """Write a figure of the estimated time and throughput of each signature of a SavedModel.

    Raises:
      InvalidInput: The file name has another ending, or its directory does not exist.
    """
    compilations = {
        advice.signature: [
            compilation
            for compilation in report.compilations
            if compilation.signature == advice.signature
        ]
        for advice in report.advice
    }
    plot_compilations(compilations, path)


def plot_compilations(
    compilations_by_name: Mapping[str, Sequence[PlottedCompilation]], path: Path
) -> None:
    """Write a figure of estimated time and throughput over batch size.

    The figure has two diagrams for each signature or training step. Each diagram has a line for
    each topology.

    Args:
      compilations_by_name: Name of a signature, or "training step" → its results.

    Raises:
      InvalidInput: The file name has another ending, or its directory does not exist.
    """
    check_plot_path(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    # Do not use pyplot: it keeps each figure in memory and may need a display.
    figure = Figure(figsize=(11, 4.2 * len(compilations_by_name)), layout="constrained")
    rows: Any = figure.subplots(len(compilations_by_name), 2, squeeze=False)
    for (name, compilations), (time_axes, rows_axes) in zip(
        compilations_by_name.items(), rows, strict=True
    ):
        by_topology: dict[str, list[PlottedCompilation]] = {}
        for compilation in compilations:
            by_topology.setdefault(compilation.topology.name, []).append(compilation)
        for (topology, topology_compilations), style in zip(
            by_topology.items(), mpl.rcParams["axes.prop_cycle"](), strict=False
        ):
            _draw_lines(time_axes, rows_axes, topology, topology_compilations, style["color"])
        sizes = sorted({compilation.batch_size for compilation in compilations})
        _label_axes(time_axes, f"{name}: estimated time", "microseconds", sizes)
        _label_axes(rows_axes, f"{name}: estimated throughput", "rows per second and chip", sizes)
        if time_axes.lines:
            rows_axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1), fontsize="small")
    figure.suptitle("Estimates of the TPU compiler, for the TPU alone; nothing has run")
    save_figure(figure, path)


def _draw_lines(
    time_axes: Any,
    rows_axes: Any,
    topology: str,
    compilations: Sequence[PlottedCompilation],
    color: Any,
) -> None:
    """Draw the results for one topology: a line of times, and a line of examples per second."""
    points: list[tuple[int, float, float]] = sorted(
        (
            compilation.batch_size,
            compilation.stats.seconds,
            compilation.estimated_rows_per_second_per_chip,
        )
        for compilation in compilations
        if compilation.stats is not None
        and compilation.estimated_rows_per_second_per_chip is not None
    )
    missing = len(compilations) - len(points)
    label = f"{topology} ({missing} missing)" if missing else topology
    if not points:
        return
    sizes = [size for size, _, _ in points]
    style = {"marker": "o", "label": label, "color": color}
    time_axes.plot(sizes, [1e6 * seconds for _, seconds, _ in points], **style)
    rows_axes.plot(sizes, [rows for _, _, rows in points], **style)


def _label_axes(axes: Any, title: str, unit: str, sizes: list[int]) -> None:
    """Set the title, the axis labels and logarithmic scales of a diagram."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(title=title, xlabel="batch size, in rows", ylabel=unit)
    if not axes.lines:
        axes.text(0.5, 0.5, "no estimate", ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    axes.set(xscale="log", yscale="log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.grid(visible=True, alpha=0.25)
