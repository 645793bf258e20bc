"""Computes ratios of measurements, and compares the ratios with targets."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Measurements = Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """A comparison of two sides with a target ratio.

    Attributes:
      quantity: A key of the measurements.
      baseline: The name of the side in the denominator.
      candidate: The name of the side in the numerator.
      target: The target ratio.
      at_least: Whether the target is the minimum or the maximum of the ratio.
    """

    quantity: str
    baseline: str
    candidate: str
    target: float
    at_least: bool


@dataclass(frozen=True)
class Ratio:
    """The result of a comparison.

    Attributes:
      case: The title of the case.
      comparison: The comparison.
      baseline: The median of the baseline over all rounds, in the quantity's unit.
      candidate: The median of the candidate over all rounds, in the quantity's unit.
      value: candidate / baseline.
      lowest: The lowest ratio of a single round.
      highest: The highest ratio of a single round.
    """

    case: str
    comparison: Comparison
    baseline: float
    candidate: float
    value: float
    lowest: float
    highest: float

    @property
    def is_met(self) -> bool:
        """Whether the target is reached."""
        target = self.comparison.target
        return self.value >= target if self.comparison.at_least else self.value <= target


def compute_ratio(
    case: str, comparison: Comparison, rounds: Sequence[Mapping[str, Measurements]]
) -> Ratio | None:
    """Compute the ratio of the medians, and the range of the ratios of single rounds.

    Args:
      case: The title of the case.
      comparison: The comparison.
      rounds: Side → measurements, for each round. A round without one of the two sides is ignored.

    Returns:
      The ratio, or None if no round has both sides.
    """
    pairs = [
        (
            measured[comparison.baseline][comparison.quantity],
            measured[comparison.candidate][comparison.quantity],
        )
        for measured in rounds
        if comparison.baseline in measured and comparison.candidate in measured
    ]
    if not pairs:
        return None
    baseline = statistics.median(pair[0] for pair in pairs)
    candidate = statistics.median(pair[1] for pair in pairs)
    round_ratios = [pair[1] / pair[0] for pair in pairs]
    return Ratio(
        case,
        comparison,
        baseline,
        candidate,
        candidate / baseline,
        min(round_ratios),
        max(round_ratios),
    )
