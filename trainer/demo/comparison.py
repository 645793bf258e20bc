"""What several servers said of the same digits, side by side."""

from collections.abc import Mapping

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from tpuserve.errors import TpuserveError
from trainer.demo import picture
from trainer.demo.digits import Digits
from trainer.demo.serving import Answers

# Of a float32 probability; XLA may sum in another order than TensorFlow's own kernels.
PROBABILITY_TOLERANCE = 1e-5
_DIGITS_A_ROW = 5


class DemoFailed(TpuserveError):
    """The demo ran, and what came out is not what it promises."""


def largest_difference(answers: Mapping[str, Answers]) -> float:
    """The largest difference between two probabilities for one digit.

    Args:
      answers: way of asking → what it gave; the first is the baseline.

    Raises:
      DemoFailed: two answers name different digits, or differ by more than the tolerance.
    """
    baseline_way, *candidate_ways = answers
    baseline = answers[baseline_way]
    largest = 0.0
    for way in candidate_ways:
        candidate = answers[way]
        difference = float(np.abs(candidate.probabilities - baseline.probabilities).max())
        same = np.array_equal(candidate.classes, baseline.classes)
        if not same or difference > PROBABILITY_TOLERANCE:
            raise DemoFailed(
                f"{way} and {baseline_way} disagree: digits {candidate.classes.tolist()} and "
                f"{baseline.classes.tolist()}, probabilities by up to {difference:.1e}."
            )
        largest = max(largest, difference)
    return largest


def make_table(asked: Digits, answers: Mapping[str, Answers], console: Console) -> Table:
    """Digits, labels and answers side by side, five digits a row.

    Args:
      asked: the digits.
      answers: way of asking → what it gave.
      console: what the table is for; digits are drawn with characters that it has.
    """
    shown = Table(
        box=box.SQUARE,
        show_header=False,
        caption="CPU: metagraph {serve}. TPU: metagraph {serve, tpu}, lowered to this CPU.",
    )
    for _ in range(1 + _DIGITS_A_ROW):
        shown.add_column(justify="center", no_wrap=True)
    ascii_only = console.options.ascii_only
    for first in range(0, len(asked.labels), _DIGITS_A_ROW):
        row = range(first, min(first + _DIGITS_A_ROW, len(asked.labels)))
        shown.add_row(
            "", *(picture.draw_digit(asked.images[each], ascii_only=ascii_only) for each in row)
        )
        shown.add_row("label", *(str(asked.labels[each]) for each in row), style="bold")
        for way, answer in answers.items():
            shown.add_row(way, *(str(answer.classes[each]) for each in row))
        shown.add_section()
    return shown
