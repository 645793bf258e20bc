"""Compares the predictions of the servers of the CPU and TPU metagraph, over REST and gRPC."""

from collections.abc import Mapping

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from tpuserve.errors import TpuserveError
from trainer.demo import picture
from trainer.demo.digits import Digits
from trainer.demo.serving import Predictions

# The largest accepted difference between the float32 probabilities of the CPU metagraph and of the
# TPU metagraph.
PROBABILITY_TOLERANCE = 1e-5
_DIGITS_PER_ROW = 5


def largest_difference(predictions: Mapping[str, Predictions]) -> float:
    """Compare predictions for the same digits, and return the largest difference.

    Args:
      predictions: name of the device and protocol, such as "CPU REST" → predictions. The first
        predictions are compared with each of the others.

    Returns:
      The largest absolute difference between two probabilities of the same digit and class.
    """
    baseline_name, *candidate_names = predictions
    baseline = predictions[baseline_name]
    largest = 0.0
    for name in candidate_names:
        candidate = predictions[name]
        difference = float(np.abs(candidate.probabilities - baseline.probabilities).max())
        is_same = np.array_equal(candidate.classes, baseline.classes)
        if not is_same or difference > PROBABILITY_TOLERANCE:
            raise TpuserveError(
                f"{name} and {baseline_name} disagree: digits {candidate.classes.tolist()} and "
                f"{baseline.classes.tolist()}, probabilities by up to {difference:.1e}."
            )
        largest = max(largest, difference)
    return largest


def make_table(digits: Digits, predictions: Mapping[str, Predictions], console: Console) -> Table:
    """Make a table of digits, labels and predictions, five digits per row.

    Args:
      predictions: name of the device and protocol, such as "CPU REST" → predictions.
    """
    table = Table(
        box=box.SQUARE,
        show_header=False,
        caption="CPU: metagraph {serve}. TPU: metagraph {serve, tpu}, lowered to this CPU.",
    )
    for _ in range(1 + _DIGITS_PER_ROW):
        table.add_column(justify="center", no_wrap=True)
    ascii_only = console.options.ascii_only
    for first in range(0, len(digits.labels), _DIGITS_PER_ROW):
        row = range(first, min(first + _DIGITS_PER_ROW, len(digits.labels)))
        pictures = [picture.draw_digit(digits.images[i], ascii_only=ascii_only) for i in row]
        table.add_row("", *pictures)
        table.add_row("label", *(str(digits.labels[i]) for i in row), style="bold")
        for name, server_predictions in predictions.items():
            table.add_row(name, *(str(server_predictions.classes[i]) for i in row))
        table.add_section()
    return table
