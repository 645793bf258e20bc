"""Implements `tpuserve convert`, which adds a TPU metagraph to an existing SavedModel."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpuserve import tags as tag_sets
from tpuserve import validation
from tpuserve.commands.batching_options import batching_options, make_batch_config
from tpuserve.commands.common_options import (
    TopologyType,
    import_ops_option,
    import_tensorflow,
    json_option,
    signature_option,
    signing_key_option,
)
from tpuserve.commands.exit_on_sigterm import exit_on_sigterm
from tpuserve.commands.path_type import MultiValueCommand, OutputPath, SavedModelPath
from tpuserve.commands.progress import progress_bar
from tpuserve.errors import InvalidSetting
from tpuserve.saved_model import signing
from tpuserve.tags import TagSet

if TYPE_CHECKING:
    from tpuserve.saved_model.metagraph import Metagraph

_TOLERANCE, _BFLOAT16_TOLERANCE = 1e-5, 2e-2

# The character \b tells click to keep the line breaks of the examples.
_EXAMPLES = """\b
Examples:
  tpuserve convert /models/half/1 /models/half_tpu/1
  tpuserve convert /models/half/1 /models/half_tpu/1 --allowed_batch_sizes 1 8 32 --warm_up
  tpuserve convert /models/bert/1 /models/bert_tpu/1 --bfloat16 --keep_float32 'layer_norm'
  tpuserve convert /models/bert/1 /models/bert_tpu/1 --function tpu_candidate
  tpuserve convert /models/bert/1 /models/bert_tpu/1 --topology v5e:1x1
"""


@click.command(cls=MultiValueCommand, epilog=_EXAMPLES)
@click.argument("directory", type=SavedModelPath())
@click.argument("out", type=OutputPath())
@click.option(
    "--tags",
    default="serve",
    show_default=True,
    metavar="TAGS",
    help="Tags of the metagraph to convert, separated by commas.",
)
@signature_option("Convert")
@click.option(
    "--function",
    metavar="ALIAS",
    help="Put the calls of this function on the TPU, and all else on the host. ALIAS is that of "
    "tf.saved_model.SaveOptions(function_aliases=...).",
)
@click.option(
    "--whole", is_flag=True, help="Refuse a signature of which a part would stay on the host."
)
@batching_options
@click.option(
    "--bfloat16",
    is_flag=True,
    help="Compute in bfloat16 on the TPU. Inputs, outputs and variables stay float32.",
)
@click.option(
    "--keep_float32",
    "--keep-float32",
    "keep_float32",
    multiple=True,
    metavar="PATTERN",
    help="With --bfloat16: nodes whose name matches this regular expression compute in float32 "
    "(repeatable).",
)
@click.option(
    "--warm_up",
    "--warm-up",
    "warm_up",
    is_flag=True,
    help="Write the warm-up file: a request for each signature and allowed batch size. Default: "
    "the file of the model is kept, if there is one.",
)
@click.option(
    "--verify/--no-verify",
    "verifies",
    default=True,
    help="Compare both metagraphs after the conversion, like `tpuserve verify`. Default: compare.",
)
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FILE.npz",
    help="Compare on these arrays, and compile for their shapes; see `tpuserve verify`.",
)
@click.option(
    "--atol",
    type=float,
    metavar="TOLERANCE",
    help="Absolute tolerance. Default: 1e-05, with --bfloat16 0.02.",
)
@click.option(
    "--rtol",
    type=float,
    metavar="TOLERANCE",
    help="Relative tolerance. Default: 1e-05, with --bfloat16 0.02.",
)
@click.option(
    "--topology",
    "topologies",
    type=TopologyType(),
    multiple=True,
    help="Compile for these TPUs after the conversion, like `tpuserve compile`. Needs the extra "
    "compile.",
)
@import_ops_option
@signing_key_option
@json_option
@click.pass_context
def convert(
    context: click.Context,
    directory: Path,
    out: Path,
    tags: str,
    signatures: tuple[str, ...],
    function: str | None,
    whole: bool,
    allowed_batch_sizes: tuple[int, ...],
    num_batch_threads: int,
    batch_timeout_micros: int,
    max_enqueued_batches: int,
    bfloat16: bool,
    keep_float32: tuple[str, ...],
    warm_up: bool,
    verifies: bool,
    inputs: Path | None,
    atol: float | None,
    rtol: float | None,
    topologies: tuple[str, ...],
    import_ops: tuple[str, ...],
    signing_key: Path | None,
    as_json: bool,
) -> None:
    """Add a TPU metagraph to a SavedModel, without its program.

    DIRECTORY holds a saved_model.pb of TensorFlow 1 or 2, such as /models/half/1, or is a base
    path, such as /models/half, whose newest version is meant. OUT is the directory to write; it
    must not exist.

    In OUT, the metagraph {serve} is that of DIRECTORY. In the metagraph {serve, tpu}, the TPU runs
    as much of each signature as XLA can compile. Parsing, strings, tables and other ops
    that only the host can run stay on the host, in front of the TPU part and behind it; the output
    lists them. Variables, assets, tables, the warm-up file and assets.extra are kept.

    The exit status is 0 if OUT is written, both metagraphs agree, and the TPU part compiles; else
    1. If the metagraphs differ, or the TPU part does not compile, OUT is written all the same.
    """
    from tpuserve.saved_model import metagraph

    # Read the SavedModel first, so that an error in the SavedModel is reported before the slow
    # import of TensorFlow.
    metagraphs = metagraph.read_metagraphs(directory)
    _check_extras(signing_key, topologies)
    # The compilation takes the shapes of the inputs, too.
    _check_comparison(verifies, None if topologies else inputs, atol=atol, rtol=rtol)
    source_tags = tag_sets.parse_tags(tags)
    with exit_on_sigterm(), progress_bar() as progress:
        progress(0, 0, "importing TensorFlow")
        import_tensorflow(import_ops)
        from tpuserve.export import convert as run_conversion

        if inputs is not None:
            # Check the input file before the conversion: the comparison of the metagraphs, which
            # reads the file, runs only after OUT is written.
            _check_inputs(inputs, metagraphs, source_tags)
        batch_config = make_batch_config(
            allowed_batch_sizes, num_batch_threads, batch_timeout_micros, max_enqueued_batches
        )
        progress(0, 0, "converting")
        conversion = run_conversion(
            directory,
            out,
            tags=source_tags,
            signatures=signatures or None,
            function=function,
            whole=whole,
            batch_config=batch_config,
            bfloat16=bfloat16,
            keep_float32=keep_float32,
            warm_up=warm_up or None,
        )
        if signing_key is not None:
            signing.sign(out, signing_key)
    results = _Results(conversion)
    if not as_json:
        # Print the report before the comparison, which takes long: the user may interrupt it.
        results.print_conversion()
    with exit_on_sigterm(), progress_bar() as progress:
        if verifies:
            default = _BFLOAT16_TOLERANCE if bfloat16 else _TOLERANCE
            results.verification = _verify(
                out,
                inputs,
                atol=default if atol is None else atol,
                rtol=default if rtol is None else rtol,
                progress=progress,
            )
        if topologies:
            results.compilation = _compile(out, topologies, inputs, progress)
    if as_json:
        click.echo(json.dumps(results.to_dict(), indent=2))
    else:
        results.print_checks()
    if not results.passed:
        context.exit(1)


def _check_extras(signing_key: Path | None, topologies: tuple[str, ...]) -> None:
    """Check the optional packages and the signing key that the options need, before the conversion.

    Args:
      signing_key: the private key of the option --signing-key; None if the option is not set.
      topologies: the TPU topologies of the option --topology; empty if it is not set.

    Raises:
      TpuserveError: a package is not installed, or the key cannot sign.
    """
    if signing_key is not None:
        signing.check_key(signing_key, is_private=True)
    if topologies:
        from tpuserve.compilation.compiler import require_extra

        require_extra()


def _check_comparison(verifies: bool, inputs: Path | None, **tolerances: float | None) -> None:
    """Check the options of the comparison, which begins only after OUT is written."""
    if not verifies and (inputs, *tolerances.values()) != (None, None, None):
        raise InvalidSetting(
            "--no-verify is set, and --inputs, --atol and --rtol are about the comparison that it "
            "leaves out. Remove --no-verify, or the other options."
        )
    for name, tolerance in tolerances.items():
        if tolerance is not None:
            validation.check_number(name, tolerance, least=0, below=math.inf)


def _verify(
    out: Path,
    inputs: Path | None,
    *,
    atol: float,
    rtol: float,
    progress: Callable[[int, int, str], None],
) -> Any:
    from tpuserve.verification import verify

    return verify(out, inputs=inputs, atol=atol, rtol=rtol, runs=0, progress=progress)


def _compile(
    out: Path,
    topologies: tuple[str, ...],
    inputs: Path | None,
    progress: Callable[[int, int, str], None],
) -> Any:
    from tpuserve.compilation import aot, cache

    return aot.compile(
        out,
        topologies=topologies,
        inputs=inputs,
        cache=cache.CompileCache.for_user(),
        progress=progress,
    )


def _check_inputs(inputs: Path, metagraphs: Iterable["Metagraph"], tags: TagSet) -> None:
    """Check that an .npz file has inputs for the signatures of a metagraph.

    Args:
      inputs: the .npz file.
      metagraphs: the metagraphs of the SavedModel.
      tags: the tags of the metagraph whose signatures will be compared.

    Raises:
      InvalidInput: The file cannot be read, or its arrays do not fit the signatures.
    """
    from tpuserve.samples import npz_inputs

    arrays = npz_inputs.read_npz(inputs)
    for source in metagraphs:
        if source.tags == tags:
            npz_inputs.assign_to_signatures(arrays, source.signatures, str(inputs))


@dataclass
class _Results:
    """The results of the three steps of `tpuserve convert`.

    Attributes:
      conversion: the report of what was converted.
      verification: the comparison of both metagraphs; None if the comparison did not run.
      compilation: the report of the compilation for TPU topologies; None if it did not run.
    """

    conversion: Any
    verification: Any = None
    compilation: Any = None

    @property
    def passed(self) -> bool:
        """True unless the comparison or the compilation has failed."""
        return all(
            result is None or result.passed for result in (self.verification, self.compilation)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the results of all steps as a dict that can be written as JSON."""
        from tpuserve.verification import rendering

        data = {"conversion": self.conversion.to_dict(), "passed": self.passed}
        if self.verification is not None:
            data["verification"] = rendering.to_dict(self.verification)
        if self.compilation is not None:
            data["compilation"] = self.compilation.to_dict()
        return data

    def print_conversion(self) -> None:
        """Print the report of the conversion as tables."""
        from tpuserve.export.conversion import report_tables

        report_tables.print_tables(self.conversion)

    def print_checks(self) -> None:
        """Print the results of the comparison and of the compilation, as tables."""
        if self.verification is not None:
            from tpuserve.verification import rendering

            click.echo()
            rendering.print_tables(self.verification)
        if self.compilation is not None:
            from tpuserve.compilation import report_tables as compile_tables

            click.echo()
            compile_tables.print_report(self.compilation)
