"""The function `tpuserve.export.convert`: adds a TPU metagraph to a SavedModel."""

import dataclasses
import functools
import logging
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tpuserve import tags as tag_sets
from tpuserve.errors import ExportError, InvalidSetting, InvalidType
from tpuserve.export import signature_parity
from tpuserve.export import warm_up as warm_up_file
from tpuserve.export.conversion import output, rewriting, source
from tpuserve.export.conversion.analysis import probing
from tpuserve.export.conversion.conversion_report import Conversion, ConvertedSignature
from tpuserve.export.conversion.passes.bfloat16 import to_bfloat16
from tpuserve.export.conversion.source import Source
from tpuserve.export.files import proto_size
from tpuserve.export.tpu.batching import BatchConfig
from tpuserve.export.warm_up import WarmUp, normalize_warm_up
from tpuserve.tensorflow_internals import fingerprinting_utils

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
    output.check_output(source_path, out_path)
    aliased = frozenset[str]()
    if function is not None:
        aliased = source.find_aliased_functions(model, function)
    options = rewriting.Options(aliased, whole, batch_config)
    if bfloat16:
        rewrite_body = functools.partial(to_bfloat16, keep_float32=patterns)
        options = dataclasses.replace(options, rewrite_body=rewrite_body)
    files = source.saved_model_files(source_path)
    with output.write_whole(out_path) as temporary:
        with output.copying(source_path, temporary, files):
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
    if num_bytes > proto_size.MOST_BYTES:
        raise ExportError(
            f"both metagraphs together have {num_bytes} bytes, and a saved_model.pb can hold "
            f"{proto_size.MOST_BYTES}. Save the model with variables in place of constants."
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
