"""Plots the results of a benchmark: latency over throughput."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpuserve.bench.windows import Result
from tpuserve.files.plot_file import check_plot_path, save_figure

_PLOTTED = (50.0, 99.0)


def plot_results(results_by_name: Mapping[str, Sequence[Result]], path: Path) -> None:
    """Write a figure of the latency percentiles p50 and p99 over the requests per second.

    Args:
      results_by_name: name of a model or a configuration → its results. Each name has a line in the
        figure.

    Raises:
      InvalidInput: the file name has another ending, or its directory does not exist.
    """
    check_plot_path(path)
    from matplotlib.figure import Figure

    # Do not use pyplot: it keeps each figure in memory and may need a display.
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    diagrams: Any = figure.subplots(1, len(_PLOTTED))
    for axes, percentile in zip(diagrams, _PLOTTED, strict=True):
        for name, results in results_by_name.items():
            axes.plot(
                [result.requests_per_second for result in results],
                [result.percentiles_ms[percentile] for result in results],
                marker="o",
                label=name,
            )
            for result in results:
                load = result.load
                axes.annotate(
                    f"{load.concurrency if load.rate is None else load.rate:g}",
                    (result.requests_per_second, result.percentiles_ms[percentile]),
                    textcoords="offset points",
                    xytext=(4, 4),
                    fontsize="x-small",
                )
        axes.set(title=f"p{percentile:g}", xlabel="requests per second", ylabel="milliseconds")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.25)
    diagrams[-1].legend(fontsize="small")
    save_figure(figure, path)
