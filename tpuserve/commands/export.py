"""Implements `tpuserve export`: writes a Keras file as a SavedModel with CPU and TPU metagraphs."""

import tempfile
from pathlib import Path

import click

from tpuserve.commands.batching_options import batching_options, make_batch_config
from tpuserve.commands.common_options import signing_key_option
from tpuserve.commands.exit_on_sigterm import exit_on_sigterm
from tpuserve.commands.path_type import MultiValueCommand, OutputPath, PatternType
from tpuserve.commands.progress import progress_bar
from tpuserve.errors import StringsOnTpu
from tpuserve.saved_model import signing

# The pattern of a value of the option --input_shape: NAME=SIZES:DTYPE. NAME= and :DTYPE are
# optional. An unknown size is written as ? or None.
_INPUT_SHAPE = r"([A-Za-z_]\w*=)?(\?|None|[1-9]\d*)(,(\?|None|[1-9]\d*))*(:\w+)?"

# The character \b tells click to keep the line breaks of the examples.
_EXAMPLES = """\b
Examples:
  tpuserve export digits.keras /models/digits
  tpuserve export resnet.h5 /models/resnet --input_shape ?,224,224,3
  tpuserve export bert.keras /models/bert --input_shape ids=?,128 mask=?,128 --warm_up
"""


def _parse_shape(text: str) -> tuple[str, tuple[int | None, ...], str]:
    """Parse a value of the option --input_shape, such as "x=?,224,224,3:float32".

    Returns:
      The name of the input, "" if it is missing; the shape, with None for an open size; and the
      dtype, "" if it is missing.
    """
    name, _, shape = text.rpartition("=")
    sizes, _, dtype = shape.partition(":")
    open_sizes = ("?", "None")
    return name, tuple(None if s in open_sizes else int(s) for s in sizes.split(",")), dtype


@click.command(cls=MultiValueCommand, epilog=_EXAMPLES)
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("directory", type=OutputPath())
@click.option(
    "--input_shape",
    "--input-shape",
    "input_shapes",
    multiple=True,
    type=PatternType("[NAME=]SIZES[:DTYPE]", _INPUT_SHAPE, _parse_shape, example="x=?,224,224,3"),
    help="Shape of an input, the batch first, with ? for an open size, e.g. `--input_shape "
    "x=?,224,224,3`. Several may follow. The name may be left out of the only input. Default: the "
    "shapes that the model declares.",
)
@batching_options
@click.option(
    "--warm_up",
    "--warm-up",
    "warm_up",
    is_flag=True,
    help="Write the warm-up file: a request for each allowed batch size.",
)
@signing_key_option
def export(
    file: Path,
    directory: Path,
    input_shapes: tuple[tuple[str, tuple[int | None, ...], str], ...],
    allowed_batch_sizes: tuple[int, ...],
    num_batch_threads: int,
    batch_timeout_micros: int,
    max_enqueued_batches: int,
    warm_up: bool,
    signing_key: Path | None,
) -> None:
    """Export a file of Keras with a CPU and a TPU metagraph.

    FILE is a .keras or .h5 file of Keras 3 or of tf_keras. DIRECTORY is the model's base path: the
    command writes a new version into it, and prints the version's directory.

    The model is exported for inference: the metagraph {serve} holds it unchanged, and in the
    metagraph {serve, tpu} all of it runs on the TPU, or all but the ops on strings if it has such.
    Code in the file, such as that of a Lambda
    layer, is not run, and such a file is refused.
    """
    if signing_key is not None:
        signing.check_key(signing_key, is_private=True)
    with exit_on_sigterm(), progress_bar() as progress:
        progress(0, 0, "importing TensorFlow")
        from tpuserve.runtime import tf_logging

        tf_logging.import_tensorflow()
        from tpuserve.export import convert
        from tpuserve.export import export as run_export
        from tpuserve.export.functional import keras_file
        from tpuserve.export.functional.input_shapes import InputShape, apply_input_shapes

        batch_config = make_batch_config(
            allowed_batch_sizes, num_batch_threads, batch_timeout_micros, max_enqueued_batches
        )
        progress(0, 0, "loading the model")
        model = keras_file.load_keras_file(file)
        specs = apply_input_shapes(model, [InputShape(*shape) for shape in input_shapes])
        progress(0, 0, "exporting")
        requests = warm_up or None
        try:
            version = run_export(
                model, specs, directory, batch_config=batch_config, warm_up=requests
            )
        except StringsOnTpu:
            # Convert the CPU metagraph: that leaves the ops on strings on the host.
            with tempfile.TemporaryDirectory() as temporary:
                exported = Path(run_export(model, specs, temporary, to_tpu=False))
                version = str(directory / exported.name)
                convert(exported, version, batch_config=batch_config, warm_up=requests)
    if signing_key is not None:
        signing.sign(Path(version), signing_key)
    click.echo(version)
