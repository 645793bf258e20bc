"""From measurements in rounds to ratios with a target."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Measurements = Mapping[str, Any]


@dataclass(frozen=True)
class Comparison:
    """What is compared, and what the ratio should be.

    Attributes:
      quantity: a key of the measurements.
      baseline, candidate: names of two sides; the ratio is candidate over baseline.
      target: the ratio aimed at.
      at_least: whether the target is the least or the most the ratio should be.
    """

    quantity: str
    baseline: str
    candidate: str
    target: float
    at_least: bool


@dataclass(frozen=True)
class Ratio:
    """A comparison with its numbers.

    Attributes:
      case: which case it is of.
      baseline, candidate: medians over all rounds, in the quantity's unit.
      value: candidate over baseline.
      lowest, highest: of the ratios of single rounds.
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


def ratio(
    case: str, comparison: Comparison, rounds: Sequence[Mapping[str, Measurements]]
) -> Ratio | None:
    """The ratio of medians, with the spread of the ratios of single rounds.

    Args:
      case: name of the case.
      comparison: what to compare.
      rounds: each side → measurements; a round that lacks one of the two sides is left out.

    Returns:
      None where no round has both.
    """
    pairs = [
        (
            each[comparison.baseline][comparison.quantity],
            each[comparison.candidate][comparison.quantity],
        )
        for each in rounds
        if comparison.baseline in each and comparison.candidate in each
    ]
    if not pairs:
        return None
    baseline = statistics.median(pair[0] for pair in pairs)
    candidate = statistics.median(pair[1] for pair in pairs)
    of_rounds = [pair[1] / pair[0] for pair in pairs]
    return Ratio(
        case, comparison, baseline, candidate, candidate / baseline, min(of_rounds), max(of_rounds)
    )
