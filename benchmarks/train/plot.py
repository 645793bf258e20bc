"""The ratios as a picture."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.train.ratios import Ratio
from benchmarks.train.report import UNITS


def draw(ratios: Sequence[Ratio], path: Path) -> bool:
    """Draws each ratio with its spread and its target; False where matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("agg")
    from matplotlib import pyplot

    path.parent.mkdir(parents=True, exist_ok=True)
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.6 * len(ratios)), layout="constrained")
    labels = []
    for row, each in enumerate(ratios):
        color = "tab:green" if each.is_met else "tab:red"
        axes.plot([each.lowest, each.highest], [row, row], color=color, linewidth=3, alpha=0.4)
        axes.plot(each.value, row, "o", color=color)
        axes.plot(each.comparison.target, row, "k|", markersize=16)
        # The words stay above the bar, which may reach past either end.
        axes.annotate(f"{each.value:.2f}", (each.value, row), (0, 6), textcoords="offset points")
        comparison = each.comparison
        sign = "≥" if comparison.at_least else "≤"
        labels.append(
            f"{each.case}\n{UNITS[comparison.quantity]}, {comparison.candidate} over "
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
