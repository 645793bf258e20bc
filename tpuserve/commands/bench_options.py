"""Defines the options that `tpuserve bench` and `tpuserve analyse` share."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tpuserve.commands.path_type import LocalPath, PatternType

if TYPE_CHECKING:
    from tpuserve.bench.benchmark import InputChoice
    from tpuserve.bench.windows import Procedure

_POSITIVE = click.FloatRange(min=0, min_open=True)
_FILE = LocalPath(dir_okay=False)

Command = TypeVar("Command", bound=Callable[..., Any])


def _parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, sizes = text.rpartition(":")
    return name, tuple(map(int, sizes.split(",")))


# The pattern excludes URLs, whose port looks like a size: a URL may follow the shapes.
_SHAPE = PatternType("NAME:SIZES", r"(?!\w+://).+:\d+(,\d+)*", _parse_shape, example="x:1,28,28,1")

_OPTIONS = (
    click.option(
        "--batch-size",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        metavar="ROWS",
        help="Rows of random inputs, e.g. `--batch-size 32`.",
    ),
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        type=_SHAPE,
        metavar="NAME:SIZES...",
        help="Shape of a random input, such as x:1,28,28,1, if the model does not say it.",
    ),
    click.option(
        "--input",
        "input_file",
        type=_FILE,
        metavar="FILE",
        help="Inputs instead of random ones: .npz, .json, or .jsonl with a request in each line.",
    ),
    click.option(
        "--request-log",
        type=_FILE,
        metavar="FILE",
        help="Inputs from a request log of the server, or from a warm-up file such as "
        "tf_serving_warmup_requests.",
    ),
    click.option(
        "--window",
        "window_s",
        type=_POSITIVE,
        default=2.0,
        show_default=True,
        metavar="SECONDS",
        help="Length of a window, e.g. `--window 5`.",
    ),
    click.option(
        "--max-windows",
        type=click.IntRange(min=3),
        default=10,
        show_default=True,
        metavar="WINDOWS",
        help="Windows after which a load counts as not stable.",
    ),
    click.option(
        "--tolerance",
        "tolerance_percent",
        type=_POSITIVE,
        default=10.0,
        show_default=True,
        metavar="PERCENT",
        help="The last three windows are stable if their requests per second and mean latencies "
        "differ from their means by at most this, e.g. `--tolerance 5`.",
    ),
    click.option(
        "--warm-up",
        "warm_up_s",
        type=click.FloatRange(min=0),
        default=1.0,
        show_default=True,
        metavar="SECONDS",
        help="Time for which each load runs before the first window.",
    ),
    click.option(
        "--plot",
        "plot_path",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        help="Write a figure of p50 and p99 over requests per second (.png, .svg or .pdf). "
        "Needs the extra plot.",
    ),
)


def measurement_options(command: Command) -> Command:
    """Add to a command the options for a benchmark's inputs, time windows and plot."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def input_choice(options: Mapping[str, Any]) -> "InputChoice":
    """Convert the values of the command's options to the source of a benchmark's inputs.

    Raises:
      click.UsageError: both --input and --request-log are set.
    """
    from tpuserve.bench.benchmark import InputChoice

    if options["input_file"] and options["request_log"]:
        raise click.UsageError("--input and --request-log are given. Give one of them.")
    return InputChoice(
        options["batch_size"],
        dict(options["shapes"]),
        options["input_file"],
        options["request_log"],
    )


def procedure(options: Mapping[str, Any]) -> "Procedure":
    """Convert the values of the command's options to the settings of a benchmark's time windows."""
    from tpuserve.bench.windows import Procedure

    return Procedure(
        options["window_s"],
        options["max_windows"],
        options["tolerance_percent"] / 100,
        options["warm_up_s"],
    )
