"""Compares two variants of a server in alternating turns.

Other programs of the machine slow down both variants of a round equally, so the ratio of a round
varies less than either figure.
"""

import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Variant = TypeVar("Variant")


@dataclass(frozen=True)
class Comparison:
    """A figure, such as calls per second, of both variants in all rounds.

    Attributes:
      with_feature: The figure of the variant with the feature, in each round.
      without_feature: The figure of the variant without the feature, in each round.
    """

    with_feature: list[float]
    without_feature: list[float]

    @property
    def ratios(self) -> list[float]:
        """The figure with the feature divided by the figure without the feature, in each round."""
        pairs = zip(self.with_feature, self.without_feature, strict=True)
        return [with_figure / without_figure for with_figure, without_figure in pairs]

    @property
    def median_ratio(self) -> float:
        """The median of `ratios`."""
        return statistics.median(self.ratios)


def compare_in_turns(
    with_feature: Variant,
    without_feature: Variant,
    measure: Callable[[Variant], Mapping[str, float]],
    rounds: int,
) -> dict[str, Comparison]:
    """Measure two variants in turns. The order of the variants changes with each round.

    Args:
      with_feature: The variant with the feature.
      without_feature: The variant without the feature.
      measure: A function that measures a variant once, and returns its figures by their units.
      rounds: The number of rounds.

    Returns:
      Unit → comparison.
    """
    comparisons: dict[str, Comparison] = {}
    for index in range(rounds):
        is_with_first = index % 2 == 0
        for is_with in (is_with_first, not is_with_first):
            for unit, figure in measure(with_feature if is_with else without_feature).items():
                comparison = comparisons.setdefault(unit, Comparison([], []))
                figures = comparison.with_feature if is_with else comparison.without_feature
                figures.append(figure)
    return comparisons


def print_comparisons(title: str, comparisons: Mapping[str, Comparison]) -> None:
    """Print the figures of all rounds, and the median of the ratios with its range."""
    print(f"{title} (load average {os.getloadavg()[0]:.1f})")
    for unit, comparison in comparisons.items():
        ratios = comparison.ratios
        print(
            f"  {unit}: with {_format_figures(comparison.with_feature)}, "
            f"without {_format_figures(comparison.without_feature)}, "
            f"ratio {comparison.median_ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def _format_figures(figures: list[float]) -> str:
    return " ".join(f"{figure:.0f}" for figure in figures)


def process_cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process and its descendants have used, in seconds."""
    return sum(map(process_cpu_seconds, _descendants(pid)))


def _descendants(pid: int) -> list[int]:
    pids = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            pids += _descendants(int(child))
    return pids
