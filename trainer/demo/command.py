"""The command `tpuserve demo`."""

from pathlib import Path

import click

DEFAULT_STEPS = 1_200


@click.command()
@click.option(
    "--keep",
    is_flag=True,
    help="Leave data, checkpoints and model on disk, and print how to serve and ask the model.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to work, new or empty; by default a new temporary directory.",
)
@click.option(
    "--steps",
    default=DEFAULT_STEPS,
    show_default=True,
    type=click.IntRange(1),
    help="How long to train; fewer may end below the accuracy that the demo promises.",
)
def demo(keep: bool, directory: Path | None, steps: int) -> None:
    """Train, export and serve real digits, the whole way once.

    Trains a CNN on 4,000 handwritten digits, exports it for CPU and TPU, serves both metagraphs
    (the TPU one lowered to the CPU) and compares their answers over REST and gRPC. Takes about
    a minute and a half, needs no TPU, no GPU and no internet.
    """
    from tpuserve.runtime import tf_logging

    click.echo("importing TensorFlow")
    tf_logging.import_tensorflow()
    from trainer.demo import run

    run.demo(keep=keep, directory=directory, steps=steps)
