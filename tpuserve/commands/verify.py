"""`tpuserve verify`."""

import json
from pathlib import Path

import click

from tpuserve.commands.multi_value_option import MultiValueCommand
from tpuserve.commands.path_type import SavedModelPath
from tpuserve.commands.progress import progress_bar


@click.command(cls=MultiValueCommand)
@click.argument("directory", type=SavedModelPath())
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Arrays to run on, as numpy.savez writes them, named INPUT or SIGNATURE/INPUT.",
)
@click.option(
    "--signature", "signatures", multiple=True, metavar="NAME", help="Of several; else all."
)
@click.option(
    "--batch-size",
    "batch_sizes",
    multiple=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Rows to run with; several may follow. Given inputs are repeated or cut.",
)
@click.option("--atol", type=float, default=1e-5, show_default=True, help="Absolute tolerance.")
@click.option("--rtol", type=float, default=1e-5, show_default=True, help="Relative tolerance.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Of generated inputs.",
)
@click.option(
    "--runs",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="How often to run after the first time, for the median wall time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
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
    as_json: bool,
) -> None:
    """Compare the {serve, tpu} metagraph of a SavedModel with its {serve} one, without a TPU.

    DIRECTORY holds a saved_model.pb with both: a version directory such as /models/half/1. Each
    signature of both runs on the same inputs, the TPU one lowered to this machine's CPU and
    compiled by XLA: the file's, else the SavedModel's warm-up records, else ones generated from
    the signature. Batch sizes are those asked for, else those of the inputs, else those that
    batch functions allow, else 1 and 8.

    A float passes where |baseline - candidate| <= atol + rtol * |baseline|; all else has to be
    equal. In a file, floats may be of another width than the signature takes, and whole numbers
    too if they fit; strings are arrays of text or bytes.

    What would fail or surprise on a TPU is told with its place in the graph. Exits with 0 if all
    passed and nothing is known to fail on a TPU, else with 1.
    """
    # The runtime counts its log level from the environment as it is imported.
    from tpuserve.runtime import tf_logging

    tf_logging.import_tensorflow()
    from tpuserve.verification import rendering
    from tpuserve.verification import verify as run

    with progress_bar() as tell:
        report = run(
            directory,
            inputs=inputs,
            signatures=signatures,
            batch_sizes=batch_sizes,
            atol=atol,
            rtol=rtol,
            seed=seed,
            runs=runs,
            progress=tell,
        )
    if as_json:
        click.echo(json.dumps(rendering.to_dict(report), indent=2))
    else:
        rendering.print_tables(report)
    if not report.passed:
        context.exit(1)
