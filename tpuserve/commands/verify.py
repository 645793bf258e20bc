"""Implements `tpuserve verify`, which compares the TPU and CPU metagraphs of a SavedModel."""

import json
from pathlib import Path

import click

from tpuserve.commands.common_options import (
    batch_size_option,
    directory_argument,
    import_ops_option,
    import_tensorflow,
    json_option,
    signature_option,
)
from tpuserve.commands.path_type import MultiValueCommand
from tpuserve.commands.progress import progress_bar

# The character \b tells click to keep the line breaks of the examples.
_EXAMPLES = """\b
Examples:
  tpuserve verify /models/half/1
  tpuserve verify /models/half/1 --signature serving_default --batch-size 1 8
  tpuserve verify /models/half/1 --inputs inputs.npz --atol 1e-4
"""


@click.command(cls=MultiValueCommand, epilog=_EXAMPLES)
@directory_argument
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Run on these arrays. The file is written by numpy.savez; each array is named INPUT or "
    "SIGNATURE/INPUT.",
)
@signature_option("Check")
@batch_size_option(
    "Batch sizes to run at, e.g. `--batch-size 1 8 64`; given inputs are repeated or cut to these "
    "sizes. Default: the rows of the given inputs, else the allowed_batch_sizes of the model's "
    "batch functions, else 1 8."
)
@click.option(
    "--atol",
    type=float,
    default=1e-5,
    show_default=True,
    metavar="TOLERANCE",
    help="Absolute tolerance.",
)
@click.option(
    "--rtol",
    type=float,
    default=1e-5,
    show_default=True,
    metavar="TOLERANCE",
    help="Relative tolerance.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="NUMBER",
    help="Random seed for generated inputs.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    metavar="RUNS",
    help="Number of further runs after the first, for the median wall time.",
)
@import_ops_option
@json_option
@click.pass_context
def verify(
    context: click.Context,
    directory: Path,
    inputs: Path | None,
    signatures: tuple[str, ...],
    batch_sizes: tuple[int, ...],
    atol: float,
    rtol: float,
    seed: int,
    runs: int,
    import_ops: tuple[str, ...],
    as_json: bool,
) -> None:
    """Compare the TPU and the CPU metagraph of a SavedModel.

    DIRECTORY holds a saved_model.pb with the metagraphs {serve} and {serve, tpu}, such as
    /models/half/1, or is a base path, such as /models/half, whose newest version is meant.

    Each signature runs in both metagraphs on the same inputs: those of --inputs, else the
    SavedModel's warm-up records, else generated inputs. The TPU metagraph is lowered to this
    machine's CPU and compiled by XLA.

    A float passes if |baseline - candidate| <= atol + rtol * |baseline|; all other values must be
    equal. Arrays in FILE.npz may have floats of another width than the signature takes, and
    integers of another width if they fit. Strings are arrays of text or bytes.

    The output also lists what would fail or surprise on a TPU, with its place in the graph.

    The exit status is 0 if all signatures pass and nothing is known to fail on a TPU, else 1.
    """
    # Import TensorFlow here, after `tpuserve.cli` has set the log level in the environment, because
    # TensorFlow reads the level during the import.
    import_tensorflow(import_ops)
    from tpuserve.verification import rendering
    from tpuserve.verification import verify as run_verification

    with progress_bar() as progress:
        report = run_verification(
            directory,
            inputs=inputs,
            signatures=signatures,
            batch_sizes=batch_sizes,
            atol=atol,
            rtol=rtol,
            seed=seed,
            runs=runs,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps(rendering.to_dict(report), indent=2))
    else:
        rendering.print_tables(report)
    if not report.passed:
        context.exit(1)
