"""Draws the ratios of the training benchmark."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.train.ratios import Ratio
from benchmarks.train.report import UNITS


def draw_ratios(ratios: Sequence[Ratio], path: Path) -> bool:
    """Draw each ratio with its range and its target as a picture.

    Args:
      ratios: The ratios.
      path: The file of the picture.

    Returns:
      False if matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.6 * len(ratios)), layout="constrained")
    labels = []
    for row, ratio in enumerate(ratios):
        color = "tab:green" if ratio.is_met else "tab:red"
        axes.plot([ratio.lowest, ratio.highest], [row, row], color=color, linewidth=3, alpha=0.4)
        axes.plot(ratio.value, row, "o", color=color)
        axes.plot(ratio.comparison.target, row, "k|", markersize=16)
        # The text is above the bar, because the bar may extend beyond the text.
        axes.annotate(f"{ratio.value:.2f}", (ratio.value, row), (0, 6), textcoords="offset points")
        comparison = ratio.comparison
        sign = "≥" if comparison.at_least else "≤"
        labels.append(
            f"{ratio.case}\n{UNITS[comparison.quantity]}, {comparison.candidate} over "
            f"{comparison.baseline} ({sign} {comparison.target:g})"
        )
    axes.set_yticks(range(len(ratios)), labels, fontsize=8)
    axes.set_ylim(len(ratios) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.grid(axis="x", alpha=0.3)
    axes.set_xlabel("ratio of medians, with the range of single rounds; | is the target")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return True
