"""Draws sharding.svg: the rows of a global batch on the cores of two hosts, and the gradients.

$ python docs/pictures/sharding.py docs/pictures/sharding.svg
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
# A constant salt makes the file reproducible.
matplotlib.rcParams.update({"svg.hashsalt": "sharding", "svg.fonttype": "none", "font.size": 11})

from matplotlib import pyplot  # noqa: E402
from matplotlib.patches import FancyBboxPatch  # noqa: E402

HOSTS, CORES_PER_HOST, ROWS = 2, 4, 16
PER_HOST, PER_CORE = ROWS // HOSTS, ROWS // (HOSTS * CORES_PER_HOST)
HOST_COLOURS = ("#2b6cb0", "#b7791f")
INK, PAPER = "#2d3748", "#ffffff"


def draw_sharding(path: Path) -> None:
    """Draw the picture and write the file."""
    figure, axes = pyplot.subplots(figsize=(10, 6.2))
    axes.set(xlim=(0, 16), ylim=(0, 10.2))
    axes.axis("off")
    axes.text(8, 9.9, f"one step: a global batch of {ROWS} rows", ha="center", color=INK)
    for host in range(HOSTS):
        _draw_host(axes, host)
    axes.add_patch(_box(0.1, 0.85, 15.8, 0.9, INK, filled=True))
    axes.text(
        8,
        1.3,
        "CrossReplicaSum: every core gets the mean of all 8 gradients",
        ha="center",
        va="center",
        color=PAPER,
    )
    axes.text(
        8,
        0.3,
        "every core makes the same update, so all copies of the variables stay the same",
        ha="center",
        color=INK,
    )
    figure.savefig(path, bbox_inches="tight", facecolor=PAPER, metadata={"Date": None})


def _draw_host(axes: Any, host: int) -> None:
    left, colour = 8 * host, HOST_COLOURS[host]
    first = PER_HOST * host
    for row in range(PER_HOST):
        axes.add_patch(_box(left + row + 0.1, 9.0, 0.8, 0.6, colour, filled=True))
        axes.text(left + row + 0.5, 9.3, str(first + row), ha="center", va="center", color=PAPER)
    _arrow(axes, left + 4, 8.9, 8.0, colour)
    axes.add_patch(_box(left + 0.1, 7.1, 7.8, 0.8, colour))
    axes.text(
        left + 4,
        7.5,
        f"host {host}: its input_fn gives {PER_HOST} rows, split in {CORES_PER_HOST}",
        ha="center",
        va="center",
        color=colour,
    )
    for core in range(CORES_PER_HOST):
        _draw_core(axes, host, core)


def _draw_core(axes: Any, host: int, core: int) -> None:
    left, colour = 8 * host + 2 * core, HOST_COLOURS[host]
    first = PER_HOST * host + PER_CORE * core
    rows = ", ".join(str(first + row) for row in range(PER_CORE))
    _arrow(axes, left + 1, 7.0, 5.6, colour)
    axes.text(left + 1.1, 6.25, "infeed", color=colour, fontsize=9)
    axes.add_patch(_box(left + 0.1, 3.5, 1.8, 2.0, colour))
    number = CORES_PER_HOST * host + core
    axes.text(left + 1, 5.1, f"core {number}", ha="center", color=INK)
    axes.text(left + 1, 4.6, f"rows {rows}", ha="center", color=colour, fontsize=9)
    axes.text(left + 1, 4.1, "model_fn", ha="center", color=INK, fontsize=9)
    axes.text(left + 1, 3.7, f"batch_size {PER_CORE}", ha="center", color=INK, fontsize=9)
    _arrow(axes, left + 0.7, 3.4, 1.85, INK)
    _arrow(axes, left + 1.3, 1.85, 3.4, INK)
    axes.text(left + 0.35, 2.62, "gradient", rotation=90, va="center", color=INK, fontsize=9)
    axes.text(left + 1.4, 2.62, "mean", rotation=90, va="center", color=INK, fontsize=9)


def _box(
    left: float, bottom: float, width: float, height: float, colour: str, filled: bool = False
) -> Any:
    return FancyBboxPatch(
        (left, bottom),
        width,
        height,
        boxstyle="round,pad=0,rounding_size=0.12",
        edgecolor=colour,
        facecolor=colour if filled else PAPER,
    )


def _arrow(axes: Any, x: float, start: float, end: float, colour: str) -> None:
    axes.annotate("", (x, end), (x, start), arrowprops={"arrowstyle": "->", "color": colour})


if __name__ == "__main__":
    draw_sharding(Path(sys.argv[1]))
