"""Implements `tpuserve predict`, which runs a model on all records of files without a server."""

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpuserve import tags as tag_sets
from tpuserve.commands.common_options import (
    directory_argument,
    import_ops_option,
    import_tensorflow,
    json_option,
)
from tpuserve.commands.exit_on_sigterm import exit_on_sigterm
from tpuserve.commands.path_type import MultiValueCommand, OutputPath
from tpuserve.commands.progress import progress_bar
from tpuserve.errors import SignatureNotFound

if TYPE_CHECKING:
    from tpuserve.saved_model.metagraph import Metagraph

_ENGINES = ("session", "xla", "pjrt")
_INPUT_FORMATS = ("examples", "requests", "prediction_logs", "jsonl")
_OUTPUT_FORMATS = ("prediction_logs", "jsonl", "parquet")

# The character \b tells click to keep the line breaks of the examples.
_EXAMPLES = """\b
Examples:
  tpuserve predict /models/half/1 --inputs 'data-*.tfrecord' --outputs out/
  tpuserve predict /models/half/1 --inputs rows.jsonl --outputs out/ --output-format jsonl
  tpuserve predict /models/half/1 --inputs requests.tfrecord --input-format requests --outputs out/
  tpuserve predict /models/half --inputs log --input-format prediction_logs --outputs out/
"""


@click.command(cls=MultiValueCommand, epilog=_EXAMPLES)
@directory_argument
@click.option(
    "--inputs",
    "patterns",
    multiple=True,
    required=True,
    type=click.Path(),
    metavar="PATTERN...",
    help="Files to predict: paths, or patterns such as 'data-*.tfrecord'. Files whose names end in "
    ".gz are decompressed.",
)
@click.option(
    "--outputs",
    required=True,
    type=OutputPath(file_okay=False),
    metavar="DIRECTORY",
    help="Directory to write to. It is empty or missing, or has the files of a run to continue.",
)
@click.option(
    "--signature",
    "signature_name",
    default="serving_default",
    show_default=True,
    metavar="NAME",
    help="Signature to run. A request that names a signature runs the signature that it names.",
)
@click.option(
    "--input-format",
    type=click.Choice(_INPUT_FORMATS),
    help="Format of the input files. Default: jsonl for .jsonl, .ndjson and .json, otherwise "
    "examples.",
)
@click.option(
    "--output-format",
    type=click.Choice(_OUTPUT_FORMATS),
    default="prediction_logs",
    show_default=True,
    help="Format of the output files. parquet needs the extra parquet.",
)
@click.option(
    "--record-versions",
    is_flag=True,
    help="Run a request in the version that it names, of the base path. Default: all requests run "
    "in the version of DIRECTORY.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    metavar="ROWS",
    help="Rows of a run of the model, e.g. `--batch-size 512`.",
)
@click.option(
    "--tags",
    metavar="TAGS",
    help="Tags of the metagraph, e.g. `serve,tpu`. Default: by the machine.",
)
@click.option(
    "--engine",
    type=click.Choice(_ENGINES),
    help="Runtime of the model: TensorFlow's session, XLA, or JAX's PJRT client. Default: session.",
)
@import_ops_option
@json_option
def predict(
    directory: Path,
    patterns: tuple[str, ...],
    outputs: Path,
    signature_name: str,
    input_format: str | None,
    output_format: str,
    record_versions: bool,
    batch_size: int,
    tags: str | None,
    engine: str | None,
    import_ops: tuple[str, ...],
    as_json: bool,
) -> None:
    """Predict all records of files, without a server.

    DIRECTORY holds a saved_model.pb, such as /models/half/1, or is a base path, such as
    /models/half, whose newest version is meant.

    Each input file gives an output file, predictions-00000-of-00010.tfrecord and so on. The output
    files are numbered in the order of the names of the input files, and the records of an output
    file have the order of its input file. An output file appears when it is complete. If a run
    stops, the same command continues it, even within a file, and repeats at most about half a
    minute of work.
    """
    from tpuserve.prediction import formats
    from tpuserve.saved_model import metagraph

    # Read the SavedModel and find the input files first, so that an error is reported before the
    # slow import of TensorFlow.
    _check_signature(directory, metagraph.read_metagraphs(directory), signature_name)
    formats.match_files(patterns)
    to_format = formats.OutputFormat(output_format)
    to_format.require_extra()
    with exit_on_sigterm(), progress_bar() as progress:
        progress(0, 0, "importing TensorFlow")
        import_tensorflow(import_ops)
        from tpuserve.prediction import batch_prediction

        report = batch_prediction.predict(
            directory,
            patterns,
            outputs,
            signature_name=signature_name,
            input_format=formats.InputFormat(input_format) if input_format else None,
            output_format=to_format,
            batch_size=batch_size,
            tags=tag_sets.parse_tags(tags) if tags else None,
            runtime=engine,
            record_versions=record_versions,
            progress=progress,
        )
    if as_json:
        data = {**dataclasses.asdict(report), "rows_per_second": report.rows_per_second}
        click.echo(json.dumps(data, indent=2))
        return
    click.echo(f"metagraph: {report.metagraph}")
    skipped = f", {report.skipped_files} complete before" if report.skipped_files else ""
    continued = f", {report.continued_files} continued" if report.continued_files else ""
    click.echo(f"{report.rows} rows in {report.seconds:.1f} s, {report.rows_per_second:.0f} rows/s")
    files = "file" if report.files == 1 else "files"
    click.echo(f"wrote {report.files} {files} to {report.outputs}{skipped}{continued}")


def _check_signature(directory: Path, metagraphs: Iterable["Metagraph"], name: str) -> None:
    """Check that at least one metagraph of a SavedModel has the signature `name`.

    Raises:
      SignatureNotFound: No metagraph has a signature with this name.
    """
    available = sorted({name for metagraph in metagraphs for name in metagraph.signatures})
    if name not in available:
        raise SignatureNotFound(
            f"no signature {name!r} in {directory}; found {', '.join(available) or 'none'}. Name "
            f"one of those with --signature."
        )
