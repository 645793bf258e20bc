"""Defines the options for BatchFunction ops in an exported graph, which several commands share."""

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

import click

from tpuserve.commands.common_options import Command

if TYPE_CHECKING:
    from tpuserve.export import BatchConfig

_OPTIONS = (
    click.option(
        "--allowed_batch_sizes",
        "--allowed-batch-sizes",
        "allowed_batch_sizes",
        multiple=True,
        type=click.IntRange(min=1),
        metavar="ROWS...",
        help="Batch requests in front of the TPU, and pad the batches to these sizes, e.g. "
        "`--allowed_batch_sizes 1 8 32`. Default: no batching in the graph.",
    ),
    click.option(
        "--num_batch_threads",
        "--num-batch-threads",
        type=click.IntRange(min=1),
        default=2,
        show_default=True,
        metavar="THREADS",
        help="Number of batches that run in parallel.",
    ),
    click.option(
        "--batch_timeout_micros",
        "--batch-timeout-micros",
        type=click.IntRange(min=0),
        default=1000,
        show_default=True,
        metavar="MICROSECONDS",
        help="How long a batch waits for more rows at most, in microseconds.",
    ),
    click.option(
        "--max_enqueued_batches",
        "--max-enqueued-batches",
        type=click.IntRange(min=1),
        default=100,
        show_default=True,
        metavar="BATCHES",
        help="Largest number of waiting batches; further requests are refused.",
    ),
)


def batching_options(command: Command) -> Command:
    """Add to a command the options for batching in the graph, such as --allowed_batch_sizes."""
    return reduce(lambda decorated, option: option(decorated), reversed(_OPTIONS), command)


def make_batch_config(
    allowed_batch_sizes: Sequence[int],
    num_batch_threads: int,
    batch_timeout_micros: int,
    max_enqueued_batches: int,
) -> "BatchConfig | None":
    """Convert the values of the batching options to a BatchConfig.

    Returns:
      The settings of the BatchFunction ops to export; None to export no batching.
    """
    from tpuserve.export import BatchConfig

    if not allowed_batch_sizes:
        return None
    return BatchConfig(
        num_batch_threads,
        max(allowed_batch_sizes),
        batch_timeout_micros,
        sorted(set(allowed_batch_sizes)),
        max_enqueued_batches,
    )
