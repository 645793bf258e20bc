"""The command `tpuserve demo`, which trains, exports and serves a model of handwritten digits."""

from pathlib import Path

import click

from tpuserve.commands.path_type import OutputPath

DEFAULT_STEPS = 1_200

# The character \b makes click keep the line breaks of the examples in the help text.
_EXAMPLES = """\b
Examples:
  tpuserve demo
  tpuserve demo --keep --directory /tmp/demo
"""


@click.command(epilog=_EXAMPLES)
@click.option(
    "--keep",
    is_flag=True,
    help="Keep data, checkpoints and model on disk, and print how to serve and query the model.",
)
@click.option(
    "--directory",
    type=OutputPath(file_okay=False),
    help="Working directory, new or empty; default: a new temporary directory.",
)
@click.option(
    "--steps",
    default=DEFAULT_STEPS,
    show_default=True,
    type=click.IntRange(1),
    metavar="STEPS",
    help="Number of training steps; fewer may miss the accuracy that the demo requires.",
)
def demo(keep: bool, directory: Path | None, steps: int) -> None:
    """Train, export, serve and compare a model of handwritten digits.

    Trains a CNN on 4,000 digits, exports it for CPU and TPU, serves both metagraphs (the TPU
    metagraph lowered to the CPU) and compares their predictions over REST and gRPC. Takes about
    a minute and a half. Needs no TPU, no GPU and no internet access.
    """
    from tpuserve.runtime import tf_logging

    click.echo("importing TensorFlow")
    tf_logging.import_tensorflow()
    from trainer.demo import run

    run.run_demo(keep=keep, directory=directory, steps=steps)
