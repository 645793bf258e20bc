"""The function `tpuserve.export.convert`: adds a TPU metagraph to a SavedModel."""

import contextlib
import dataclasses
import functools
import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tensorflow as tf

from tpuserve import tags as tag_sets
from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export import atomic_directory, saved_model_writer, signature_parity
from tpuserve.export import warm_up as warm_up_file
from tpuserve.export.conversion import rewriting, source
from tpuserve.export.conversion.analysis import probing
from tpuserve.export.conversion.conversion_report import Conversion, ConvertedSignature
from tpuserve.export.conversion.passes.bfloat16 import to_bfloat16
from tpuserve.export.conversion.source import Source
from tpuserve.export.tpu.batching import BatchConfig
from tpuserve.export.warm_up import WarmUp, normalize_warm_up
from tpuserve.tensorflow_internals import fingerprinting_utils


def check_output(directory: Path, out: Path) -> None:
    """Check that a conversion is allowed to write its output directory."""
    source, target = directory.resolve(), out.resolve()
    if target == source:
        raise ExportError(f"{out} is the model to convert. Write to a directory beside it.")
    if source in target.parents:
        raise ExportError(
            f"{out} is inside of {directory}, which is read. Write to a directory beside it."
        )
    if out.is_file() or out.is_symlink() or (out.exists() and any(out.iterdir())):
        raise ExportError(f"{out} exists already. Give a new directory, or remove it.")


@contextmanager
def write_whole(out: Path) -> Iterator[Path]:
    """Yield a temporary directory beside `out`, and rename it to `out` if the with block succeeds.

    A process that is killed leaves the temporary directory. The next export or conversion into the
    same parent directory removes it.
    """
    try:
        with (
            _create_parents(out),
            atomic_directory.temporary_directory(str(out.parent)) as temporary,
        ):
            yield Path(temporary)
            # os.rename replaces an empty directory, and raises an error for any other, so that no
            # output of another process is overwritten.
            os.rename(temporary, out)
    except OSError as error:
        raise _make_error(out, error.strerror or str(error)) from error
    except tf.errors.OpError as error:
        # TensorFlow raises this error while it writes the warm-up file. If the error names the
        # temporary directory, the file system refused to write. Raise any other error unchanged.
        if atomic_directory.PREFIX not in error.message:
            raise
        raise _make_error(out, error.message) from error


def _make_error(out: Path, reason: str) -> ExportError:
    return ExportError(
        f"{out} cannot be written: {reason}. Give a directory that this user can write, on a disk "
        f"with room for the model."
    )


@contextmanager
def _create_parents(path: Path) -> Iterator[None]:
    """Create the missing directories above a path; remove them if the with block raises."""
    missing = [parent for parent in path.parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for parent in missing:
            # Keep a directory that is not empty: another process has written into it in the
            # meantime.
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


@contextmanager
def copying(source: Path, target: Path, files: Sequence[Path]) -> Iterator[None]:
    """Copy files in a background thread while a with block runs.

    The end of the block waits until all files are copied.
    """
    with ThreadPoolExecutor(max_workers=1) as executor:
        copies = executor.submit(_copy_files, source, target, files)
        yield
        copies.result()


def _copy_files(source: Path, target: Path, files: Sequence[Path]) -> None:
    for path in files:
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


logger = logging.getLogger(__name__)

# The conversion fails after this number of attempts to build TPU computations that XLA can compile.
# Each attempt moves more ops to the host: those that XLA could not compile in earlier attempts.
_MOST_ATTEMPTS = 30


def convert(
    directory: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    tags: Collection[str] = tag_sets.SERVE,
    signatures: Sequence[str] | None = None,
    function: str | None = None,
    whole: bool = False,
    batch_config: BatchConfig | None = None,
    bfloat16: bool = False,
    keep_float32: Sequence[str] = (),
    warm_up: WarmUp | bool | None = None,
) -> Conversion:
    """Write a copy of a SavedModel with a TPU metagraph; the code of the model is not needed.

    The metagraph {serve} stays as it is. In the metagraph {serve, tpu}, the TPU runs as much of
    each signature as XLA can compile. Ops that only the host can run, such as parsing, strings and
    tables, run on the host, before or after the TPU. Both metagraphs share one set of variables,
    whose files are copied and not read.

    Args:
      out: The directory to write: a new or an empty one.
      signatures: Names of the signatures to convert; None for all. The others run on the host.
      function: Alias of a function, which tf.saved_model.SaveOptions(function_aliases=...) set when
        the model was saved.
      whole: Whether to raise an ExportError if a part of a signature would run on the host.
      batch_config: How to batch requests before the TPU; None for no batching in the graph.
      bfloat16: Whether the TPU computes in bfloat16. Inputs, outputs and variables stay float32.
      keep_float32: Regular expressions: a node whose name matches one computes in float32.
      warm_up: The requests that a server runs before the model is available; True for one request
        per signature and allowed batch size; None keeps the warm-up file of the model, if any.

    Returns:
      Which ops of each signature run on the TPU and on the host, with reasons.

    Raises:
      NotFound, DamagedSavedModel, UnsupportedModel: The directory holds no SavedModel,
        or none that the installed TensorFlow can read.
      ExportError: Nothing would run on the TPU, the function is unknown, the SavedModel has a TPU
        metagraph already, or the output cannot be written.
      InvalidSetting, InvalidType: An argument has an invalid value or type.
    """
    source_path, out_path = _to_path("directory", directory), _to_path("out", out)
    if batch_config is not None and not isinstance(batch_config, BatchConfig):
        raise InvalidType(f"batch_config is {batch_config!r}. Give a BatchConfig, or None.")
    patterns = _compile_patterns(keep_float32, bfloat16=bfloat16)
    requests = normalize_warm_up(warm_up)
    model = source.read_source(source_path, frozenset(tags), tuple(signatures or ()))
    check_output(source_path, out_path)
    aliased = frozenset[str]()
    if function is not None:
        aliased = source.find_aliased_functions(model, function)
    options = rewriting.Options(aliased, whole, batch_config)
    if bfloat16:
        rewrite_body = functools.partial(to_bfloat16, keep_float32=patterns)
        options = dataclasses.replace(options, rewrite_body=rewrite_body)
    files = source.saved_model_files(source_path)
    with write_whole(out_path) as temporary:
        with copying(source_path, temporary, files):
            tpu, converted = _find_compilable(model, options)
            signature_parity.check_same_signatures(
                model.meta_graph.signature_def, tpu.signature_def
            )
        notes = _write_model(model, out_path, temporary, tpu, requests)
    return Conversion(source_path, out_path, converted, tuple(notes))


def _compile_patterns(patterns: Any, *, bfloat16: bool) -> list[re.Pattern[str]]:
    if isinstance(patterns, str) or not all(isinstance(pattern, str) for pattern in patterns):
        raise InvalidType(f"keep_float32 is {patterns!r}. Give a list of regular expressions.")
    if patterns and not bfloat16:
        raise InvalidSetting(
            "keep_float32 is set, and everything computes in float32. Set bfloat16 as well."
        )
    try:
        return [re.compile(pattern) for pattern in patterns]
    except re.error as error:
        raise InvalidSetting(
            f"keep_float32 has {error.pattern!r}, which is no regular expression: {error}."
        ) from error


def _find_compilable(
    model: Source, options: rewriting.Options
) -> tuple[Any, tuple[ConvertedSignature, ...]]:
    """Build a TPU metagraph of which XLA can compile all TPU computations."""
    config = options.batch_config
    batch_size = config.allowed_batch_sizes[0] if config and config.allowed_batch_sizes else 2
    refused: dict[str, str] = {}
    for _ in range(_MOST_ATTEMPTS):
        tpu, converted = rewriting.rewrite_meta_graph(
            model.meta_graph, model.signatures, options, refused
        )
        refused_ops = probing.find_refused(
            tpu, [signature.name for signature in converted if signature.functions], batch_size
        )
        if not refused_ops:
            return tpu, converted
        new = {node: reason for node, reason in refused_ops.items() if node not in refused}
        if not new:
            break
        logger.info("XLA refuses %s, which stay on the host", ", ".join(new))
        refused |= new
    raise ExportError(
        f"no part of {model.directory} was found that XLA compiles; it refuses "
        f"{_describe_refused(refused)}. Convert a function by its alias."
    )


def _describe_refused(refused: Mapping[str, str]) -> str:
    return "; ".join(f"{node!r}: {reason}" for node, reason in list(refused.items())[-3:])


def _write_model(
    model: Source, out: Path, temporary: Path, tpu: Any, requests: WarmUp | None
) -> list[str]:
    """Write the graphs of the converted SavedModel, its fingerprint and its warm-up file."""
    notes = []
    saved_model = model.saved_model
    by_tags = {
        frozenset(metagraph.meta_info_def.tags): metagraph for metagraph in saved_model.meta_graphs
    }
    if tag_sets.SERVE not in by_tags:
        notes.append(
            f"the metagraph {tag_sets.format_tags(model.meta_graph.meta_info_def.tags)} is tagged "
            f"{tag_sets.format_tags(tag_sets.SERVE)} in {out}, so that servers find it"
        )
        model.meta_graph.meta_info_def.ClearField("tags")
        model.meta_graph.meta_info_def.tags.extend(sorted(tag_sets.SERVE))
    saved_model.meta_graphs.append(tpu)
    for meta_graph in saved_model.meta_graphs:
        rewriting.drop_init_signature(meta_graph)
    num_bytes = saved_model.ByteSize()
    if num_bytes > saved_model_writer.MOST_BYTES:
        raise ExportError(
            f"both metagraphs together have {num_bytes} bytes, and a saved_model.pb can hold "
            f"{saved_model_writer.MOST_BYTES}. Save the model with variables in place of constants."
        )
    (temporary / "saved_model.pb").write_bytes(saved_model.SerializeToString(deterministic=True))
    if requests is not None:
        warm_up_file.write_warm_up_file(temporary, saved_model.meta_graphs, requests)
    fingerprinting_utils.write_fingerprint(str(temporary))
    return notes


def _to_path(argument: str, value: Any) -> Path:
    if not isinstance(value, str | bytes | os.PathLike) or not os.fspath(value):
        raise InvalidType(f"{argument} is {value!r}. Give a path.")
    return Path(os.fsdecode(value))
